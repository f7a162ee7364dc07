// Plans, proves, runs and counts many cases.
//
//   Runners runners;
//   WorldTally tally;
//   JudgeCase(from, to, {}, runners.For(from, to), &tally);
//   fmt::print("{}\n", tally.ToString());
#ifndef MESHIFT_TESTS_WORLD_TALLY_H_
#define MESHIFT_TESTS_WORLD_TALLY_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "tests/plan_runner.h"

namespace meshift {

struct WorldTally {
  int64_t cases = 0;
  int64_t refused = 0;
  int64_t unproven = 0;
  int64_t wrong = 0;
  int64_t differing = 0;
  int64_t miscounted = 0;
  std::map<std::string, int64_t> ops;  // steps, by op
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::string ToString() const;
};

// Runners by the number of their ranks, made on demand.
class Runners {
 public:
  PlanRunner& For(const DeviceMesh& mesh);
  // The runner for plans between these shardings.
  PlanRunner& For(const Sharding& from, const Sharding& to);

 private:
  std::map<std::string, std::unique_ptr<PlanRunner>> runners_;
};

// Checks one case. Reports failures to GoogleTest, the first few of a kind with their plan.
void JudgeCase(const Sharding& from, const Sharding& to, const PlannerOptions& options,
               PlanRunner& runner, WorldTally* tally);

}  // namespace meshift

#endif  // MESHIFT_TESTS_WORLD_TALLY_H_
