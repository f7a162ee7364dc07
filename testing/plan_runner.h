// Runs plans on the in-process engine, all ranks from one thread, and checks each rank's result
// with the oracle.
//
//   // The mesh of the plan, or UnionMesh of its two meshes.
//   MESHIFT_ASSIGN_OR_RETURN(auto runner, PlanRunner::Create(mesh));
//   const Pass passes[] = {{.fill = {.values = Values::kExact, .seed = 1}}};
//   MESHIFT_ASSIGN_OR_RETURN(PlanRun run, runner->Run(plan, passes));
//   run.data.ok();                      // else run.data.ToString() names a rank and an element
//   run.bytes_sent[0];                  // of step 0, counted from the arguments of the calls
//
// The plan is not verified, so damaged plans can be run. RedistributeAndCheck (meshift/testing.h)
// plans, verifies, runs and checks in one call.
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

// One run: the values of the sources, and the order of the engine's additions.
struct Pass {
  Fill fill;
  ReductionOrder order = ReductionOrder::kRanks;
  int64_t domain_size = 1;  // for ReductionOrder::kTopology
};

struct PlanRun {
  // Summed over the passes. With ReductionOrder::kAdversarial only replicas are compared, since its
  // sums are off by more than rounding.
  CheckResult data;
  std::vector<int64_t> bytes_sent;  // per step, by the rank that sends most
  // By position in the runner's mesh, per step.
  std::vector<std::vector<int64_t>> rank_bytes_sent;
};

// Not thread-safe.
class PlanRunner {
 public:
  // The runner has the ranks of `mesh`, whatever its dims. `timeout`: a collective with missing
  // members ends after this time without progress. RESOURCE_EXHAUSTED: the mesh has a rank of 2^20
  // or more.
  static absl::StatusOr<std::unique_ptr<PlanRunner>> Create(
      const DeviceMesh& mesh, std::chrono::milliseconds timeout = std::chrono::seconds(10));
  ~PlanRunner();

  // Ranks of source and target must be among the runner's, else INVALID_ARGUMENT; ranks in neither
  // take part without data. Poisons targets and workspaces before each pass. Returns an error if
  // the plan cannot be lowered or run.
  absl::StatusOr<PlanRun> Run(const Plan& plan, absl::Span<const Pass> passes);

  const DeviceMesh& mesh() const { return mesh_; }

 private:
  struct Rank {
    Engine* engine = nullptr;
    std::unique_ptr<GroupCache> groups;
    std::unique_ptr<Stream> stream;
    Program program;
    std::unique_ptr<Executable> executable;
    // In the meshes of source and target; nullopt: it is not in that mesh.
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
