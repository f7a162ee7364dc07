// Redistributor: redistributes tensors from one sharding to another, on an engine. It caches the
// plan and the program of each pair of shardings.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}, {"tp", 1}}));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine));
//   MESHIFT_ASSIGN_OR_RETURN(
//       RunHandle run, redistribute({.from = from, .to = to, .source = in, .target = out}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait());
//
// From one mesh to another: make the redistributor for a mesh with the ranks of both (UnionMesh of
// meshift/union_mesh.h); `from` and `to` have their own meshes.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto all, UnionMesh(trainer, server));
//   MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(all, engine));
//
// A redistribution keeps the tensor's global shape. It casts if `to` has another dtype.
//
// Order: all ranks of the redistributor's mesh make the same calls in the same order. A rank
// outside a tensor's mesh makes the call too, with an empty view (TensorView()) or one without
// elements. If several threads make calls, tickets define the order (Redistribution::ticket). Calls
// only enqueue work on streams, so one thread may drive many ranks of a LocalWorld without control
// channels. The first call for a pair of shardings plans, lowers and splits groups; later calls
// reuse the result while it is cached.
//
// Streams: each group has its own stream, so redistributions over different groups may overlap.
// Two calls have a guaranteed order only on request: a call that reads the target of another one
// must name it in `after_run`, or be made after its Wait(). The host waits for the device only in
// Wait() and when the redistributor is destroyed (but not for work on NcclLent::stream), and on
// NCCL while the device's queue is full. It waits for peers also in the agreement of calls, and on
// NCCL while groups are made, in the first call of a kind and size class, and in the first messages
// between two ranks.
//
// Several redistributors of one engine: all ranks make them in the same order. If communicators are
// nearly free (local, MPI), calls of different redistributors need no common order. On NCCL all
// ranks make all calls of all redistributors in one order, which NCCL requires; tickets order only
// the calls of one redistributor.
//
// Agreement: if the engine has a control channel, ranks compare the plans that they run in each
// call. Calls are numbered from 0 in the order that they are made: each call that runs, each
// Prepare of two shardings or of a list, each plan of a Prepare of plans, and each
// MakeSymmetricPool. A call that is refused for its arguments gets no number. Ranks that disagree
// get FAILED_PRECONDITION, which names the plans: at once in calls that wait for their peers
// (RedistributorOptions::agreement), in other calls only once the engine reports an error or times
// out. In those other calls, a difference that the engine does not notice stays undetected.
//
// Strides: tensors may have any strides, a source also zero ones; elements of a target must not
// overlap each other. Copies access tensors in place. Steps that need contiguous memory use the
// workspace, which is then larger than the plan says (WorkspaceBytes). In f4e2m1, neighbours in the
// last dim share a byte, so its stride must be 1 and the others even.
//
// Source and target may share one buffer if they begin at the same address, with any sizes and
// strides. A plan of several steps reads the source in the first and writes the target in the last.
// An all_reduce of contiguous tensors is made in place; any other single step uses a copy of the
// smaller of the two, in the workspace. Any other overlap is refused. Overlaps are those of byte
// ranges: two strided tensors that interleave overlap.
//
// Errors: an error about a call's arguments, or of planning, has no effect, except that the call's
// ticket is used up if its turn had come. An error of the engine or a group is permanent, and so
// are a missing ticket, a missing peer and a disagreement of the ranks: it ends the groups, is
// reported to the peers over the control channel, so that none waits for this rank, and is returned
// by every later call. The target's contents are then unspecified.
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

// Options and counters of a redistributor:
//
//   Redistributor::Create(mesh, engine, {.planning = {.topology = h100},
//                                        .agreement = Agreement::kAlways});

// Which calls wait until all peers have announced their plan.
enum class Agreement : uint8_t { kOff, kFirstCalls, kAlways };

