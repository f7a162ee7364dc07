// Runs plans on all ranks of a mesh in a LocalWorld from one thread, with a redistributor per rank.
// For tests and the command-line tool; it waits for each call. Not thread-safe.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = 40}));
//   MESHIFT_ASSIGN_OR_RETURN(auto runner, LocalRunner::Create(world.get(), mesh));
//   MESHIFT_ASSIGN_OR_RETURN(LocalRun run, runner->Run(plan, sources, targets));
//   run.steps[0].bytes_sent;            // by the rank that sends most, counted from its calls
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
    int64_t bytes_sent = 0;                // by the rank that sends most
    int64_t bytes_total = 0;               // by all ranks
    int64_t calls = 0;                     // collective calls of the rank with most calls
    int64_t ns = -1;                       // on the slowest rank; -1: not timed
    std::vector<int64_t> rank_bytes_sent;  // by position in the runner's mesh
  };
  std::vector<StepRun> steps;
};

class LocalRunner {
 public:
  // `world` must outlive the runner. Each new plan is made once, not once per rank. With
  // options.expert.verify_plans the first rank alone verifies a given plan. INVALID_ARGUMENT: a
  // rank of the mesh is not in the world. FAILED_PRECONDITION: the world has control channels and
  // options.agreement is not kOff. Calls would then wait for their peers, but one thread makes all
  // calls. Other errors are those of Redistributor::Create.
  static absl::StatusOr<std::unique_ptr<LocalRunner>> Create(
      LocalWorld* world, const DeviceMesh& mesh, const RedistributorOptions& options = {});

  // Runs `plan` and waits. The plan's meshes may only have ranks of the runner's mesh. `sources`
  // and `targets`: row-major memory of the local tensors, by position in the mesh of the source,
  // and of the target (DeviceMesh::PositionOf); null if a tensor has no elements. `consume_source`:
  // as in a Redistribution. INVALID_ARGUMENT: the wrong number of addresses, or a rank that is not
  // in the runner's mesh. After that, or if the first rank refuses its arguments, nothing is done.
  // After any other error the runner cannot be used again. All other errors are those of the
  // redistributors and their handles.
  absl::StatusOr<LocalRun> Run(const Plan& plan, absl::Span<void* const> sources,
                               absl::Span<void* const> targets, bool consume_source = false);
  // Makes the plan of `from` and `to`, and runs it as above.
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
