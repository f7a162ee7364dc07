#include "comm/redistribution/run_core.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "comm/program/coalesce.h"
#include "comm/program/lowering.h"
#include "comm/program/program_parts.h"
#include "comm/redistribution/run_turn.h"
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

// Whether peers may know why a call has failed.
bool MayBeExplained(const absl::Status& status) {
  return status.code() != absl::StatusCode::kInvalidArgument &&
         status.code() != absl::StatusCode::kUnimplemented &&
         status.code() != absl::StatusCode::kResourceExhausted;
}

}  // namespace

RunCore::RunCore(const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options)
    : mesh_(mesh),
      engine_(engine),
      callers_(engine->caller_progress()),
      options_(options),
      tensor_device_(engine->tensor_device()),
      record_(CallRecord::Of(engine)),
      executor_(engine),
      plans_(engine->rank(), PlannerOf(mesh, *engine, options), options.expert.verify_plans,
             options.expert.max_cached_bytes,
             options.expert.coalesce_bytes.value_or(
                 engine->CoalesceBytes().value_or(DefaultCoalesceBytes(options.planning.topology))),
             [this](const DeviceMesh& m) { return GroupCache::CheckMesh(mesh_, m); }),
      lanes_(engine, options.expert.streams == StreamMode::kSingleStream) {}

absl::StatusOr<std::shared_ptr<RunCore>> RunCore::Create(const DeviceMesh& mesh, Engine* engine,
                                                         const RedistributorOptions& options) {
  if (options.expert.max_cached_bytes < 0) {
    return InvalidArgument("max_cached_bytes {} is negative", options.expert.max_cached_bytes);
  }
  if (options.plans && !(options.plans->options() == PlanningOptions(mesh, *engine, options))) {
    return InvalidArgument("the cache of plans is of other options than the redistributor");
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
  auto core = std::make_shared<RunCore>(mesh, engine, options);
  MESHIFT_RETURN_IF_ERROR(core->CheckThread());
  if (!mesh.PositionOf(engine->rank())) {
    // The root is split from the world without this rank.
    MESHIFT_RETURN_IF_ERROR(GroupCache::StayOut(engine, mesh));
    return core;
  }
  MESHIFT_ASSIGN_OR_RETURN(core->groups_, GroupCache::Create(engine, mesh));
  core->JoinRecord();
  if (engine->control() != nullptr && mesh.NumRanks() > 1) {
    std::vector<int64_t> ranks = mesh.Ranks();
    std::sort(ranks.begin(), ranks.end());
    const MutexLock lock(core->issuing_);
    core->posted_.resize(ControlRoot::kRememberedPosts);
    MESHIFT_ASSIGN_OR_RETURN(
        core->root_,
        engine->control()->Join(ranks, [core = core.get()](const absl::Status& status) {
          core->Fail(status, /*tell=*/false).IgnoreError();
        }));
  }
  core->record_->Log(LogEvent::Kind::kRedistributor, core->source_->name(),
                     SteadyNowNs() - begin_ns);
  return core;
}

absl::Status RunCore::Error() const {
  // Who hears of it may end the process.
  record_->AwaitDump();
  const MutexLock lock(mutex_);
  return error_;
}

absl::Status RunCore::Fail(const absl::Status& status, bool tell) {
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    is_first = error_.ok();
    if (is_first) error_ = status;
    if (is_first && source_ != nullptr) source_->BeginFailure(status);
    failed_ = true;
  }
  // What brings the peers' word goes on at once.
  if (!is_first) return tell ? Error() : status;
  const int64_t begin_ns = SteadyNowNs();
  // The peers hear the reason before they see that the groups have ended.
  if (tell && root_ != nullptr) root_->Fail(status);
  if (groups_ != nullptr) groups_->AbortAll();
  if (source_ == nullptr) return status;
  record_->Log(LogEvent::Kind::kAbort, Message(status), SteadyNowNs() - begin_ns);
  source_->EndFailure(/*may_block=*/tell);
  return status;
}

