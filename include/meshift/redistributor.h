// Redistributor: turns tensors from one sharding into another, on an engine.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}, {"tp", 1}}));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine));
//   MESHIFT_ASSIGN_OR_RETURN(
//       RunHandle run, redistribute({.from = from, .to = to, .source = in, .target = out}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait());
//
// From one mesh to another: make the redistributor for a mesh that has the ranks of both (UnionMesh
// of meshift/union_mesh.h); `from` and `to` name their own meshes.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto all, UnionMesh(trainer, server));
//   MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(all, engine));
//
// All ranks of the redistributor's mesh make the same calls in the same order, also those that are
// in no mesh of a call: of a tensor whose mesh it is not in, a rank gives no view (TensorView()),
// or one without elements. Where several threads make calls, tickets say which
// comes when (Redistribution::ticket). Calls only put work on streams, so one thread may drive many
// ranks. The first call for a pair of shardings plans, lowers and splits groups; the next ones find
// all that.
//
// Each group has a stream of its own, so that redistributions over different groups overlap, and
// nothing orders two calls but what they say: a call that reads what another one writes comes
// `after_run`, or behind its Wait(). On the device nothing waits for the host, nor the host for
// anything but in Wait() and in the agreement of calls.
//
// Several redistributors of one engine: all ranks make them in one order. Where the engine splits
// freely (local, MPI), nothing orders the calls of one among those of another. On NCCL all ranks
// make all calls of all redistributors in one order, as NCCL itself wants it; tickets only order
// the calls of one.
//
// Agreement: ranks tell each other which plan each runs in which call, where the engine has a
// control channel. Calls are numbered, from 0, in the order that they are made: each call that
// runs, each Prepare of two shardings or of a list, each plan of a Prepare of plans. What is
// refused (INVALID_ARGUMENT, UNIMPLEMENTED, a limit on memory) has no number. Ranks that disagree
// get FAILED_PRECONDITION, which names the plans: in the calls that wait for their peers' word at
// once, in others when the engine finds its own error, or times out.
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
// for good: it ends the groups and tells the peers, so that none waits for this rank, and every
// later call returns it. The target's contents are then unspecified.
#ifndef MESHIFT_REDISTRIBUTOR_H_
#define MESHIFT_REDISTRIBUTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/engine.h"
#include "comm/executor/executor.h"
#include "comm/redistribution/redistribution.h"
#include "comm/redistribution/redistributor_options.h"
#include "meshift/run_handle.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/plan.h"

namespace meshift {

// Movable. Safe for concurrent use, but moves and last_run(); calls of several threads have
// tickets.
class Redistributor {
 public:
  Redistributor(Redistributor&&) = default;
  Redistributor& operator=(Redistributor&&) = default;

  // Collective over the mesh's ranks, which are ranks of the engine's world. A rank that is not in
  // the mesh may have one too, and must on engines whose splits concern all ranks (NCCL): it holds
  // nothing, and all calls do nothing, but that a Prepare still returns its plan. `engine` must
  // outlive the redistributor and its handles. INVALID_ARGUMENT: an option, or a rank of the mesh
  // that is not in the engine's world; else errors of the engine and its control channel.
  static absl::StatusOr<Redistributor> Create(const DeviceMesh& mesh, Engine* engine,
                                              const RedistributorOptions& options = {});

  // Puts the redistribution on streams. `source` is only read, unless it is consumed or one buffer
  // with `target`; neither overlaps the workspace; all stay untouched until the work is done.
  // INVALID_ARGUMENT, UNIMPLEMENTED, RESOURCE_EXHAUSTED: as MakePlan; a rank of `from` or `to` that
  // is not in mesh(); or a view that is not what the sharding says. DEADLINE_EXCEEDED: a ticket or
  // a peer is missing.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> operator()(const Redistribution& what);
  // Several tensors at once, coalesced into few collectives where the promise and their sizes allow
  // it: one handle, one ticket, one workspace (WorkspaceBytes), none of their own. Comes after all
  // that any of them comes after. What one tensor writes no other may use. Where one is refused,
  // nothing is done.
  absl::StatusOr<RunHandle> operator()(absl::Span<const Redistribution> list,
                                       const Workspace& workspace = {},
                                       std::optional<int64_t> ticket = std::nullopt);
  // Runs a plan that was made elsewhere, once it is verified; an error names the rule.
  absl::StatusOr<RunHandle> Run(const Plan& plan, const TensorView& source,
                                const TensorView& target, const PlanRunOptions& options = {});

  // Does all that a first call does, but run: plans, lowers, makes groups and the workspace.
  // Collective, as the calls are; without a ticket, so not while calls with tickets are made. The
  // plan says how much workspace it needs.
  absl::StatusOr<Plan> Prepare(const Sharding& from, const Sharding& to,
                               std::optional<DType> reduce_dtype = std::nullopt);
  absl::Status Prepare(absl::Span<const Plan> plans);
  // As for a call with this list: also what is coalesced, and its workspace. Of the views only the
  // layouts count; memory may be null, which is taken to be aligned and apart. What the tensors are
  // to come after is not waited for.
  absl::Status Prepare(absl::Span<const Redistribution> list);
  // How much workspace a call with these views needs on this rank, which may be more than the plan
  // says (strides, one buffer) or less (a consumed source). Their memory may be null, which is
  // taken to be aligned and apart. Not collective; makes no groups.
  absl::StatusOr<int64_t> WorkspaceBytes(const Plan& plan, const TensorView& source,
                                         const TensorView& target,
                                         bool consume_source = false) const;
  // Plans, lowers and remembers what the call will run, so stats() change. Waits, as stats() does,
  // while another thread's call is issued: for the whole time-out, where that awaits its peers.
  absl::StatusOr<int64_t> WorkspaceBytes(absl::Span<const Redistribution> list) const;

  // A pool of symmetric memory for calls over the groups of these mesh dims (ascending), by which
  // Redistribution::symmetric may name it. Collective, as Prepare is. The pool keeps what it needs
  // of this redistributor; destroy it before the engine, on all ranks. UNIMPLEMENTED says why the
  // engine has no such memory for these groups; all their members learn that. FAILED_PRECONDITION:
  // a rank outside the mesh, which has no group and makes no such call.
  absl::StatusOr<std::unique_ptr<SymmetricPool>> MakeSymmetricPool(
      absl::Span<const int> mesh_dims, const SymmetricPoolOptions& options = {});

  // Ends all work, also that of other ranks, with ABORTED; so do all later calls, unless there was
  // an error before. May be called twice, and from any thread.
  void Abort();

  RedistributorStats stats() const;
  // Of the last call on this rank: bytes sent per step, and times where time_steps is set. Of a
  // list: the steps of its programs, one behind the other.
  const RunRecord& last_run() const;
  const DeviceMesh& mesh() const;

 private:
  explicit Redistributor(std::shared_ptr<run_internal::RunCore> core) : core_(std::move(core)) {}
  std::shared_ptr<run_internal::RunCore> core_;
};

}  // namespace meshift

#endif  // MESHIFT_REDISTRIBUTOR_H_
