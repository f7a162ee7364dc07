// What a redistributor and the handles of its work share: caches, groups, streams, the order of its
// calls, and its first error. Internal.
//
// What a cached call goes through is marked hot, here and in what it calls: linkers put such
// functions together, and where caches are cold, fewer pages are to be found (docs/benchmarks.md).
#ifndef MESHIFT_COMM_REDISTRIBUTION_RUN_CORE_H_
#define MESHIFT_COMM_REDISTRIBUTION_RUN_CORE_H_

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
#include "comm/executor/executor.h"
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

class RunCore : public std::enable_shared_from_this<RunCore> {
 public:
  static absl::StatusOr<std::shared_ptr<RunCore>> Create(const DeviceMesh& mesh, Engine* engine,
                                                         const RedistributorOptions& options);
  RunCore(const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options);

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
  const RunRecord& last_run() const {
    return last_whole_ == nullptr ? last_run_ : last_whole_->ready.record;
  }
  const DeviceMesh& mesh() const { return mesh_; }

  // Of handles, from any thread.
  absl::Status Wait(const Run& run);
  bool IsDone(const Run& run);
  Engine& engine() const { return *engine_; }
  absl::Status Wait(const Run& run, Stream& stream);
  void GiveBack(Run* run);

 private:
  friend class RunTurn;

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
  std::chrono::nanoseconds TicketTimeout() const {
    return options_.timeout.value_or(engine_->timeouts().running);
  }
  // The first error ends everything. Returns it. `tell`: the peers.
  absl::Status Fail(const absl::Status& status, bool tell);
  // As Fail, for what an engine said of a call: asks the peers what they know of it.
  absl::Status FailCall(int64_t call, const absl::Status& status);

  // The calls below are made with the lock of issuing held.