// Whether each group has its own stream, or all share one, as in a framework with a single
// communication stream: then a call waits for all earlier ones. For comparisons; bits are the same.
enum class StreamMode : uint8_t { kPerGroup, kSingleStream };

// Options that few programs set.
struct RedistributorExpertOptions {
  // The engine's capabilities, an input of planning. None: Engine::Capabilities().
  std::optional<EngineCapabilities> capabilities = std::nullopt;
  // Whether plans passed by the caller are verified (meshift/verifier.h) before they run.
  bool verify_plans = true;
  bool time_steps = false;  // whether last_run() measures the time of each step
  // The approximate limit, in bytes, of each of four caches: plans; paths (PlannerCacheLimits);
  // programs of own plans; programs of the caller's plans and of those that only lists have. The
  // least recently used entry is evicted first. An entry above the limit is not cached, so each
  // call makes it again. Programs of other layouts (64 per plan), and plans and programs of lists
  // (64), are limited in number only.
  int64_t max_cached_bytes = int64_t{64} << 20;
  int64_t agreement_calls = 16;  // kFirstCalls: calls with smaller numbers wait; equal on all ranks
  StreamMode streams = StreamMode::kPerGroup;  // this rank's; ranks may differ
  // Lists of tensors: collectives that send at most this many bytes each are merged into fewer
  // collectives (comm/program/coalesce.h). Equal on all ranks. None: Engine::CoalesceBytes(), or
  // the bytes that the topology's fastest links send in a collective's start-up time. 0: only
  // collectives that send nothing are merged.
  std::optional<int64_t> coalesce_bytes = std::nullopt;
};

struct RedistributorOptions {
  // Options of planning; equal on all ranks. Two fields are ignored: `planning.engine` (see
  // expert.capabilities) and `planning.groups.root` (the root is the redistributor's mesh).
  PlannerOptions planning = {};
  // Which calls wait for their peers; equal on all ranks.
  Agreement agreement = Agreement::kFirstCalls;
  // The time-out of the agreement and of a missing ticket. None: Engine::timeouts(), with the setup
  // time-out for the agreement of the first call.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  // The cache that makes the plans. Several redistributors of a process may share one. It must be
  // made with PlanningOptions(mesh, engine, options). None: the redistributor's own.
  std::shared_ptr<PlannerCache> plans = nullptr;

  RedistributorExpertOptions expert = {};
};

// The planner options that a redistributor of this mesh and these options uses; for
// `options.plans`.
PlannerOptions PlanningOptions(const DeviceMesh& mesh, const Engine& engine,
                               const RedistributorOptions& options);

struct RedistributorStats {
  int64_t calls = 0;
  int64_t plans_made = 0;     // not in its cache: planned or verified if necessary, and lowered
  int64_t plans_reused = 0;   // found in the cache
  int64_t plans_cached = 0;   // in the cache now
  int64_t programs_made = 0;  // lowered for other layouts than row-major, or merged for lists
  GroupCacheStats groups;
  // Calls that named a symmetric pool: the number that used it, and why the others did not.
  SymmetricCounts symmetric;
};

// One redistribution: the argument of a call.
//
//   redistribute({.from = from, .to = to, .source = in, .target = out, .after = &compute_stream})

