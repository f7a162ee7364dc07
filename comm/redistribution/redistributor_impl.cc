#include "comm/redistribution/redistributor_impl.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "comm/program/coalesce.h"
#include "comm/program/lowering.h"
#include "comm/program/program_segments.h"
#include "comm/redistribution/view_check.h"
#include "meshift/planner_cache.h"
#include "meshift/status.h"
#include "placement/local_box.h"

namespace meshift::run_internal {
namespace {

std::shared_ptr<PlannerCache> PlannerOf(const DeviceMesh& mesh, const Engine& engine,
                                        const RedistributorOptions& options) {
  if (options.plans) return options.plans;
  return std::make_shared<PlannerCache>(PlanningOptions(mesh, engine, options),
                                        PlannerCacheLimits{options.expert.max_cached_bytes});
}

// Whether a peer may have caused this error. If not, it concerns this rank's call alone.
bool MayBeExplained(const absl::Status& status) {
  return status.code() != absl::StatusCode::kInvalidArgument &&
         status.code() != absl::StatusCode::kUnimplemented &&
         status.code() != absl::StatusCode::kResourceExhausted;
}

}  // namespace

RedistributorImpl::RedistributorImpl(const DeviceMesh& mesh, Engine* engine,
                                     const RedistributorOptions& options)
    : mesh_(mesh),
      engine_(engine),
      callers_(engine->caller_progress()),
      options_(options),
      tensor_device_(engine->tensor_device()),
      record_(CallRecord::Of(engine)),
      plans_(engine->rank(), PlannerOf(mesh, *engine, options), options.expert.verify_plans,
             options.expert.max_cached_bytes,
             options.expert.coalesce_bytes.value_or(
                 engine->CoalesceBytes().value_or(DefaultCoalesceBytes(options.planning.topology))),
             [this](const DeviceMesh& m) { return GroupCache::CheckMesh(mesh_, m); }),
      group_streams_(engine, options.expert.streams == StreamMode::kSingleStream) {}

absl::StatusOr<std::shared_ptr<RedistributorImpl>> RedistributorImpl::Create(
    const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options) {
  if (options.expert.max_cached_bytes < 0) {
    return InvalidArgument("max_cached_bytes {} is negative", options.expert.max_cached_bytes);
  }
  if (options.plans && !(options.plans->options() == PlanningOptions(mesh, *engine, options))) {
    return InvalidArgument("the plan cache was made with options other than the redistributor's");
  }
  if (options.expert.agreement_calls < 0) {
    return InvalidArgument("agreement_calls {} is negative", options.expert.agreement_calls);
  }
  if (options.expert.coalesce_bytes.value_or(0) < 0) {
    return InvalidArgument("coalesce_bytes {} is negative", *options.expert.coalesce_bytes);
  }
  if (options.timeout && *options.timeout <= std::chrono::nanoseconds::zero()) {
    return InvalidArgument("a timeout of {} ns is not positive", options.timeout->count());
  }
  MESHIFT_RETURN_IF_ERROR(CheckGroupBudget(options.planning.groups));
  const int64_t begin_ns = SteadyNowNs();
  auto impl = std::make_shared<RedistributorImpl>(mesh, engine, options);
  MESHIFT_RETURN_IF_ERROR(impl->CheckThread());
  if (!mesh.PositionOf(engine->rank())) {
    // The other ranks split the root from the world; this rank takes part without being in it.
    MESHIFT_RETURN_IF_ERROR(GroupCache::SplitWithoutGroup(engine, mesh));
    return impl;
  }
  MESHIFT_ASSIGN_OR_RETURN(impl->groups_, GroupCache::Create(engine, mesh));
  impl->JoinRecord();
  if (engine->control() != nullptr && mesh.NumRanks() > 1) {
    std::vector<int64_t> ranks = mesh.Ranks();
    std::sort(ranks.begin(), ranks.end());
    const MutexLock lock(impl->issuing_);
    impl->posted_.resize(ControlRoot::kRememberedPosts);
    MESHIFT_ASSIGN_OR_RETURN(
        impl->root_,
        engine->control()->Join(ranks, [impl = impl.get()](const absl::Status& status) {
          impl->Fail(status, /*tell=*/false).IgnoreError();
        }));
  }
  impl->record_->Log(LogEvent::Kind::kRedistributor, impl->source_->name(),
                     SteadyNowNs() - begin_ns);
  return impl;
}

absl::Status RedistributorImpl::Error() const {
  // A caller that gets the error may end the process, so let the record be written first.
  record_->AwaitDump();
  const MutexLock lock(mutex_);
  return error_;
}

absl::Status RedistributorImpl::Fail(const absl::Status& status, bool tell) {
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    is_first = error_.ok();
    if (is_first) error_ = status;
    if (is_first && source_ != nullptr) source_->BeginFailure(status);
    failed_ = true;
  }
  // The thread that receives the peers' errors must not wait for the record.
  if (!is_first) return tell ? Error() : status;
  const int64_t begin_ns = SteadyNowNs();
  // Send the peers the reason before they notice that the groups are aborted.
  if (tell && root_ != nullptr) root_->Fail(status);
  if (groups_ != nullptr) groups_->AbortAll();
  if (source_ == nullptr) return status;
  record_->Log(LogEvent::Kind::kAbort, Message(status), SteadyNowNs() - begin_ns);
  source_->EndFailure(/*may_block=*/tell);
  return status;
}

