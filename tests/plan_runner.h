// Runs a plan, which may be damaged, in three passes of testing/plan_runner.h.
//
//   PlanRunner runner(mesh);
//   absl::StatusOr<RunOutcome> outcome = runner.Run(plan);
//   EXPECT_EQ(outcome->wrong, 0) << outcome->message;
#ifndef MESHIFT_TESTS_PLAN_RUNNER_H_
#define MESHIFT_TESTS_PLAN_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "testing/plan_runner.h"

namespace meshift {

struct RunOutcome {
  int64_t wrong = 0;            // wrong elements, in the exact passes
  int64_t replicas_differ = 0;  // under adversarial reduction
  // Steps in which a rank sent other bytes than planned (planner/plan/rank_bytes.h), or the worst
  // rank other bytes than the step has.
  int64_t bytes_differ = 0;
  std::string message;  // the first fault; empty if none
  bool ok() const { return message.empty(); }
};

// Not thread-safe. The ranks of every plan's meshes must be among the runner's.
class PlanRunner {
 public:
  explicit PlanRunner(const DeviceMesh& mesh);

  // Makes two exact passes in rank order, the second with special values (NaN, infinities, zeros of
  // both signs) where they are exact, and one rounding pass under adversarial reduction. The plan
  // is not verified. Returns an error if it cannot be lowered or run.
  absl::StatusOr<RunOutcome> Run(const Plan& plan);

 private:
  std::unique_ptr<testkit::PlanRunner> runner_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_PLAN_RUNNER_H_
