// The implementation of Redistributor, shared with the handles of its runs: caches, communicators,
// streams, the order of its calls, and its first error. Internal to comm/redistribution.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto impl, RedistributorImpl::Create(mesh, engine, options));
//   MESHIFT_ASSIGN_OR_RETURN(RunHandle run, impl->Redistribute({.from = from, .to = to, ...}));
//
// Public functions have the limits and errors of those of Redistributor (meshift/redistributor.h)
// that call them. `issuing_` serialises calls that issue or prepare work. All functions but
// last_run() are safe for concurrent use. After the first failure (Fail), all collective calls
// return its error, except on a thread that may not call the engine (CheckThread).
//
// The functions of a cached call are marked hot. Linkers place such functions together, so that a
// call with cold caches touches fewer pages (//bench:submission_lines measures that).
#ifndef MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_IMPL_H_
#define MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_IMPL_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/lru_cache.h"
#include "base/mutex.h"
#include "comm/executor/executable.h"
#include "comm/executor/group_cache.h"
#include "comm/executor/group_streams.h"
#include "comm/record/call_record.h"
#include "comm/record/call_ring.h"
#include "comm/redistribution/plan_cache.h"
#include "comm/redistribution/ticket_line.h"
#include "comm/redistribution/view_check.h"
#include "comm/symmetric/symmetric_decision.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/run_handle.h"
#include "meshift/status.h"
#include "meshift/symmetric.h"
#include "meshift/tensor_view.h"

namespace meshift::run_internal {

// One issued call. Reused when it has no more handles; its lists keep their memory.
struct Run {
  Run() {
    uses.reserve(4);
    after_streams.reserve(4);
    after_runs.reserve(4);
    ends.reserve(4);
  }

  std::atomic<int> handles = 0;
  Run* next_free = nullptr;
  int64_t call = 0;     // its number among the redistributor's calls
  int64_t number = -1;  // in the record
  // The work is done when the first `num_done` events are reached. The others are kept for reuse.
  DoneEvents done;
  size_t num_done = 0;
  // Whether a handle has found the work done. The next call that uses this run resets it.
  mutable std::atomic<bool> is_done = false;
  std::vector<std::pair<GroupStream*, int64_t>> uses;  // of workspaces
  // Used while the call is issued. `after`: events on `after_streams`, kept for reuse too; `ends`:
  // the streams with the call's last work.
  EventList after;
  std::vector<Stream*> after_streams;
  std::vector<const Run*> after_runs;
  std::vector<Stream*> ends;

  bool IsAfterOthers() const { return !after_streams.empty() || !after_runs.empty(); }
  // The next event of `done`, which the caller records.
  std::shared_ptr<Event>* NextDone() {
    if (num_done == done.events.size()) done.events.emplace_back();
    return &done.events[num_done++];
  }
  absl::Span<const std::shared_ptr<Event>> Done() const { return {done.events.data(), num_done}; }
};

// One tensor of a call.
struct TensorArgs {
  const TensorView& source;
  const TensorView& target;
  bool consume_source = false;
};

// The stream and the run that a call waits for; null if none.
struct After {
  Stream* stream = nullptr;
  const RunHandle* run = nullptr;
};

// Memory that one tensor of a list reads or writes.
struct WrittenRange {
  MemoryRange range;
  int tensor = 0;
  bool is_source = false;
  bool written = false;
};

class RedistributorImpl : public std::enable_shared_from_this<RedistributorImpl> {
 public:
  static absl::StatusOr<std::shared_ptr<RedistributorImpl>> Create(
      const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options);
  RedistributorImpl(const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options);

  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> Redistribute(const Redistribution& what);
  absl::StatusOr<RunHandle> Redistribute(absl::Span<const Redistribution> list,
                                         const Workspace& workspace, std::optional<int64_t> ticket);
  absl::StatusOr<RunHandle> RunPlan(const Plan& plan, const TensorArgs& tensor,
                                    const Workspace& workspace, const After& after,
                                    std::optional<int64_t> ticket);
  absl::StatusOr<Plan> Prepare(const PlanKey& what);
  absl::Status Prepare(absl::Span<const Plan> plans);
  absl::Status Prepare(absl::Span<const Redistribution> list);
  absl::StatusOr<std::unique_ptr<SymmetricPool>> MakeSymmetricPool(
      absl::Span<const int> mesh_dims, const SymmetricPoolOptions& options);
  absl::StatusOr<int64_t> WorkspaceBytes(const Plan& plan, const TensorView& source,
                                         const TensorView& target, bool consume_source) const;
  absl::StatusOr<int64_t> WorkspaceBytes(absl::Span<const Redistribution> list);
  void Abort();
  RedistributorStats stats();
  const RunRecord& last_run() const { return *last_run_; }
  const DeviceMesh& mesh() const { return mesh_; }