absl::Status RedistributorImpl::FailCall(int64_t call, const absl::Status& status) {
  MESHIFT_RETURN_IF_ERROR(Health());
  if (root_ == nullptr || call < 0 || !MayBeExplained(status)) return Fail(status, /*tell=*/true);
  return Fail(root_->Explain(call, status), /*tell=*/true);
}

absl::StatusOr<Call*> RedistributorImpl::CallForOther(PlanEntry& plan, const TensorArgs& tensor,
                                                      bool may_be_null) {
  MESHIFT_ASSIGN_OR_RETURN(const LoweringOptions layouts,
                           CheckViews(plan.plan, engine_->rank(), tensor_device_,
                                      {.source = plan.source.shape,
                                       .target = plan.target.shape,
                                       .has_source = plan.has_source,
                                       .has_target = plan.has_target},
                                      tensor.source, tensor.target, tensor.consume_source));
  for (const auto& [name, view, has] : {std::tuple("source", &tensor.source, plan.has_source),
                                        std::tuple("target", &tensor.target, plan.has_target)}) {
    if (may_be_null || view->data != nullptr || NumElements(view->shape) == 0 || !has) continue;
    return InvalidArgument("the {} {} is null", name, view->ToString());
  }
  return plans_.CallOf(plan, layouts);
}

absl::Status RedistributorImpl::CheckEngineOf(const RunHandle& run) const {
  if (run.impl_->engine_ == engine_) return absl::OkStatus();
  return InvalidArgument("the run in after_run belongs to another engine");
}

absl::Status RedistributorImpl::Enter(MutexLock& lock, std::optional<int64_t> ticket) {
  const auto timeout = [this] { return options_.timeout.value_or(engine_->timeouts().running); };
  const auto health = [this, &ticket] {
    // The thread with the missing ticket may wait for work of earlier calls.
    if (ticket && callers_ != nullptr) callers_->Advance();
    return Health();
  };
  const absl::Status status = line_.Enter(lock, ticket, timeout, health);
  // No later call can be made without the missing ticket.
  return absl::IsDeadlineExceeded(status) ? Fail(status, /*tell=*/true) : status;
}

