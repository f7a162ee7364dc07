// The cases of tests/data that say what other planners do.
//
//   for (const PeerCase& one : ReadPeerCases("tests/data/live_2x2.json").value()) {
//     MakePlan(one.from, one.to);
//     one.peers.at("xla").collectives;
//   }
#ifndef MESHIFT_TESTS_PEER_CASES_H_
#define MESHIFT_TESTS_PEER_CASES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/sharding.h"

namespace meshift {

// What a peer's plan does, as measured (tests/data/README.md).
struct PeerPlan {
  int64_t collectives = 0;
  int64_t bytes_sent = 0;      // by the worst rank
  bool is_wrong = false;       // it left wrong data
  bool is_duplicated = false;  // the same sum is computed by several groups
};

struct PeerCase {
  std::string name;
  Sharding from;
  Sharding to;
  std::map<std::string, PeerPlan> peers;  // of live_2x2.json
  int64_t collectives = 0;                // of dtensor_counts.json: what is expected there
};

// NOT_FOUND, or INVALID_ARGUMENT where it is no such file.
absl::StatusOr<std::vector<PeerCase>> ReadPeerCases(const std::string& path);

}  // namespace meshift

#endif  // MESHIFT_TESTS_PEER_CASES_H_