  // Called by handles, from any thread.
  absl::Status Wait(const Run& run);
  bool IsDone(const Run& run);
  Engine& engine() const { return *engine_; }
  absl::Status Wait(const Run& run, Stream& stream);
  void GiveBack(Run* run);

 private:
  using Text = std::shared_ptr<const std::string>;

  // Whether this rank is in the mesh.
  bool IsInMesh() const { return groups_ != nullptr; }
  absl::Status Health() const { return failed_ ? Error() : absl::OkStatus(); }
  // The error if this thread may not call the engine. Checked first, since an error of the engine
  // itself would end all calls.
  absl::Status CheckThread() const {
    return callers_ == nullptr ? absl::OkStatus() : callers_->CheckThread();
  }
  absl::Status MayCall() const {
    MESHIFT_RETURN_IF_ERROR(CheckThread());
    return Health();
  }
  absl::Status Error() const;
  // Stores the first error, and aborts all calls. `tell`: sends the error to the peers, and returns
  // the first error; else returns `status`.
  absl::Status Fail(const absl::Status& status, bool tell);
  // As Fail, for an engine's error in a call: asks the peers for a better explanation first, unless
  // the error concerns this rank alone.
  absl::Status FailCall(int64_t call, const absl::Status& status);

  // Runs `call` with issuing_ locked, in the order of tickets. Does nothing if this rank is not in
  // the mesh.
  template <typename Made>
  absl::StatusOr<RunHandle> InTurn(std::optional<int64_t> ticket, const Made& call) {
    MESHIFT_RETURN_IF_ERROR(MayCall());
    if (!IsInMesh()) return RunHandle();
    MutexLock lock(issuing_);
    MESHIFT_RETURN_IF_ERROR(line_.IsOpenTo(ticket) ? Health() : Enter(lock, ticket));
    const int64_t num_runs = num_runs_;
    absl::StatusOr<RunHandle> handle = call();
    line_.Leave(ticket, num_runs_ > num_runs);
    return handle;
  }

  // As TicketLine::Enter; a missing ticket also fails the redistributor.
  absl::Status Enter(MutexLock& lock, std::optional<int64_t> ticket) MESHIFT_REQUIRES(issuing_);
  // The cached call of a plan for the tensor's layouts. `may_be_null`: the tensor need not have
  // memory.
  absl::StatusOr<Call*> CallFor(PlanEntry& plan, const TensorArgs& tensor, bool may_be_null = false)
      MESHIFT_REQUIRES(issuing_) {
    const bool plain = !tensor.consume_source && ArePlain(tensor.source, plan.source, tensor.target,
                                                          plan.target, tensor_device_);
    if (plain) [[likely]]
      return plan.call.get();
    return CallForOther(plan, tensor, may_be_null);
  }
  absl::StatusOr<Call*> CallForOther(PlanEntry& plan, const TensorArgs& tensor, bool may_be_null)
      MESHIFT_REQUIRES(issuing_);
  absl::Status CheckAfter(const RunHandle* run) const {
    return run == nullptr || run->impl_ == nullptr ? absl::OkStatus() : CheckEngineOf(*run);
  }
  absl::Status CheckEngineOf(const RunHandle& run) const;