absl::StatusOr<int64_t> RedistributorImpl::TakeNumber(const Fingerprint& fingerprint,
                                                      const Text& text) {
  const int64_t call = num_calls_++;
  if (root_ == nullptr) return call;
  const bool awaits =
      options_.agreement == Agreement::kAlways ||
      (options_.agreement == Agreement::kFirstCalls && call < options_.expert.agreement_calls);
  root_->Post({.call = call, .high = fingerprint.high, .low = fingerprint.low, .what = text.get()},
              awaits);
  // The control root no longer keeps the post whose text was in this place.
  if (Text& place = posted_[call % ControlRoot::kRememberedPosts]; place != text) {
    place = text;
  }
  if (!awaits) return call;
  const Timeouts timeouts = engine_->timeouts();
  // A peer may wait for work of earlier calls before it makes this one.
  std::function<void()> meanwhile;
  if (callers_ != nullptr) meanwhile = [this] { callers_->Advance(); };
  const absl::Status status = root_->Await(
      call, options_.timeout.value_or(call == 0 ? timeouts.setup : timeouts.running), meanwhile);
  if (!status.ok()) return Fail(status, /*tell=*/true);
  return call;
}

absl::Status RedistributorImpl::Bind(Call& call) {
  for (const Call::Part& part : call.parts) MESHIFT_RETURN_IF_ERROR(Bind(*part.program));
  call.is_bound = true;
  return absl::OkStatus();
}

absl::Status RedistributorImpl::Bind(ProgramEntry& entry) {
  if (entry.executable != nullptr) return absl::OkStatus();
  const Program& program = entry.program;
  for (size_t g = entry.communicators.size(); g < program.groups.size(); ++g) {
    const ProgramGroup& group = program.groups[g];
    const int64_t begin_ns = SteadyNowNs();
    const int64_t created = groups_->stats().created;
    MESHIFT_ASSIGN_OR_RETURN(
        Communicator * communicator,
        groups_->Get(program.meshes[group.mesh], group, {.one_channel = group.one_channel}));
    entry.communicators.push_back(communicator);
    if (groups_->stats().created == created) continue;
    record_->Log(LogEvent::Kind::kSplit, communicator->ToString(), SteadyNowNs() - begin_ns);
  }
  for (const ProgramSegment& segment : SegmentsOf(program, options_.expert.time_steps)) {
    MESHIFT_ASSIGN_OR_RETURN(
        GroupStream * group_stream,
        group_streams_.Of(segment.group < 0 ? nullptr : entry.communicators[segment.group]));
    if (entry.parts.empty()) entry.first_stream = group_stream;
    entry.parts.push_back({.instructions = segment.instructions,
                           .step = segment.step,
                           .stream = &group_stream->stream(),
                           .done = nullptr});
  }
  MESHIFT_ASSIGN_OR_RETURN(entry.executable, engine_->Prepare(program, entry.communicators));
  return absl::OkStatus();
}

Run* RedistributorImpl::NewRun() {
  if (free_ == nullptr) free_ = given_back_.exchange(nullptr, std::memory_order_acquire);
  if (free_ == nullptr) {
    runs_.push_back(std::make_unique<Run>());
    return runs_.back().get();
  }
  Run* const run = free_;
  free_ = run->next_free;
  run->num_done = 0;
  run->uses.clear();
  run->after_streams.clear();
  run->after_runs.clear();
  run->ends.clear();
  return run;
}

void RedistributorImpl::GiveBack(Run* run) {
  const bool is_last = run->handles.load(std::memory_order_acquire) == 1;
  if (!is_last && run->handles.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  run->next_free = given_back_.load(std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(run->next_free, run, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
}

absl::Status RedistributorImpl::MarkAfter(const After& after, Run* run) {
  if (after.stream != nullptr && std::find(run->after_streams.begin(), run->after_streams.end(),
                                           after.stream) == run->after_streams.end()) {
    const size_t i = run->after_streams.size();
    run->after_streams.push_back(after.stream);
    if (i == run->after.size()) run->after.emplace_back();
    const absl::Status status = engine_->RecordInto(*after.stream, &run->after[i]);
    if (!status.ok()) return MayBeExplained(status) ? Fail(status, /*tell=*/true) : status;
  }
  if (after.run != nullptr && after.run->run_ != nullptr &&
      std::find(run->after_runs.begin(), run->after_runs.end(), after.run->run_) ==
          run->after_runs.end()) {
    run->after_runs.push_back(after.run->run_);
  }
  return absl::OkStatus();
}

absl::Status RedistributorImpl::WaitBefore(Stream& stream, const Run& run) {
  for (size_t i = 0; i < run.after_streams.size(); ++i) {
    MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, run.after[i]));
  }
  for (const Run* earlier : run.after_runs) {
    for (const std::shared_ptr<Event>& event : earlier->Done()) {
      MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, event));
    }
  }
  return absl::OkStatus();
}

