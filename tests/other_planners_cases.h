// Reads the cases of tests/data with the results of other planners.
//
//   for (const PeerCase& one : ReadPeerCases("tests/data/live_2x2.json").value()) {
//     MakePlan(one.from, one.to);
//     one.peers.at("xla").collectives;
//   }
#ifndef MESHIFT_TESTS_OTHER_PLANNERS_CASES_H_
#define MESHIFT_TESTS_OTHER_PLANNERS_CASES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/sharding.h"

namespace meshift {

// The measured behaviour of another planner's plan (tests/data/README.md).
struct PeerPlan {
  int64_t collectives = 0;
  int64_t bytes_sent = 0;      // by the worst rank
  bool is_wrong = false;       // its data was wrong
  bool is_duplicated = false;  // the same sum is computed by several groups
};

struct PeerCase {
  std::string name;
  Sharding from;
  Sharding to;
  std::map<std::string, PeerPlan> peers;  // in live_2x2.json
  int64_t collectives = 0;                // in dtensor_counts.json: the expected number
};

// NOT_FOUND, or INVALID_ARGUMENT if it is not such a file.
absl::StatusOr<std::vector<PeerCase>> ReadPeerCases(const std::string& path);

}  // namespace meshift

#endif  // MESHIFT_TESTS_OTHER_PLANNERS_CASES_H_