// Scratch memory of the caller, aligned to 16 bytes; must not be used until the work is done. None:
// the redistributor's own, which grows with the plans.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct Redistribution {
  Sharding from;
  Sharding to;
  TensorView source;  // this rank's local tensors; empty if it is not in the tensor's mesh
  TensorView target;
  Workspace workspace = {};
  // Donates the source: once it is read, its memory holds intermediate values and packed pieces, if
  // they fit, which saves workspace. Its contents are then unspecified. No effect if the source is
  // not contiguous, not aligned to 16 bytes, or in one buffer with the target.
  bool consume_source = false;
  // PlannerOptions::reduce_dtype of this call. Equal on all ranks.
  std::optional<DType> reduce_dtype = std::nullopt;

  // Dependencies: the source is not read and the target is not written before all work now on the
  // stream `after`, of the same engine, and the run `after_run` are done. Null and empty: none.
  Stream* after = nullptr;
  RunHandle after_run = {};
  // The position of this call in the order of all calls of the redistributor, if several threads
  // make them: 0, 1, 2, ..., equal on all ranks. Either all calls have a ticket or none. A call
  // waits for those before it. A refused call uses up its ticket if its turn had come.
  std::optional<int64_t> ticket = std::nullopt;

  // The tensors' places in symmetric memory. The call then needs no packing and no messages, if its
  // plan, the group and the engine allow that; otherwise it runs as usual
  // (docs/symmetric_memory.md). Equal on all ranks, also on those with an empty part. Null: not
  // used.
  const SymmetricUse* symmetric = nullptr;
};

// Options to run a given plan; as the fields of Redistribution.
struct PlanRunOptions {
  Workspace workspace = {};
  bool consume_source = false;
  Stream* after = nullptr;
  RunHandle after_run = {};
  std::optional<int64_t> ticket = std::nullopt;
};

// A rank's row-major part of a tensor with its sharding, as DTensor is for torch.Tensor. Owns its
// memory, which comes from the engine and must not outlive it. Movable.
class ShardedTensor {
 public:
  const Sharding& sharding() const { return sharding_; }
  const TensorView& view() const { return view_; }
  const Shape& shape() const { return view_.shape; }  // of the part
  void* data() const { return view_.data; }           // null if it has no element
  int64_t size_bytes() const { return view_.NumBytes(); }

 private:
  friend class Redistributor;
  ShardedTensor(Sharding sharding, TensorView view, std::unique_ptr<Buffer> memory)
      : sharding_(std::move(sharding)), view_(std::move(view)), memory_(std::move(memory)) {}

  Sharding sharding_;
  TensorView view_;
  std::unique_ptr<Buffer> memory_;
};

// Movable. Safe for concurrent use, except for moves and last_run(); calls of several threads need
// tickets.
class Redistributor {
 public:
  Redistributor(Redistributor&&) = default;
  Redistributor& operator=(Redistributor&&) = default;

  // Collective over the mesh's ranks, which are ranks of the engine's world. A rank outside the
  // mesh may make one too, and must on engines whose splits involve all ranks (NCCL): its calls do
  // nothing, but Prepare still returns its plan. `engine` must outlive the redistributor and its
  // handles. INVALID_ARGUMENT: an invalid option, or a rank of the mesh is not in the engine's
  // world. Otherwise errors of the engine and its control channel.
  static absl::StatusOr<Redistributor> Create(const DeviceMesh& mesh, Engine* engine,
                                              const RedistributorOptions& options = {});

  // Enqueues the redistribution on streams. `source` is only read, unless it is consumed or shares
  // a buffer with `target`. Neither may overlap the workspace. All must not be used until the work
  // is done. INVALID_ARGUMENT, UNIMPLEMENTED, FAILED_PRECONDITION, RESOURCE_EXHAUSTED: as MakePlan.
  // INVALID_ARGUMENT also: a rank of `from` or `to` is not in mesh(); a view does not match its
  // sharding; or another argument is invalid. FAILED_PRECONDITION also: the ranks disagree.
  // DEADLINE_EXCEEDED: a ticket or a peer is missing. Otherwise errors of the engine.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> operator()(const Redistribution& what);
  // Several tensors at once, merged into few collectives if the promise and their sizes allow it.
  // The list has one handle, one ticket and one workspace (WorkspaceBytes); its elements have none.
  // It waits for the dependencies of all elements. No other element may use the target, or a
  // consumed source, of an element. If one is refused, nothing is done.
  //
  // If two or more go onto another mesh, the first call plans all of them together, as MakePlans
  // does: the busiest link of the list is less busy, and results keep their bits. If that takes
  // more work than planning.max_work, besides the plans that the tensors have alone, those run; so
  // they do in other lists.
  absl::StatusOr<RunHandle> operator()(absl::Span<const Redistribution> list,
                                       const Workspace& workspace = {},
                                       std::optional<int64_t> ticket = std::nullopt);
  // Runs a given plan after verifying it (see verify_plans). INVALID_ARGUMENT names the broken
  // rule. FAILED_PRECONDITION: a batch-invariant plan uses reductions of the engine, and this
  // engine has neither the plan's native_invariance nor kReduceScatter. Otherwise errors as those
  // of a call.
  absl::StatusOr<RunHandle> Run(const Plan& plan, const TensorView& source,
                                const TensorView& target, const PlanRunOptions& options = {});

