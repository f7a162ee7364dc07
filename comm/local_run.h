// Runs plans on all ranks of a LocalWorld from one thread, with a redistributor per rank.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = 40}));
//   MESHIFT_ASSIGN_OR_RETURN(auto runner, LocalRunner::Create(world.get(), mesh));
//   MESHIFT_ASSIGN_OR_RETURN(LocalRun run, runner->Run(plan, sources, targets));
//   run.steps[0].bytes_sent;            // by the worst rank, counted from the calls that were made
#ifndef MESHIFT_COMM_LOCAL_RUN_H_
#define MESHIFT_COMM_LOCAL_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/tensor_view.h"

namespace meshift {

struct LocalRun {
  struct StepRun {
    int64_t bytes_sent = 0;  // by the worst rank
    int64_t bytes_total = 0;
    int64_t calls = 0;                     // collective calls of the rank with the most
    int64_t ns = -1;                       // on the slowest rank; -1: not timed
    std::vector<int64_t> rank_bytes_sent;  // by position in the runner's mesh
  };
  std::vector<StepRun> steps;
};

class LocalRunner {
 public:
  // `world` must have the mesh's ranks and outlive the runner. Each new plan is made once, and with
  // options.expert.verify_plans verified once, not once per rank. FAILED_PRECONDITION: the world
  // has control channels, and by options.agreement calls wait for their peers, which one thread
  // cannot.
  static absl::StatusOr<std::unique_ptr<LocalRunner>> Create(
      LocalWorld* world, const DeviceMesh& mesh, const RedistributorOptions& options = {});

  // Runs `plan`, whose meshes are of ranks of the runner's, and waits. Memory of the local tensors,
  // row-major, by position in the mesh of the source, of the target (DeviceMesh::PositionOf); null
  // where there are no elements. `consume_source`: as in a Redistribution. Where the first rank
  // refuses its arguments, nothing is done; after any other error of a rank all are aborted, and
  // the runner is of no more use.
  absl::StatusOr<LocalRun> Run(const Plan& plan, absl::Span<void* const> sources,
                               absl::Span<void* const> targets, bool consume_source = false);
  // Plans and runs.
  absl::StatusOr<LocalRun> Run(const Sharding& from, const Sharding& to,
                               absl::Span<void* const> sources, absl::Span<void* const> targets);

  // The redistributor of the rank at a position.
  Redistributor& at(int64_t position) { return redistributors_[position]; }

 private:
  explicit LocalRunner(DeviceMesh mesh) : mesh_(std::move(mesh)) {}
  using CallFn = absl::FunctionRef<absl::StatusOr<RunHandle>(Redistributor&, const TensorView&,
                                                             const TensorView&)>;
  absl::StatusOr<LocalRun> RunAll(const Sharding& from, const Sharding& to,
                                  absl::Span<void* const> sources, absl::Span<void* const> targets,
                                  CallFn call);

  const DeviceMesh mesh_;
  std::vector<Redistributor> redistributors_;  // by position
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_RUN_H_