absl::Status RunCore::FailCall(int64_t call, const absl::Status& status) {
  MESHIFT_RETURN_IF_ERROR(Health());
  if (root_ == nullptr || call < 0 || !MayBeExplained(status)) return Fail(status, /*tell=*/true);
  return Fail(root_->Explain(call, status), /*tell=*/true);
}

absl::StatusOr<BoundProgram*> RunCore::ProgramForOther(PreparedPlan& prepared,
                                                       const TensorArgs& tensor, bool may_be_null) {
  MESHIFT_ASSIGN_OR_RETURN(const LoweringOptions layouts,
                           CheckViews(prepared.plan, engine_->rank(), tensor_device_,
                                      {.source = prepared.source.shape,
                                       .target = prepared.target.shape,
                                       .has_source = prepared.has_source,
                                       .has_target = prepared.has_target},
                                      tensor.source, tensor.target, tensor.consume_source));
  for (const auto& [name, view, has] :
       {std::tuple("source", &tensor.source, prepared.has_source),
        std::tuple("target", &tensor.target, prepared.has_target)}) {
    if (may_be_null || view->data != nullptr || NumElements(view->shape) == 0 || !has) continue;
    return InvalidArgument("the {} {} is null", name, view->ToString());
  }
  return plans_.ProgramOf(prepared, layouts);
}

absl::Status RunCore::CheckEngineOf(const RunHandle& run) const {
  if (run.core_->engine_ == engine_) return absl::OkStatus();
  return InvalidArgument("the run to come after is one of another engine");
}

