// What a redistributor and the handles of its work share: caches, groups, streams, the order of its
// calls, and its first error. Internal.
//
// What a cached call goes through is marked hot, here and in what it calls: linkers put such
// functions together, and where caches are cold, fewer pages are to be found
// (//bench:submission_lines).
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
#include "comm/executor/lanes.h"
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

// One call that was made. Used again once it has no handles; its lists keep their memory.
struct Run {
  Run() {
    uses.reserve(4);
    after_streams.reserve(4);
    after_runs.reserve(4);
    ends.reserve(4);
  }

  std::atomic<int> handles = 0;
  Run* next_free = nullptr;
  int64_t call = 0;
  int64_t number = -1;  // in the record
  // The work is done when these are reached; those behind the first `num_done` are kept for later.
  EventList done;
  size_t num_done = 0;
  std::vector<std::pair<Lane*, int64_t>> uses;  // of workspaces
  // While it is issued: what it comes after, and streams that it has work on at the end.
  EventList after;  // kept likewise
  std::vector<Stream*> after_streams;
  std::vector<const Run*> after_runs;
  std::vector<Stream*> ends;

  bool IsAfterOthers() const { return !after_streams.empty() || !after_runs.empty(); }
  // One more in `done`, to be recorded.
  std::shared_ptr<Event>* NextDone() {
    if (num_done == done.size()) done.emplace_back();
    return &done[num_done++];
  }
};

// One tensor of a call.
struct TensorArgs {
  const TensorView& source;
  const TensorView& target;
  bool consume_source = false;
};

// What a call comes after.
struct After {
  Stream* stream = nullptr;
  const RunHandle* run = nullptr;
};

