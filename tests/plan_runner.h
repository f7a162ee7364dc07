// Runs plans on the local engine, all ranks from one thread, and judges them by the definition.
//
//   PlanRunner runner(mesh);
//   absl::StatusOr<RunOutcome> outcome = runner.Run(plan);
//   EXPECT_EQ(outcome->wrong, 0) << outcome->message;
#ifndef MESHIFT_TESTS_PLAN_RUNNER_H_
#define MESHIFT_TESTS_PLAN_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/executor.h"
#include "comm/group_cache.h"
#include "comm/local/local_world.h"
#include "planner/plan.h"
#include "testing/definition.h"

namespace meshift {

struct RunOutcome {
  int64_t wrong = 0;            // elements, in the exact passes
  int64_t replicas_differ = 0;  // under adversarial reduction
  // Steps whose worst rank sent another number of bytes than planned.
  int64_t bytes_differ = 0;
  std::string message;  // the first of these; empty if none
  bool ok() const { return message.empty(); }
};

// Not for use from several threads. Source and target of every plan are on the runner's mesh.
class PlanRunner {
 public:
  explicit PlanRunner(const DeviceMesh& mesh);
  ~PlanRunner();

  // Two exact passes with different fills, in rank order, and one rounding pass under adversarial
  // reduction. The plan is not verified. An error where it cannot be lowered or run.
  absl::StatusOr<RunOutcome> Run(const Plan& plan);

 private:
  absl::Status RunOnce(const Plan& plan, const testkit::Oracle& oracle, const testkit::Fill& fill,
                       RunOutcome* outcome);

  const DeviceMesh mesh_;
  std::unique_ptr<LocalWorld> world_;
  struct Rank {
    std::unique_ptr<GroupCache> groups;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Executor> executor;
    Program program;
    std::vector<Communicator*> communicators;
    std::vector<std::byte> source;
    std::vector<std::byte> target;
    std::vector<std::byte> workspace;
    RunRecord record;
  };
  std::vector<Rank> ranks_;  // by position
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_PLAN_RUNNER_H_