absl::StatusOr<int64_t> RunCore::BeginCall(const Fingerprint& fingerprint,
                                           const std::shared_ptr<const std::string>& text) {
  const int64_t call = num_calls_++;
  if (root_ == nullptr) return call;
  const bool awaits =
      options_.agreement == Agreement::kAlways ||
      (options_.agreement == Agreement::kFirstCalls && call < options_.expert.agreement_calls);
  root_->Post({.call = call, .high = fingerprint.high, .low = fingerprint.low, .what = text.get()},
              awaits);
  // The post that was there is forgotten now.
  if (std::shared_ptr<const std::string>& place = posted_[call % ControlRoot::kRememberedPosts];
      place != text) {
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

absl::Status RunCore::BindAnew(BoundProgram* program) {
  for (size_t g = program->communicators.size(); g < program->program.groups.size(); ++g) {
    const ProgramGroup& group = program->program.groups[g];
    const int64_t begin_ns = SteadyNowNs();
    const int64_t created = groups_->stats().created;
    MESHIFT_ASSIGN_OR_RETURN(Communicator * communicator,
                             groups_->Get(program->program.meshes[group.mesh], group,
                                          {.one_channel = group.one_channel}));
    program->communicators.push_back(communicator);
    if (groups_->stats().created == created) continue;
    record_->Log(LogEvent::Kind::kSplit, communicator->ToString(), SteadyNowNs() - begin_ns);
  }
  for (const Instruction& instruction : program->program.instructions) {
    const bool all = instruction.kind == Instruction::Kind::kAllReduce;
    if (!all && instruction.kind != Instruction::Kind::kReduceScatter) continue;
    MESHIFT_RETURN_IF_ERROR(program->communicators[instruction.group]->Reserve(
        all ? Communicator::ReduceCall::kAllReduce : Communicator::ReduceCall::kReduceScatter,
        instruction.count, instruction.dtype, instruction.reduction));
  }
  MESHIFT_ASSIGN_OR_RETURN(program->ready,
                           executor_.Prepare(program->program, program->communicators));
  program->parts.clear();
  for (const ProgramSegment& segment : SegmentsOf(program->program)) {
    Communicator* const communicator =
        segment.group < 0 ? nullptr : program->communicators[segment.group];
    MESHIFT_ASSIGN_OR_RETURN(Lane * lane, lanes_.Of(communicator));
    if (program->parts.empty()) program->first_lane = lane;
    program->parts.push_back(
        {.first = segment.first, .size = segment.size, .stream = &lane->stream(), .done = nullptr});
  }
  program->runs_whole = program->ready.is_whole && program->parts.size() == 1;
  program->is_bound = true;
  return absl::OkStatus();
}

Run* RunCore::NewRun() {
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

void RunCore::GiveBack(Run* run) {
  if (run->handles.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  run->next_free = given_back_.load(std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(run->next_free, run, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
}

absl::Status RunCore::MarkAfter(const After& after, Run* run) {
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

absl::Status RunCore::WaitBefore(Stream& stream, const Run& run) {
  for (size_t i = 0; i < run.after_streams.size(); ++i) {
    MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, run.after[i]));
  }
  for (const Run* earlier : run.after_runs) {
    for (size_t i = 0; i < earlier->num_done; ++i) {
      MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, earlier->done[i]));
    }
  }
  return absl::OkStatus();
}

RunRecord* RunCore::RecordOf(BoundProgram& program) {
  if (options_.expert.time_steps || !program.runs_whole) return NewRecord();
  if (last_whole_.get() != &program) last_whole_ = program.shared_from_this();
  return nullptr;
}

absl::Status RunCore::Issue(BoundProgram& program, ProgramBuffers buffers, RunRecord* record,
                            Run* run) {
  Lane& lane = *program.first_lane;
  Stream& end = program.runs_whole ? lane.stream() : *program.parts.back().stream;
  const bool uses_lane = buffers.workspace == nullptr && program.workspace_bytes > 0;
  if (uses_lane) {
    MESHIFT_ASSIGN_OR_RETURN(buffers.workspace, lane.Reserve(program.workspace_bytes));
    MESHIFT_RETURN_IF_ERROR(lane.BeginUse());
  }
  if (run->IsAfterOthers()) MESHIFT_RETURN_IF_ERROR(WaitBefore(lane.stream(), *run));
  if (record == nullptr) {
    MESHIFT_RETURN_IF_ERROR(executor_.EnqueueWhole(program.ready, buffers, end, run->NextDone()));
  } else {
    MESHIFT_RETURN_IF_ERROR(
        executor_.EnqueueParts(program.program, program.communicators, buffers,
                               {.time_steps = options_.expert.time_steps, .ready = &program.ready},
                               absl::MakeSpan(program.parts), record));
    if (std::find(run->ends.begin(), run->ends.end(), &end) == run->ends.end()) {
      run->ends.push_back(&end);
    }
  }
  if (uses_lane) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t use, lane.EndUse(end));
    run->uses.emplace_back(&lane, use);
  }
  return absl::OkStatus();
}

absl::Status RunCore::EndIssue(Run* run) {
  for (Stream* const end : run->ends) {
    MESHIFT_RETURN_IF_ERROR(engine_->RecordInto(*end, run->NextDone()));
  }
  if (!run->uses.empty() && run->done[0]->InGraph()) [[unlikely]] {
    for (const auto& [lane, use] : run->uses) lane->KeepUse(use);
  }
  return absl::OkStatus();
}

RunHandle RunCore::NewHandle() {
  Run* const run = NewRun();
  run->handles = 1;
  return RunHandle(shared_from_this(), run);
}

absl::Status RunCore::BeginRun(const Fingerprint& fingerprint,
                               const std::shared_ptr<const std::string>& text, Run* run) {
  MESHIFT_ASSIGN_OR_RETURN(run->call, BeginCall(fingerprint, text));
  ++num_runs_;
  return absl::OkStatus();
}

absl::StatusOr<RunHandle> RunCore::Call(PreparedPlan& prepared, const Fingerprint& fingerprint,
                                        const std::shared_ptr<const std::string>& text,
                                        const TensorArgs& tensor, const Workspace& workspace,
                                        const After& after) {
  MESHIFT_RETURN_IF_ERROR(CheckAfter(after.run));
  MESHIFT_ASSIGN_OR_RETURN(BoundProgram* const program, ProgramFor(prepared, tensor));
  if (workspace.data != nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(
        const MemoryRange range,
        CheckWorkspace(workspace.data, workspace.bytes, program->workspace_bytes));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("source", RangeOf(tensor.source), range));
    MESHIFT_RETURN_IF_ERROR(CheckDisjoint("target", RangeOf(tensor.target), range));
  }
  RunHandle handle = NewHandle();
  Run* const run = handle.run_;
  MESHIFT_RETURN_IF_ERROR(BeginAfter(after, run));
  const ProgramBuffers buffers{
      .source = tensor.source.data, .target = tensor.target.data, .workspace = workspace.data};
  MESHIFT_RETURN_IF_ERROR(Recorded(
      [&]() -> decltype(auto) { return TextOf(program, *prepared.text); }, &program->has_run,
      /*num_done=*/1, run,
      [&]() MESHIFT_REQUIRES(issuing_) {
        return IssueCall(fingerprint, text, program, buffers, run);
      }));
  return handle;
}