  // Does the work of a first call with row-major tensors in two buffers, without running it: plans,
  // lowers, makes the groups and the redistributor's own workspace. Collective, as calls are. Has
  // no ticket: do not use it while calls with tickets are made. The plan has the size of the
  // workspace.
  absl::StatusOr<Plan> Prepare(const Sharding& from, const Sharding& to,
                               std::optional<DType> reduce_dtype = std::nullopt);
  absl::Status Prepare(absl::Span<const Plan> plans);
  // Prepares a call with this list, with its merged collectives and its workspace. Only the layouts
  // of the views matter; data may be null, which counts as aligned and not overlapping.
  // Dependencies (`after`, `after_run`) are ignored.
  absl::Status Prepare(absl::Span<const Redistribution> list);
  // The workspace in bytes that a call with these views needs on this rank: more than the plan says
  // for strides or one buffer, less for a consumed source. The views' data may be null, which
  // counts as aligned and not overlapping. 0 on a rank outside mesh(). Not collective; makes no
  // groups.
  absl::StatusOr<int64_t> WorkspaceBytes(const Plan& plan, const TensorView& source,
                                         const TensorView& target,
                                         bool consume_source = false) const;
  // Plans, lowers and caches the programs of the call, so stats() change. Like stats(), waits while
  // another thread issues or prepares a call: up to the time-out if that waits for its peers.
  absl::StatusOr<int64_t> WorkspaceBytes(absl::Span<const Redistribution> list) const;

  // A pool of symmetric memory for calls over the groups of these mesh dims (ascending), for use in
  // Redistribution::symmetric. Collective and without a ticket, as Prepare is. The pool may outlive
  // this redistributor; destroy it before the engine, on all ranks. INVALID_ARGUMENT: the mesh dims
  // are out of range, out of order, or of groups of one rank; or an option is invalid.
  // UNIMPLEMENTED, on all members: the engine has no such memory for these groups; the message says
  // why. RESOURCE_EXHAUSTED: out of memory. FAILED_PRECONDITION: this rank is outside the mesh and
  // so has no group, or the ranks disagree.
  absl::StatusOr<std::unique_ptr<SymmetricPool>> MakeSymmetricPool(
      absl::Span<const int> mesh_dims, const SymmetricPoolOptions& options = {});

  // Ends all work with ABORTED, on all ranks if the engine has a control channel; later calls
  // return ABORTED too, or an earlier error. May be called repeatedly and from any thread.
  void Abort();

  // Allocates this rank's part of a tensor of this sharding; contents are unspecified. It has no
  // elements if the rank is outside the sharding's mesh. RESOURCE_EXHAUSTED: out of memory.
  absl::StatusOr<ShardedTensor> Empty(const Sharding& sharding) const;
  // The row-major view of this rank's part at `data`.
  TensorView View(const Sharding& sharding, void* data) const;
  TensorView View(const Sharding& sharding, const void* data) const;  // read-only

  RedistributorStats stats() const;
  // The record of the last call on this rank: bytes sent per step, and times if time_steps is set.
  // For a list: the steps of its programs in sequence. Valid until the next call.
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