  // Issues a call of one tensor. Peers compare the fingerprint; `text` describes it in messages.
  // Both are the plan's, unless the call names symmetric memory.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> RunOne(
      PlanEntry& plan, const Fingerprint& fingerprint, const Text& text, const TensorArgs& tensor,
      const Workspace& workspace, const After& after) MESHIFT_REQUIRES(issuing_);
  absl::StatusOr<RunHandle> RunOne(PlanEntry& plan, const TensorArgs& tensor,
                                   const Workspace& workspace, const After& after)
      MESHIFT_REQUIRES(issuing_) {
    return RunOne(plan, plan.call->fingerprint, plan.call->text, tensor, workspace, after);
  }
  // Checks a list, and looks up its call. Fills list_plans_, list_calls_ and list_ranges_, and adds
  // to plans_; changes nothing else.
  absl::StatusOr<std::shared_ptr<Call>> CheckList(absl::Span<const Redistribution> list,
                                                  bool may_be_null) MESHIFT_REQUIRES(issuing_);
  absl::Status CheckPool(const SymmetricUse& use) const;
  absl::StatusOr<RunHandle> RunSymmetric(PlanEntry& plan, const Redistribution& what)
      MESHIFT_REQUIRES(issuing_);
  SymmetricDecision Decide(const PlanEntry& plan, const SymmetricUse& use,
                           const SymmetricBlock& source, const SymmetricBlock& target)
      MESHIFT_REQUIRES(issuing_);
  absl::Status CallSymmetric(const SymmetricUse& use, const SymmetricDecision& decision,
                             const Call& call, Run* run) MESHIFT_REQUIRES(issuing_);
  void CountMiss(const SymmetricUse& use, SymmetricMiss miss) MESHIFT_REQUIRES(issuing_);