absl::Status RunCore::IssueCall(const Fingerprint& fingerprint,
                                const std::shared_ptr<const std::string>& text,
                                BoundProgram* program, const ProgramBuffers& buffers, Run* run) {
  MESHIFT_RETURN_IF_ERROR(BeginRun(fingerprint, text, run));
  absl::Status status = Bind(program);
  if (status.ok()) status = Issue(*program, buffers, RecordOf(*program), run);
  if (status.ok()) status = EndIssue(run);
  return status.ok() ? status : FailCall(run->call, status);
}

absl::StatusOr<RunHandle> RunCore::Redistribute(const Redistribution& what) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!Takes()) return RunHandle();
  RunTurn turn(*this);
  MESHIFT_RETURN_IF_ERROR(turn.Enter(what.ticket));
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<PreparedPlan> prepared,
                           plans_.Find(PlanKey{&what.from, &what.to, what.reduce_dtype}));
  if (what.symmetric != nullptr) [[unlikely]] {
    return RedistributeSymmetric(*prepared, what);
  }
  return Call(*prepared, prepared->plan.fingerprint(), prepared->text,
              {.source = what.source, .target = what.target, .consume_source = what.consume_source},
              what.workspace, {.stream = what.after, .run = &what.after_run});
}

absl::StatusOr<RunHandle> RunCore::RunPlan(const Plan& plan, const TensorArgs& tensor,
                                           const Workspace& workspace, const After& after,
                                           std::optional<int64_t> ticket) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!Takes()) return RunHandle();
  RunTurn turn(*this);
  MESHIFT_RETURN_IF_ERROR(turn.Enter(ticket));
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<PreparedPlan> prepared, plans_.Find(plan));
  return Call(*prepared, prepared->plan.fingerprint(), prepared->text, tensor, workspace, after);
}

absl::Status RunCore::Prepare(PreparedPlan& prepared) {
  BoundProgram* const program = prepared.program.get();
  bool prepares = false;  // is of the phase of setup
  return Recorded([&]() -> decltype(auto) { return TextOf(program, *prepared.text); }, &prepares,
                  /*num_done=*/0, /*run=*/nullptr,
                  [&]() MESHIFT_REQUIRES(issuing_) {
                    return PrepareCall(prepared.plan.fingerprint(), prepared.text, {program});
                  });
}

absl::Status RunCore::PrepareCall(const Fingerprint& fingerprint,
                                  const std::shared_ptr<const std::string>& text,
                                  absl::Span<BoundProgram* const> programs) {
  MESHIFT_ASSIGN_OR_RETURN(const int64_t call, BeginCall(fingerprint, text));
  for (BoundProgram* const program : programs) {
    const absl::Status status = MakeReady(program);
    if (!status.ok()) return FailCall(call, status);
  }
  return absl::OkStatus();
}

