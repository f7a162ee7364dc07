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

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/run_handle.h"
#include "meshift/sharding.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class PlannerCache;  // meshift/planner_cache.h

// How a redistributor plans and runs, and what it counts.
//
//   Redistributor::Create(mesh, engine, {.planning = {.topology = h100},
//                                        .agreement = Agreement::kAlways});

// Which calls wait until all peers have told which plan they run.
enum class Agreement : uint8_t { kOff, kFirstCalls, kAlways };

// Whether each group has a stream of its own, or all share one, as where a framework has one stream
// for communication: then a call waits for all before it. To compare with; bits are the same.
enum class StreamMode : uint8_t { kPerGroup, kSingleStream };

// What few programs set.
struct RedistributorExpertOptions {
  // None: what the engine says of itself (Engine::Capabilities), so that plans name it.
  std::optional<EngineCapabilities> capabilities = std::nullopt;
  // Whether plans that the caller brings are proven (meshift/verifier.h) before they run.
  bool verify_plans = true;
  bool time_steps = false;  // whether last_run() has the time of each step
  // Bytes, about, that each of three caches may hold: of plans; of programs for plans that are
  // made; of programs for plans that the caller brings. What was not used for the longest time
  // goes first.
  int64_t max_cached_bytes = int64_t{64} << 20;
  int64_t agreement_calls = 16;  // kFirstCalls: those with numbers below it; equal on all ranks
  StreamMode streams = StreamMode::kPerGroup;  // this rank's; ranks may differ
  // A list of tensors: those whose collectives send at most so many bytes each are merged into
  // few collectives (comm/program/coalesce.h). Equal on all ranks. None: as many as a collective
  // carries while it starts, which the engine says, or the topology's fastest links. 0: only what
  // sends nothing.
  std::optional<int64_t> coalesce_bytes = std::nullopt;
};

struct RedistributorOptions {
  // How plans are made; equal on all ranks. `planning.engine` is not looked at (expert.capabilities
  // is), nor `planning.groups.root`, which is the redistributor's mesh.
  PlannerOptions planning = {};
  // Which calls wait for their peers' word; equal on all ranks.
  Agreement agreement = Agreement::kFirstCalls;
  // For peers that are to agree, and for a ticket that is missing. None: the engine's
  // (Engine::timeouts), where the first call of all is of the phase of setup.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  // Where plans are made and remembered; several redistributors may share it, so that each plan is
  // made once in a process. Of PlanningOptions(mesh, engine, options). None: the redistributor's
  // own.
  std::shared_ptr<PlannerCache> plans = nullptr;

  RedistributorExpertOptions expert = {};
};

// How a redistributor of this mesh and these options plans: `options.plans` is made of this.
PlannerOptions PlanningOptions(const DeviceMesh& mesh, const Engine& engine,
                               const RedistributorOptions& options);

struct RedistributorStats {
  int64_t calls = 0;
  int64_t plans_made = 0;     // planned or verified, and lowered, because they were not cached
  int64_t plans_reused = 0;   // found
  int64_t plans_cached = 0;   // now
  int64_t programs_made = 0;  // lowered for other layouts than row-major
  GroupCacheStats groups;
  // Calls that named a symmetric pool: how many used it, and why others did not. The rest of
  // `calls` named none.
  SymmetricCounts symmetric;
};

// One redistribution: what a Redistributor is asked to do.
//
//   redistribute({.from = from, .to = to, .source = in, .target = out, .after = &compute_stream})

// Scratch memory of the caller, aligned to 16 bytes; untouched until the work is done. None: the
// redistributor keeps its own, which grows with the plans.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct Redistribution {
  Sharding from;
  Sharding to;
  TensorView source;  // this rank's local tensors; none where it is not in the tensor's mesh
  TensorView target;
  Workspace workspace = {};
  // The source is given up: once it was read, its memory takes values and packed pieces on the way,
  // as far as they fit, and the call needs so much less workspace. Its contents are then
  // unspecified. Without effect on a source that is not contiguous or not aligned to 16 bytes.
  bool consume_source = false;
  // In which partial values are reduced (PlannerOptions). Equal on all ranks.
  std::optional<DType> reduce_dtype = std::nullopt;

  // What must be done before the source is read or the target is written: all work that is on this
  // stream of the same engine now, and that earlier run. Null and empty: nothing, memory is ready.
  Stream* after = nullptr;
  RunHandle after_run = {};
  // The place of this call in the order of all calls, where several threads make them: 0, 1, 2, ...
  // of the redistributor, in an order that is equal on all ranks. All calls have one, or none has.
  // A call waits for those before it; one that is refused has used its ticket up.
  std::optional<int64_t> ticket = std::nullopt;

  // Where the tensors lie in symmetric memory: the call then goes without packing and messages if
  // its plan, the group and the engine allow it, else as always (docs/symmetric_memory.md). Equal
  // on all ranks, also on those whose part is empty. Null: nothing is looked at.
  const SymmetricUse* symmetric = nullptr;
};

// What a plan that was made elsewhere is run with: as the fields of a Redistribution say.
struct PlanRunOptions {
  Workspace workspace = {};
  bool consume_source = false;
  Stream* after = nullptr;
  RunHandle after_run = {};
  std::optional<int64_t> ticket = std::nullopt;
};

// A rank's part of a tensor, row-major, with the sharding that says which part: as DTensor is to a
// torch.Tensor. Owns its memory, which is the engine's and must not outlive it. Movable.
class ShardedTensor {
 public:
  const Sharding& sharding() const { return sharding_; }
  const TensorView& view() const { return view_; }
  const Shape& shape() const { return view_.shape; }  // of the part
  void* data() const { return view_.data; }           // null where there are no elements
  int64_t size_bytes() const { return view_.NumBytes(); }

 private:
  friend class Redistributor;
  ShardedTensor(Sharding sharding, TensorView view, std::unique_ptr<Buffer> memory)
      : sharding_(std::move(sharding)), view_(std::move(view)), memory_(std::move(memory)) {}

  Sharding sharding_;
  TensorView view_;
  std::unique_ptr<Buffer> memory_;
};

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

  // This rank's part of a tensor of this sharding, in memory of its own whose contents are
  // unspecified; without elements where the rank is outside the sharding's mesh.
  // RESOURCE_EXHAUSTED: there is no more memory.
  absl::StatusOr<ShardedTensor> Empty(const Sharding& sharding) const;
  // The row-major view of this rank's part, which begins at `data`.
  TensorView View(const Sharding& sharding, void* data) const;
  TensorView View(const Sharding& sharding, const void* data) const;  // to read

  RedistributorStats stats() const;
  // Of the last call on this rank: bytes sent per step, and times where time_steps is set. Of a
  // list: the steps of its programs, one behind the other.
  const RunRecord& last_run() const;
  const DeviceMesh& mesh() const;
  int64_t rank() const;  // the engine's

 private:
  explicit Redistributor(std::shared_ptr<run_internal::RedistributorImpl> impl)
      : impl_(std::move(impl)) {}
  std::shared_ptr<run_internal::RedistributorImpl> impl_;
};

}  // namespace meshift

#endif  // MESHIFT_REDISTRIBUTOR_H_