// Memory that one tensor of a list uses.
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

  // Of handles, from any thread.
  absl::Status Wait(const Run& run);
  bool IsDone(const Run& run);
  Engine& engine() const { return *engine_; }
  absl::Status Wait(const Run& run, Stream& stream);
  void GiveBack(Run* run);

 private:
  using Text = std::shared_ptr<const std::string>;

  // Whether this rank is in the mesh.
  bool Takes() const { return groups_ != nullptr; }
  absl::Status Health() const { return failed_ ? Error() : absl::OkStatus(); }
  // Why this thread may not call the engine: what would end all if the engine said it.
  absl::Status CheckThread() const {
    return callers_ == nullptr ? absl::OkStatus() : callers_->CheckThread();
  }
  absl::Status MayCall() const {
    MESHIFT_RETURN_IF_ERROR(CheckThread());
    return Health();
  }
  absl::Status Error() const;
  // The first error ends everything. Returns it. `tell`: the peers.
  absl::Status Fail(const absl::Status& status, bool tell);
  // As Fail, for what an engine said of a call: asks the peers what they know of it.
  absl::Status FailCall(int64_t call, const absl::Status& status);

  // Makes `call` with the lock of issuing, in the order of tickets; not where this rank is not in
  // the mesh.
  template <typename Made>
  absl::StatusOr<RunHandle> InTurn(std::optional<int64_t> ticket, const Made& call) {
    MESHIFT_RETURN_IF_ERROR(MayCall());
    if (!Takes()) return RunHandle();
    MutexLock lock(issuing_);
    MESHIFT_RETURN_IF_ERROR(line_.IsOpenTo(ticket) ? Health() : Enter(lock, ticket));
    const int64_t num_runs = num_runs_;
    absl::StatusOr<RunHandle> handle = call();
    line_.Leave(ticket, num_runs_ > num_runs);
    return handle;
  }

  // The calls below are made with the lock of issuing held.

  // As TicketLine::Enter.
  absl::Status Enter(MutexLock& lock, std::optional<int64_t> ticket) MESHIFT_REQUIRES(issuing_);
  // What runs a plan for a tensor; `may_be_null`: its memory.
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

  // A call of one tensor that is posted as this fingerprint and text: the plan's, unless more is
  // said of it.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> RunOne(
      PlanEntry& plan, const Fingerprint& fingerprint, const Text& text, const TensorArgs& tensor,
      const Workspace& workspace, const After& after) MESHIFT_REQUIRES(issuing_);
  absl::StatusOr<RunHandle> RunOne(PlanEntry& plan, const TensorArgs& tensor,
                                   const Workspace& workspace, const After& after)
      MESHIFT_REQUIRES(issuing_) {
    return RunOne(plan, plan.call->fingerprint, plan.call->text, tensor, workspace, after);
  }
  // Looks up all that a list needs, into scratch, and checks it; changes nothing else.
  absl::StatusOr<std::shared_ptr<Call>> CheckList(absl::Span<const Redistribution> list,
                                                  bool may_be_null) MESHIFT_REQUIRES(issuing_);
  // A call that names symmetric memory.
  absl::StatusOr<RunHandle> RunSymmetric(PlanEntry& plan, const Redistribution& what)
      MESHIFT_REQUIRES(issuing_);
  SymmetricDecision Decide(const PlanEntry& plan, const SymmetricUse& use,
                           const SymmetricBlock& source, const SymmetricBlock& target)
      MESHIFT_REQUIRES(issuing_);
  absl::Status CallSymmetric(const SymmetricUse& use, const SymmetricDecision& decision,
                             const Call& call, Run* run) MESHIFT_REQUIRES(issuing_);
  void CountMiss(const SymmetricUse& use, SymmetricMiss miss) MESHIFT_REQUIRES(issuing_);

  // A new run's first handle; then what it comes after, of which a refusal changes nothing.
  ABSL_ATTRIBUTE_HOT RunHandle NewHandle() MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT Run* NewRun() MESHIFT_REQUIRES(issuing_);
  absl::Status BeginAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_) {
    const bool nothing =
        after.stream == nullptr && (after.run == nullptr || after.run->run_ == nullptr);
    return nothing ? absl::OkStatus() : MarkAfter(after, run);
  }
  absl::Status MarkAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_);
  // Takes the next number for a call that is posted so, and makes its groups; then its work is put
  // on streams; then EndIssue, told whether that went well. The record has when. For `run`, or,
  // where that is null, to prepare it.
  struct Issued {
    int64_t number = 0;
    CallSlot* slot = nullptr;
  };
  ABSL_ATTRIBUTE_HOT absl::StatusOr<Issued> BeginIssue(Call& call, const Fingerprint& fingerprint,
                                                       const Text& text, Run* run)
      MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT absl::Status EndIssue(const Issued& issued, absl::Status status, Run* run)
      MESHIFT_REQUIRES(issuing_);
  // Takes the next number, and compares it with the peers'.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<int64_t> TakeNumber(const Fingerprint& fingerprint,
                                                        const Text& text)
      MESHIFT_REQUIRES(issuing_);
  absl::Status Bind(Call& call) MESHIFT_REQUIRES(issuing_);
  absl::Status Bind(ProgramEntry& program) MESHIFT_REQUIRES(issuing_);
  // Makes the groups of a call, and its workspace where the caller gives none.
  absl::Status Prepare(Call& call) MESHIFT_REQUIRES(issuing_);
  // The record of the call that is issued now.
  RunRecord* NewRecord(const std::shared_ptr<RunRecord>& record) MESHIFT_REQUIRES(issuing_) {
    if (last_run_ != record) last_run_ = record;
    if (options_.expert.time_steps) record->events.clear();
    return record.get();
  }
  // Puts a program of the call on its streams, with the lane's workspace where none is given.
  ABSL_ATTRIBUTE_HOT absl::Status Enqueue(const Call& call, ProgramEntry& program,
                                          ProgramBuffers buffers, Run* run)
      MESHIFT_REQUIRES(issuing_);
  absl::Status EnqueueList(const Call& call, absl::Span<const Redistribution> list,
                           const Workspace& workspace, Run* run) MESHIFT_REQUIRES(issuing_);
  // Where steps are timed: puts marks [0, last] on `stream`, but for those that are there.
  absl::Status MarkSteps(size_t last, Stream& stream, RunRecord* record) MESHIFT_REQUIRES(issuing_);
  // Later work on `stream` waits for what BeginAfter has marked.
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

  std::unique_ptr<GroupCache> groups_;  // null where this rank is not in the mesh

  const std::shared_ptr<CallRecord> record_;
  // What each call looks at lies together.
  CallSource* recorder_ = nullptr;  // source_, where calls are remembered
  mutable Mutex issuing_;
  TicketLine line_ MESHIFT_GUARDED_BY(issuing_);
  int64_t num_calls_ MESHIFT_GUARDED_BY(issuing_) = 0;  // those of Prepare included
  int64_t num_runs_ MESHIFT_GUARDED_BY(issuing_) = 0;
  Run* free_ MESHIFT_GUARDED_BY(issuing_) = nullptr;  // a list
  std::atomic<Run*> given_back_ = nullptr;            // a list
  std::shared_ptr<const RunRecord> last_run_ = std::make_shared<RunRecord>();
  PlanCache plans_ MESHIFT_GUARDED_BY(issuing_);

  std::vector<std::unique_ptr<Run>> runs_ MESHIFT_GUARDED_BY(issuing_);
  // What the last posts of the control root refer to.
  std::vector<Text> posted_ MESHIFT_GUARDED_BY(issuing_);
  // Of the list that is being issued.
  std::vector<std::shared_ptr<PlanEntry>> list_plans_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<std::shared_ptr<Call>> list_calls_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<WrittenRange> list_ranges_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<TensorBuffers> list_buffers_ MESHIFT_GUARDED_BY(issuing_);
  static constexpr size_t kMaxDecisions = 1024;
  LruCache<SymmetricKey, SymmetricDecision> decisions_ MESHIFT_GUARDED_BY(issuing_){kMaxDecisions};
  SymmetricCounts symmetric_ MESHIFT_GUARDED_BY(issuing_);
  int64_t num_pools_ MESHIFT_GUARDED_BY(issuing_) = 0;

  // Calls FailCall() until it leaves, which uses root_; outlives that, whose failures it is told.
  std::unique_ptr<CallSource> source_;  // null where this rank is not in the mesh
  // Calls Fail() as long as it lives.
  std::unique_ptr<ControlRoot> root_;
  // Has source_ leave once the work is done.
  struct SourceLeaves {
    const std::unique_ptr<CallSource>& source;
    ~SourceLeaves() {
      if (source != nullptr) source->Leave();
    }
  } source_leaves_{source_};
  // Destroyed first: waits for all work.
  Lanes lanes_ MESHIFT_GUARDED_BY(issuing_);
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTOR_IMPL_H_
