// Redistribute(): turns a tensor from one sharding into another, on an engine.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}, {"tp", 1}}));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine));
//   MESHIFT_ASSIGN_OR_RETURN(
//       RunHandle run, redistribute({.from = from, .to = to, .source = in, .target = out}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait());
//
// All ranks of the mesh make the same calls in the same order. Calls only put work on a stream, so
// one thread may drive many ranks. The first call for a pair of shardings plans, lowers and splits
// groups; the next ones find all that.
//
// Tensors may have any strides, a source also zero ones; elements of a target must not overlap each
// other. Copies read and write them where they are; what needs contiguous memory goes through the
// workspace, which then is larger than the plan says (WorkspaceBytes). Of f4e2m1, neighbours in the
// last dim share a byte, so its stride is 1 and the others are even.
//
// Source and target may be one buffer: begin at one address, whatever their sizes and strides. That
// is always right, because a plan of several steps reads the source in the first and writes the
// target in the last; an all_reduce of contiguous tensors is then made in place, and any other
// single step works on a copy, in the workspace, of the smaller of the two. Any other overlap is
// refused.
//
// Errors: one about the arguments of a call changes nothing. An error of the engine or a group is
// for good: it ends the groups, so that no peer waits for this rank, and every later call returns
// it. The target's contents are then unspecified.
#ifndef MESHIFT_COMM_REDISTRIBUTOR_H_
#define MESHIFT_COMM_REDISTRIBUTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/engine.h"
#include "comm/executor.h"
#include "comm/group_cache.h"
#include "comm/tensor_view.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "placement/dtype.h"
#include "placement/sharding.h"
#include "planner/capabilities.h"
#include "planner/plan.h"
#include "planner/planner.h"

namespace meshift {

struct RedistributorOptions {
  // Of planning (planner/planner.h); equal on all ranks.
  Reproducibility reproducibility = Reproducibility::kReplicas;
  Topology topology = Topology::Flat();
  PlannerKind planner = PlannerKind::kBest;
  EngineCapabilities capabilities = EngineCapabilities::Local();

  bool verify_plans = true;  // that the caller brings, before they run
  bool time_steps = false;
  int64_t max_cached_plans = 1024;  // of each kind: made here, and brought
};

// Scratch memory of the caller, aligned to 16 bytes. None: the redistributor keeps its own, which
// grows with the plans.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct Redistribution {
  const Sharding& from;
  const Sharding& to;
  TensorView source;  // this rank's local tensors
  TensorView target;
  Workspace workspace = {};
  // The source is given up: once it was read, its memory takes values and packed pieces on the way,
  // as far as they fit, and the call needs so much less workspace. Its contents are then
  // unspecified. Without effect on a source that is not contiguous or not aligned to 16 bytes.
  bool consume_source = false;
  // In which partial values are reduced (PlannerOptions). Equal on all ranks.
  std::optional<DType> reduce_dtype = std::nullopt;
};

struct RedistributorStats {
  int64_t calls = 0;
  int64_t plans_made = 0;     // planned, or verified and lowered, because they were not cached
  int64_t plans_reused = 0;   // found
  int64_t plans_cached = 0;   // now
  int64_t programs_made = 0;  // lowered for other layouts than row-major
  GroupCacheStats groups;
};

class Redistributor;

// Work that was put on the stream. Copies mean the same work.
class RunHandle {
 public:
  RunHandle() = default;  // nothing to wait for
  // Waits for this work, what was put there before it and what was put there behind it; returns the
  // redistributor's first error. May be called again.
  absl::Status Wait() const;

 private:
  friend class Redistributor;
  struct Rep;
  explicit RunHandle(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

// Movable. For one thread at a time, its handles included; Abort() may come from any thread.
class Redistributor {
 public:
  Redistributor(Redistributor&&) = default;
  Redistributor& operator=(Redistributor&&) = default;

  // Collective over the mesh's ranks, which are ranks of the engine's world. A rank that is not in
  // the mesh may have one too: it holds nothing, and all calls do nothing. `engine` must outlive
  // the redistributor and its handles.
  static absl::StatusOr<Redistributor> Create(const DeviceMesh& mesh, Engine* engine,
                                              const RedistributorOptions& options = {});

  // Puts the redistribution on the stream. `source` is only read, unless it is consumed or one
  // buffer with `target`; neither overlaps the workspace; all stay untouched until the work is
  // done. INVALID_ARGUMENT, UNIMPLEMENTED: as MakePlan; or a view that is not what the sharding
  // says.
  absl::StatusOr<RunHandle> operator()(const Redistribution& what);
  // Runs a plan that was made elsewhere, once it is verified; an error names the rule.
  absl::StatusOr<RunHandle> Run(const Plan& plan, const TensorView& source,
                                const TensorView& target, const Workspace& workspace = {},
                                bool consume_source = false);

  // Does all that a first call does, but run: plans, lowers, makes groups and the workspace.
  // Collective, as the calls are. The plan says how much workspace it needs.
  absl::StatusOr<Plan> Prepare(const Sharding& from, const Sharding& to,
                               std::optional<DType> reduce_dtype = std::nullopt);
  absl::Status Prepare(absl::Span<const Plan> plans);
  // How much workspace a call with these views needs on this rank, which may be more than the plan
  // says (strides, one buffer) or less (a consumed source). Their memory may be null, which is
  // taken to be aligned and apart. Not collective; makes nothing.
  absl::StatusOr<int64_t> WorkspaceBytes(const Plan& plan, const TensorView& source,
                                         const TensorView& target,
                                         bool consume_source = false) const;

  // Ends all work, also that of other ranks, with ABORTED; so do all later calls, unless there was
  // an error before. May be called twice.
  void Abort();

  RedistributorStats stats() const;
  // Of the last call on this rank: bytes sent per step, and times where time_steps is set.
  const RunRecord& last_run() const;
  const DeviceMesh& mesh() const;

 private:
  using Rep = RunHandle::Rep;
  explicit Redistributor(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_REDISTRIBUTOR_H_