absl::Status RedistributorImpl::Enqueue(const Call& call, ProgramEntry& program,
                                        ProgramBuffers buffers, Run* run) {
  GroupStream& group_stream = *program.first_stream;
  const bool uses_stream_workspace = buffers.workspace == nullptr && program.workspace_bytes > 0;
  if (uses_stream_workspace) {
    MESHIFT_ASSIGN_OR_RETURN(buffers.workspace, group_stream.Reserve(program.workspace_bytes));
    MESHIFT_RETURN_IF_ERROR(group_stream.BeginUse());
  }
  if (run->IsAfterOthers()) MESHIFT_RETURN_IF_ERROR(WaitBefore(group_stream.stream(), *run));
  RunRecord* const timed = options_.expert.time_steps ? call.record.get() : nullptr;
  // The last event of a program is also the first one of the next program.
  const size_t first_mark =
      timed == nullptr || timed->events.empty() ? 0 : timed->events.size() - 1;
  // If the call has only this program and steps are not timed, its last part records the end.
  const bool marks_end = timed == nullptr && call.parts.size() == 1;
  ProgramEntry::Part* const last = &program.parts.back();
  for (ProgramEntry::Part* part = program.parts.data();; ++part) {
    if (timed != nullptr) {
      MESHIFT_RETURN_IF_ERROR(MarkSteps(first_mark + part->step, *part->stream, timed));
    }
    MESHIFT_RETURN_IF_ERROR(
        program.executable->Enqueue(part->instructions, buffers, *part->stream,
                                    marks_end && part == last ? run->NextDone() : nullptr));
    if (part == last) break;
    if (part[1].stream == part->stream) continue;
    MESHIFT_RETURN_IF_ERROR(engine_->RecordInto(*part->stream, &part->done));
    MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(*part[1].stream, part->done));
  }
  Stream& end = *last->stream;
  if (timed != nullptr) {
    MESHIFT_RETURN_IF_ERROR(MarkSteps(first_mark + program.program.num_steps, end, timed));
  }
  if (!marks_end && std::find(run->ends.begin(), run->ends.end(), &end) == run->ends.end()) {
    run->ends.push_back(&end);
  }
  if (uses_stream_workspace) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t use, group_stream.EndUse(end));
    run->uses.emplace_back(&group_stream, use);
  }
  return absl::OkStatus();
}

absl::Status RedistributorImpl::MarkSteps(size_t last, Stream& stream, RunRecord* record) {
  while (record->events.size() <= last) {
    MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Event> event, engine_->Record(stream));
    record->events.push_back(std::move(event));
  }
  return absl::OkStatus();
}

RunHandle RedistributorImpl::NewHandle() {
  Run* const run = NewRun();
  run->handles.store(1, std::memory_order_relaxed);
  return RunHandle(shared_from_this(), run);
}

absl::StatusOr<RedistributorImpl::Issued> RedistributorImpl::BeginIssue(
    Call& call, const Fingerprint& fingerprint, const Text& text, Run* run) {
  Issued issued;
  if (recorder_ != nullptr) issued.slot = BeginRecord(call, run);
  MESHIFT_ASSIGN_OR_RETURN(issued.number, TakeNumber(fingerprint, text));
  if (run != nullptr) {
    run->call = issued.number;
    ++num_runs_;
  }
  if (!call.is_bound) {
    const absl::Status status = Bind(call);
    if (!status.ok()) return FailCall(issued.number, status);
  }
  return issued;
}