  // NewHandle() returns the first handle of a new run. BeginAfter() adds the work that it waits
  // for; if that is refused, nothing has changed.
  ABSL_ATTRIBUTE_HOT RunHandle NewHandle() MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT Run* NewRun() MESHIFT_REQUIRES(issuing_);
  absl::Status BeginAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_) {
    const bool nothing =
        after.stream == nullptr && (after.run == nullptr || after.run->run_ == nullptr);
    return nothing ? absl::OkStatus() : MarkAfter(after, run);
  }
  absl::Status MarkAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_);
  // BeginIssue() takes the next number as TakeNumber does, and makes the call's groups.
  // Then the caller puts its work on streams. EndIssue() gets the status of that: if it is OK, it
  // ends the call's entry in the record; else it fails the redistributor. `run` is null if the call
  // is only prepared.
  struct Issued {
    int64_t number = 0;
    CallSlot* slot = nullptr;
  };
  ABSL_ATTRIBUTE_HOT absl::StatusOr<Issued> BeginIssue(Call& call, const Fingerprint& fingerprint,
                                                       const Text& text, Run* run)
      MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT absl::Status EndIssue(const Issued& issued, absl::Status status, Run* run)
      MESHIFT_REQUIRES(issuing_);
  // Takes the next number and posts the call. If the agreement asks for it, waits until the peers
  // have announced theirs, and compares them.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<int64_t> TakeNumber(const Fingerprint& fingerprint,
                                                        const Text& text)
      MESHIFT_REQUIRES(issuing_);
  // Makes the communicators, streams and executables that the call's programs do not have yet.
  absl::Status Bind(Call& call) MESHIFT_REQUIRES(issuing_);
  absl::Status Bind(ProgramEntry& program) MESHIFT_REQUIRES(issuing_);
  // Makes the groups of a call, and the workspace for callers that give none.
  absl::Status Prepare(Call& call) MESHIFT_REQUIRES(issuing_);
  // The record of the call that is issued now.
  RunRecord* NewRecord(const std::shared_ptr<RunRecord>& record) MESHIFT_REQUIRES(issuing_) {
    if (last_run_ != record) last_run_ = record;
    if (options_.expert.time_steps) record->events.clear();
    return record.get();
  }
  // Puts a program of the call on its streams. Uses the workspace of its first stream if `buffers`
  // has none.
  ABSL_ATTRIBUTE_HOT absl::Status Enqueue(const Call& call, ProgramEntry& program,
                                          ProgramBuffers buffers, Run* run)
      MESHIFT_REQUIRES(issuing_);
  absl::Status EnqueueList(const Call& call, absl::Span<const Redistribution> list,
                           const Workspace& workspace, Run* run) MESHIFT_REQUIRES(issuing_);
  // If steps are timed: records the events of steps up to `last` that do not exist yet, on
  // `stream`.
  absl::Status MarkSteps(size_t last, Stream& stream, RunRecord* record) MESHIFT_REQUIRES(issuing_);
  // Later work on `stream` waits for the work that BeginAfter has added.
  ABSL_ATTRIBUTE_HOT absl::Status WaitBefore(Stream& stream, const Run& run)
      MESHIFT_REQUIRES(issuing_);

  void JoinRecord();
  ABSL_ATTRIBUTE_HOT CallSlot* BeginRecord(Call& call, Run* run) MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT void EndRecord(CallSlot* slot, Run* run) MESHIFT_REQUIRES(issuing_);

  const DeviceMesh mesh_;
  Engine* const engine_;
  CallerProgress* const callers_;  // the engine's
  const RedistributorOptions options_;
  const Device tensor_device_;

  mutable Mutex mutex_;
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;

  std::unique_ptr<GroupCache> groups_;  // null if this rank is not in the mesh

  const std::shared_ptr<CallRecord> record_;
  // Every call reads the next members, so they are adjacent.
  CallSource* recorder_ = nullptr;  // source_ if calls are recorded, else null
  mutable Mutex issuing_;
  TicketLine line_ MESHIFT_GUARDED_BY(issuing_);
  int64_t num_calls_ MESHIFT_GUARDED_BY(issuing_) = 0;  // with Prepare() and pools
  int64_t num_runs_ MESHIFT_GUARDED_BY(issuing_) = 0;
  Run* free_ MESHIFT_GUARDED_BY(issuing_) = nullptr;  // a linked list
  std::atomic<Run*> given_back_ = nullptr;            // a linked list, from any thread
  std::shared_ptr<const RunRecord> last_run_ = std::make_shared<RunRecord>();
  PlanCache plans_ MESHIFT_GUARDED_BY(issuing_);

  std::vector<std::unique_ptr<Run>> runs_ MESHIFT_GUARDED_BY(issuing_);
  // Keeps the texts of the control root's last posts alive.
  std::vector<Text> posted_ MESHIFT_GUARDED_BY(issuing_);
  // Scratch memory for the list that is being issued.
  std::vector<std::shared_ptr<PlanEntry>> list_plans_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<std::shared_ptr<Call>> list_calls_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<WrittenRange> list_ranges_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<TensorBuffers> list_buffers_ MESHIFT_GUARDED_BY(issuing_);
  static constexpr size_t kMaxDecisions = 1024;
  LruCache<SymmetricKey, SymmetricDecision> decisions_ MESHIFT_GUARDED_BY(issuing_){kMaxDecisions};
  SymmetricCounts symmetric_ MESHIFT_GUARDED_BY(issuing_);
  int64_t num_pools_ MESHIFT_GUARDED_BY(issuing_) = 0;

  // Calls FailCall() until Leave(). FailCall() uses root_, and root_'s failures call source_, so
  // source_ leaves before root_ is destroyed, and is destroyed after it.
  std::unique_ptr<CallSource> source_;  // null if this rank is not in the mesh
  // Calls Fail() until it is destroyed.
  std::unique_ptr<ControlRoot> root_;
  // Destroyed after group_streams_: calls source_->Leave() when all work is done, except on a lent
  // stream.
  struct SourceLeaves {
    const std::unique_ptr<CallSource>& source;
    ~SourceLeaves() {
      if (source != nullptr) source->Leave();
    }
  } source_leaves_{source_};
  // Destroyed first, which waits for all work, except on a lent stream.
  GroupStreams group_streams_ MESHIFT_GUARDED_BY(issuing_);
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_IMPL_H_
