// Runs plans on the in-process engine, all ranks from one thread, and judges what every rank holds
// by the definition.
//
//   // The mesh of the plan, or UnionMesh of its two.
//   MESHIFT_ASSIGN_OR_RETURN(auto runner, PlanRunner::Create(mesh));
//   const Pass passes[] = {{.fill = {.values = Values::kExact, .seed = 1}}};
//   MESHIFT_ASSIGN_OR_RETURN(PlanRun run, runner->Run(plan, passes));
//   run.data.ok();                      // or run.data.ToString() says which rank holds what
//   run.bytes_sent[0];                  // of step 0, counted from the arguments of the calls
//
// The plan is not verified: this is also for plans that are damaged on purpose. For one call that
// does everything see RedistributeAndCheck (meshift/testing.h).
#ifndef MESHIFT_TESTING_PLAN_RUNNER_H_
#define MESHIFT_TESTING_PLAN_RUNNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/executor/executable.h"
#include "comm/executor/group_cache.h"
#include "comm/local/reduction_order.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/testing.h"

namespace meshift::testkit {

// One run: what the sources hold, and how the engine orders its additions.
struct Pass {
  Fill fill;
  ReductionOrder order = ReductionOrder::kRanks;
  int64_t domain_size = 1;  // of ReductionOrder::kTopology
};

struct PlanRun {
  // Summed over the passes. Adversarial sums are off by more than rounding, so that with
  // ReductionOrder::kAdversarial only replicas are compared.
  CheckResult data;
  std::vector<int64_t> bytes_sent;  // per step, by the rank that sends most
  // By position in the runner's mesh, per step.
  std::vector<std::vector<int64_t>> rank_bytes_sent;
};

// Not for use from several threads.
class PlanRunner {
 public:
  // The runner has the ranks of `mesh`, whatever its dims. `timeout`: after how long without any
  // progress a collective that lacks members ends.
  // RESOURCE_EXHAUSTED: the mesh has a rank of 2^20 or more.
  static absl::StatusOr<std::unique_ptr<PlanRunner>> Create(
      const DeviceMesh& mesh, std::chrono::milliseconds timeout = std::chrono::seconds(10));
  ~PlanRunner();

  // The ranks of source and target are among the runner's, else INVALID_ARGUMENT; those that are in
  // neither take part without data. Targets and workspaces are poisoned before each pass. An error
  // where the plan cannot be lowered or run.
  absl::StatusOr<PlanRun> Run(const Plan& plan, absl::Span<const Pass> passes);

  const DeviceMesh& mesh() const { return mesh_; }

 private:
  struct Rank {
    Engine* engine = nullptr;
    std::unique_ptr<GroupCache> groups;
    std::unique_ptr<Stream> stream;
    Program program;
    std::unique_ptr<Executable> executable;
    // In the meshes of source and target; nullopt: it has no part of it.
    std::optional<int64_t> source_position;
    std::optional<int64_t> target_position;
    std::vector<std::byte> source;
    std::vector<std::byte> target;
    std::vector<std::byte> workspace;
  };

  explicit PlanRunner(DeviceMesh mesh) : mesh_(std::move(mesh)) {}
  absl::Status Prepare(const Plan& plan, const Oracle& oracle);
  absl::StatusOr<CheckResult> RunPass(const Oracle& oracle, const Pass& pass);

  const DeviceMesh mesh_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<Rank> ranks_;  // by position
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_PLAN_RUNNER_H_