absl::Status RedistributorImpl::EndIssue(const Issued& issued, absl::Status status, Run* run) {
  if (run != nullptr) {
    for (size_t i = 0; status.ok() && i < run->ends.size(); ++i) {
      status = engine_->RecordInto(*run->ends[i], run->NextDone());
    }
  }
  if (!status.ok()) return FailCall(issued.number, status);
  if (run != nullptr && !run->uses.empty() && run->Done()[0]->InGraph()) [[unlikely]] {
    for (const auto& [group_stream, use] : run->uses) group_stream->KeepUse(use);
  }
  if (recorder_ != nullptr) EndRecord(issued.slot, run);
  return absl::OkStatus();
}

absl::StatusOr<RunHandle> RedistributorImpl::RunOne(PlanEntry& plan, const Fingerprint& fingerprint,
                                                    const Text& text, const TensorArgs& tensor,
                                                    const Workspace& workspace,
                                                    const After& after) {
  MESHIFT_RETURN_IF_ERROR(CheckAfter(after.run));
  MESHIFT_ASSIGN_OR_RETURN(Call* const call, CallFor(plan, tensor));
  if (workspace.data != nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(
        const MemoryRange range,
        CheckWorkspace(workspace.data, workspace.bytes, call->workspace_bytes));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("source", RangeOf(tensor.source), range));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("target", RangeOf(tensor.target), range));
  }
  RunHandle handle = NewHandle();
  Run* const run = handle.run_;
  MESHIFT_RETURN_IF_ERROR(BeginAfter(after, run));
  const TensorBuffers buffers{.source = tensor.source.data, .target = tensor.target.data};
  MESHIFT_ASSIGN_OR_RETURN(const Issued issued, BeginIssue(*call, fingerprint, text, run));
  NewRecord(call->record);
  absl::Status status = Enqueue(*call, *call->parts[0].program,
                                {.workspace = workspace.data, .tensors = {&buffers, 1}}, run);
  MESHIFT_RETURN_IF_ERROR(EndIssue(issued, std::move(status), run));
  return handle;
}

absl::StatusOr<RunHandle> RedistributorImpl::Redistribute(const Redistribution& what) {
  return InTurn(what.ticket, [&]() MESHIFT_REQUIRES(issuing_) -> absl::StatusOr<RunHandle> {
    MESHIFT_ASSIGN_OR_RETURN(const auto* plan,
                             plans_.Find(PlanKey{&what.from, &what.to, what.reduce_dtype}));
    if (what.symmetric != nullptr) [[unlikely]]
      return RunSymmetric(**plan, what);
    return RunOne(
        **plan,
        {.source = what.source, .target = what.target, .consume_source = what.consume_source},
        what.workspace, {.stream = what.after, .run = &what.after_run});
  });
}

absl::StatusOr<RunHandle> RedistributorImpl::RunPlan(const Plan& plan, const TensorArgs& tensor,
                                                     const Workspace& workspace, const After& after,
                                                     std::optional<int64_t> ticket) {
  return InTurn(ticket, [&]() MESHIFT_REQUIRES(issuing_) -> absl::StatusOr<RunHandle> {
    MESHIFT_ASSIGN_OR_RETURN(const auto* found, plans_.Find(plan));
    return RunOne(**found, tensor, workspace, after);
  });
}

absl::Status RedistributorImpl::Prepare(Call& call) {
  MESHIFT_ASSIGN_OR_RETURN(const Issued issued,
                           BeginIssue(call, call.fingerprint, call.text, /*run=*/nullptr));
  if (recorder_ != nullptr) recorder_->Reserve();
  absl::Status status;
  for (const Call::Part& part : call.parts) {
    if (!status.ok()) break;
    status = part.program->first_stream->Reserve(part.program->workspace_bytes).status();
  }
  return EndIssue(issued, std::move(status), /*run=*/nullptr);
}

absl::StatusOr<Plan> RedistributorImpl::Prepare(const PlanKey& what) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  const MutexLock lock(issuing_);
  if (!IsInMesh()) return plans_.FindPlan(what);
  MESHIFT_ASSIGN_OR_RETURN(const auto* found, plans_.Find(what));
  MESHIFT_RETURN_IF_ERROR(Prepare(*(*found)->call));
  return (*found)->plan;
}