  // The program for a tensor of a plan; `may_be_null`: its memory.
  absl::StatusOr<BoundProgram*> ProgramFor(PreparedPlan& prepared, const TensorArgs& tensor,
                                           bool may_be_null = false) MESHIFT_REQUIRES(issuing_) {
    const bool plain =
        !tensor.consume_source &&
        ArePlain(tensor.source, prepared.source, tensor.target, prepared.target, tensor_device_);
    if (plain) [[likely]]
      return prepared.program.get();
    return ProgramForOther(prepared, tensor, may_be_null);
  }
  absl::StatusOr<BoundProgram*> ProgramForOther(PreparedPlan& prepared, const TensorArgs& tensor,
                                                bool may_be_null) MESHIFT_REQUIRES(issuing_);
  absl::Status CheckAfter(const RunHandle* run) const {
    return run == nullptr || run->core_ == nullptr ? absl::OkStatus() : CheckEngineOf(*run);
  }
  absl::Status CheckEngineOf(const RunHandle& run) const;
  // Takes the next number for a call, and compares it with the peers'.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<int64_t> BeginCall(
      const Fingerprint& fingerprint, const std::shared_ptr<const std::string>& text)
      MESHIFT_REQUIRES(issuing_);
  // Of a call: its first handle; what it comes after (BeginAfter), of which a refusal changes
  // nothing; then its number.
  ABSL_ATTRIBUTE_HOT RunHandle NewHandle() MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT absl::Status BeginRun(const Fingerprint& fingerprint,
                                           const std::shared_ptr<const std::string>& text, Run* run)
      MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT Run* NewRun() MESHIFT_REQUIRES(issuing_);
  absl::Status Bind(BoundProgram* program) MESHIFT_REQUIRES(issuing_) {
    return program->is_bound ? absl::OkStatus() : BindAnew(program);
  }
  absl::Status BindAnew(BoundProgram* program) MESHIFT_REQUIRES(issuing_);
  // Where a new call is counted: last_run_, emptied; RecordOf: null for a program that runs as a
  // whole, whose own record is the last run's then.
  RunRecord* NewRecord() MESHIFT_REQUIRES(issuing_) {
    last_whole_ = nullptr;
    last_run_.Clear();
    return &last_run_;
  }
  ABSL_ATTRIBUTE_HOT RunRecord* RecordOf(BoundProgram& program) MESHIFT_REQUIRES(issuing_);
  // Calls `issue`, which puts the work of the next call on streams, for `run`, or for none where
  // that is null; the record has when. `*has_run`: whether it is not the first of its kind; it is
  // then.
  template <typename Text, typename Issue>
  absl::Status Recorded(const Text& text, bool* has_run, uint32_t num_done, Run* run, Issue issue)
      MESHIFT_REQUIRES(issuing_) {
    if (recorder_ == nullptr) return issue();
    CallSlot* const slot = BeginRecord(text(), has_run, num_done, run);
    MESHIFT_RETURN_IF_ERROR(issue());
    EndRecord(slot, run);
    return absl::OkStatus();
  }
  ABSL_ATTRIBUTE_HOT CallSlot* BeginRecord(const std::shared_ptr<const CallText>& text,
                                           bool* has_run, uint32_t num_done, Run* run)
      MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT void EndRecord(CallSlot* slot, Run* run) MESHIFT_REQUIRES(issuing_);
  // The program's own text, or another, where more is said of the call.
  static const std::shared_ptr<const CallText>& TextOf(BoundProgram* program,
                                                       const std::string& text) {
    if (program->call_text == nullptr) [[unlikely]]
      Describe(program, text);
    return program->call_text;
  }
  static void Describe(BoundProgram* program, const std::string& text);
  static const std::shared_ptr<const CallText>& TextOf(MergedCall* call) {
    if (call->call_text == nullptr) [[unlikely]]
      Describe(call);
    return call->call_text;
  }
  static void Describe(MergedCall* call);
  // A call that is posted as this fingerprint and text: the plan's, unless more is said of it.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<RunHandle> Call(PreparedPlan& prepared,
                                                    const Fingerprint& fingerprint,
                                                    const std::shared_ptr<const std::string>& text,
                                                    const TensorArgs& tensor,
                                                    const Workspace& workspace, const After& after)
      MESHIFT_REQUIRES(issuing_);
  // A call that names symmetric memory.
  absl::StatusOr<RunHandle> RedistributeSymmetric(PreparedPlan& prepared,
                                                  const Redistribution& what)
      MESHIFT_REQUIRES(issuing_);
  SymmetricDecision Decide(const PreparedPlan& prepared, const SymmetricUse& use,
                           const SymmetricBlock& source, const SymmetricBlock& target)
      MESHIFT_REQUIRES(issuing_);
  absl::Status IssueSymmetric(const SymmetricUse& use, const SymmetricDecision& decision,
                              BoundProgram* program, Run* run) MESHIFT_REQUIRES(issuing_);
  absl::Status CallSymmetric(const SymmetricUse& use, const SymmetricDecision& decision,
                             const BoundProgram& program, Run* run) MESHIFT_REQUIRES(issuing_);
  void CountMiss(const SymmetricUse& use, SymmetricMiss miss) MESHIFT_REQUIRES(issuing_);
  absl::Status Prepare(PreparedPlan& prepared) MESHIFT_REQUIRES(issuing_);
  absl::Status PrepareCall(const Fingerprint& fingerprint,
                           const std::shared_ptr<const std::string>& text,
                           absl::Span<BoundProgram* const> programs) MESHIFT_REQUIRES(issuing_);
  void JoinRecord();
  // Makes the program's groups, and its workspace where the caller gives none.
  absl::Status MakeReady(BoundProgram* program) MESHIFT_REQUIRES(issuing_);
  // Looks up all that a list needs, into scratch, and checks it; changes nothing else.
  absl::StatusOr<std::shared_ptr<MergedCall>> CheckList(absl::Span<const Redistribution> list,
                                                        bool may_be_null)
      MESHIFT_REQUIRES(issuing_);
  absl::Status IssueList(absl::Span<const Redistribution> list, const MergedCall& call,
                         const Workspace& workspace, Run* run) MESHIFT_REQUIRES(issuing_);
  absl::Status IssueParts(absl::Span<const Redistribution> list, const MergedCall& call,
                          const Workspace& workspace, Run* run) MESHIFT_REQUIRES(issuing_);
  // Of one call: its number, its groups, its work.
  ABSL_ATTRIBUTE_HOT absl::Status IssueCall(const Fingerprint& fingerprint,
                                            const std::shared_ptr<const std::string>& text,
                                            BoundProgram* program, const ProgramBuffers& buffers,
                                            Run* run) MESHIFT_REQUIRES(issuing_);

  // Of one run, in this order: marks what it comes after; puts programs on their streams, with the
  // lane's workspace where none is given; marks where they end.
  absl::Status BeginAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_) {
    const bool nothing =
        after.stream == nullptr && (after.run == nullptr || after.run->run_ == nullptr);
    return nothing ? absl::OkStatus() : MarkAfter(after, run);
  }
  absl::Status MarkAfter(const After& after, Run* run) MESHIFT_REQUIRES(issuing_);
  // Later work on `stream` waits for what BeginAfter has marked.
  ABSL_ATTRIBUTE_HOT absl::Status WaitBefore(Stream& stream, const Run& run)
      MESHIFT_REQUIRES(issuing_);
  // `record`: where it is counted; null: it runs as a whole (RecordOf), and is marked at once.
  ABSL_ATTRIBUTE_HOT absl::Status Issue(BoundProgram& program, ProgramBuffers buffers,
                                        RunRecord* record, Run* run) MESHIFT_REQUIRES(issuing_);
  ABSL_ATTRIBUTE_HOT absl::Status EndIssue(Run* run) MESHIFT_REQUIRES(issuing_);

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
  Executor executor_ MESHIFT_GUARDED_BY(issuing_);
  // Of the last call: of a program that ran as a whole, or what was counted.
  std::shared_ptr<const BoundProgram> last_whole_;
  RunRecord last_run_;
  PlanCache plans_ MESHIFT_GUARDED_BY(issuing_);

  std::vector<std::unique_ptr<Run>> runs_ MESHIFT_GUARDED_BY(issuing_);
  // What the last posts of the control root refer to.
  std::vector<std::shared_ptr<const std::string>> posted_ MESHIFT_GUARDED_BY(issuing_);
  // Of the list that is being issued.
  std::vector<std::shared_ptr<PreparedPlan>> list_plans_ MESHIFT_GUARDED_BY(issuing_);
  std::vector<std::shared_ptr<BoundProgram>> list_programs_ MESHIFT_GUARDED_BY(issuing_);
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

#endif  // MESHIFT_COMM_REDISTRIBUTION_RUN_CORE_H_