absl::Status RunCore::MakeReady(BoundProgram* program) {
  MESHIFT_RETURN_IF_ERROR(Bind(program));
  if (recorder_ != nullptr) recorder_->Reserve();
  return program->first_lane->Reserve(program->workspace_bytes).status();
}

absl::StatusOr<Plan> RunCore::Prepare(const PlanKey& what) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  const MutexLock lock(issuing_);
  if (!Takes()) return plans_.FindPlan(what);
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<PreparedPlan> prepared, plans_.Find(what));
  MESHIFT_RETURN_IF_ERROR(Prepare(*prepared));
  return prepared->plan;
}

absl::Status RunCore::Prepare(absl::Span<const Plan> plans) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  if (!Takes()) return absl::OkStatus();
  const MutexLock lock(issuing_);
  for (const Plan& plan : plans) {
    MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<PreparedPlan> prepared, plans_.Find(plan));
    MESHIFT_RETURN_IF_ERROR(Prepare(*prepared));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RunCore::WorkspaceBytes(const Plan& plan, const TensorView& source,
                                                const TensorView& target,
                                                bool consume_source) const {
  if (!Takes()) return 0;
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

absl::Status RunCore::Wait(const Run& run) {
  MESHIFT_RETURN_IF_ERROR(CheckThread());
  for (size_t i = 0; i < run.num_done; ++i) {
    absl::Status status = engine_->Wait(run.done[i]);
    if (status.ok()) continue;
    // A refusal, after which nothing is wrong.
    if (run.done[i]->InGraph()) return status;
    return FailCall(run.call, status);
  }
  for (const auto& [lane, use] : run.uses) lane->NoteDone(use);
  return Health();
}

bool RunCore::IsDone(const Run& run) {
  if (callers_ != nullptr) callers_->Advance();
  const auto is_reached = [](const std::shared_ptr<Event>& event) { return event->IsReached(); };
  return std::all_of(run.done.begin(), run.done.begin() + run.num_done, is_reached) ||
         !Health().ok();
}

absl::Status RunCore::Wait(const Run& run, Stream& stream) {
  MESHIFT_RETURN_IF_ERROR(MayCall());
  for (size_t i = 0; i < run.num_done; ++i) {
    MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, run.done[i]));
  }
  return absl::OkStatus();
}

void RunCore::Abort() {
  Fail(absl::AbortedError("the redistributor was aborted"), /*tell=*/true).IgnoreError();
}

RedistributorStats RunCore::stats() {
  const MutexLock lock(issuing_);
  RedistributorStats stats;
  stats.calls = num_runs_;
  stats.plans_made = plans_.stats().plans_made;
  stats.plans_reused = plans_.stats().plans_reused;
  stats.plans_cached = static_cast<int64_t>(plans_.size());
  stats.programs_made = plans_.stats().programs_made;
  if (Takes()) stats.groups = groups_->stats();
  stats.symmetric = symmetric_;
  return stats;
}

}  // namespace meshift::run_internal

namespace meshift {

RunHandle::RunHandle(const RunHandle& other) : core_(other.core_), run_(other.run_) {
  if (run_ != nullptr) run_->handles.fetch_add(1, std::memory_order_relaxed);
}

void RunHandle::Release() { core_->GiveBack(run_); }

bool RunHandle::IsDone() const { return run_ == nullptr || core_->IsDone(*run_); }

absl::Status RunHandle::Wait() const {
  return run_ == nullptr ? absl::OkStatus() : core_->Wait(*run_);
}

absl::Status RunHandle::Wait(Stream& stream) const {
  return run_ == nullptr ? absl::OkStatus() : core_->Wait(*run_, stream);
}

}  // namespace meshift