absl::Status RedistributorImpl::Prepare(absl::Span<const Plan> plans) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!IsInMesh()) return absl::OkStatus();
  const MutexLock lock(issuing_);
  for (const Plan& plan : plans) {
    MESHIFT_ASSIGN_OR_RETURN(const auto* found, plans_.Find(plan));
    MESHIFT_RETURN_IF_ERROR(Prepare(*(*found)->call));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RedistributorImpl::WorkspaceBytes(const Plan& plan,
                                                          const TensorView& source,
                                                          const TensorView& target,
                                                          bool consume_source) const {
  if (!IsInMesh()) return 0;
  const int64_t rank = engine_->rank();
  for (const DeviceMesh& mesh : plan.meshes()) {
    MESHIFT_RETURN_IF_ERROR(GroupCache::CheckMesh(mesh_, mesh));
  }
  const Shape source_shape = LocalBoxOf(plan.from(), rank).size;
  const Shape target_shape = LocalBoxOf(plan.to(), rank).size;
  MESHIFT_ASSIGN_OR_RETURN(
      const LoweringOptions layouts,
      CheckViews(plan, rank, tensor_device_,
                 {.source = source_shape,
                  .target = target_shape,
                  .has_source = plan.from().mesh().PositionOf(rank).has_value(),
                  .has_target = plan.to().mesh().PositionOf(rank).has_value()},
                 source, target, consume_source));
  MESHIFT_ASSIGN_OR_RETURN(const Program program, Lower(plan, rank, layouts));
  return program.workspace_bytes;
}

absl::Status RedistributorImpl::Wait(const Run& run) {
  MESHIFT_RETURN_IF_ERROR(CheckThread());
  for (const std::shared_ptr<Event>& event : run.Done()) {
    absl::Status status = engine_->Wait(event);
    if (status.ok()) continue;
    // The engine refuses to wait for an event in a graph; the call itself has not failed.
    if (event->InGraph()) return status;
    return FailCall(run.call, status);
  }
  run.is_done.store(true, std::memory_order_relaxed);
  for (const auto& [group_stream, use] : run.uses) group_stream->NoteDone(use);
  return Health();
}

bool RedistributorImpl::IsDone(const Run& run) {
  if (callers_ != nullptr) callers_->Advance();
  const auto is_reached = [](const std::shared_ptr<Event>& event) { return event->IsReached(); };
  const auto events = run.Done();
  return std::all_of(events.begin(), events.end(), is_reached) || !Health().ok();
}

absl::Status RedistributorImpl::Wait(const Run& run, Stream& stream) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  for (const std::shared_ptr<Event>& event : run.Done()) {
    MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, event));
  }
  return absl::OkStatus();
}

void RedistributorImpl::Abort() {
  Fail(absl::AbortedError("the redistributor was aborted"), /*tell=*/true).IgnoreError();
}

RedistributorStats RedistributorImpl::stats() {
  const MutexLock lock(issuing_);
  RedistributorStats stats = plans_.stats();
  stats.calls = num_runs_;
  if (IsInMesh()) stats.groups = groups_->stats();
  stats.symmetric = symmetric_;
  return stats;
}

}  // namespace meshift::run_internal

namespace meshift {

RunHandle::RunHandle(const RunHandle& other) : impl_(other.impl_), run_(other.run_) {
  if (run_ != nullptr) run_->handles.fetch_add(1, std::memory_order_relaxed);
}

void RunHandle::Release() { impl_->GiveBack(run_); }

bool RunHandle::IsDone() const { return run_ == nullptr || impl_->IsDone(*run_); }

absl::Status RunHandle::Wait() const {
  return run_ == nullptr ? absl::OkStatus() : impl_->Wait(*run_);
}

absl::Status RunHandle::Wait(Stream& stream) const {
  return run_ == nullptr ? absl::OkStatus() : impl_->Wait(*run_, stream);
}

}  // namespace meshift
