#include "tests/plan_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "comm/lowering.h"

namespace meshift {
namespace {

// What targets and workspaces hold before a run, so that what is not written shows.
constexpr std::byte kPoison{0xa5};

}  // namespace

PlanRunner::PlanRunner(const DeviceMesh& mesh) : mesh_(mesh), ranks_(mesh.NumRanks()) {
  int64_t last = 0;
  for (int64_t rank : mesh.Ranks()) last = std::max(last, rank);
  // A damaged plan may leave a collective without its members: that is to end soon.
  world_ = *LocalWorld::Create(
      {.num_ranks = last + 1, .num_workers = 0, .timeout = std::chrono::milliseconds(200)});
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    Engine* const engine = world_->engine(mesh.RankAt(position));
    Rank& rank = ranks_[position];
    rank.groups = *GroupCache::Create(engine, mesh);
    rank.stream = *engine->CreateStream();
    rank.executor = std::make_unique<Executor>(engine);
  }
}

PlanRunner::~PlanRunner() {
  // A run that failed may have left work on streams: it ends before the buffers do.
  for (Rank& rank : ranks_) rank.groups->AbortAll();
  for (Rank& rank : ranks_) rank.stream.reset();
}

absl::StatusOr<RunOutcome> PlanRunner::Run(const Plan& plan) {
  MESHIFT_ASSIGN_OR_RETURN(const testkit::Oracle oracle,
                           testkit::Oracle::Create(plan.from(), plan.to()));
  for (int64_t position = 0; position < mesh_.NumRanks(); ++position) {
    Rank& rank = ranks_[position];
    MESHIFT_ASSIGN_OR_RETURN(rank.program, Lower(plan, mesh_.RankAt(position)));
    rank.source.resize(oracle.SourceBytes(position));
    rank.target.resize(oracle.TargetBytes(position));
    rank.workspace.resize(rank.program.workspace_bytes);
  }
  for (Rank& rank : ranks_) {
    rank.communicators.clear();
    for (const ProgramGroup& group : rank.program.groups) {
      MESHIFT_ASSIGN_OR_RETURN(Communicator * communicator, rank.groups->Get(mesh_, group));
      rank.communicators.push_back(communicator);
    }
  }
  RunOutcome outcome;
  world_->SetReductionOrder(ReductionOrder::kRanks, 1);
  for (const uint64_t seed : {1, 2}) {
    MESHIFT_RETURN_IF_ERROR(
        RunOnce(plan, oracle, {.values = testkit::Values::kExact, .seed = seed}, &outcome));
  }
  world_->SetReductionOrder(ReductionOrder::kAdversarial, 1);
  MESHIFT_RETURN_IF_ERROR(
      RunOnce(plan, oracle, {.values = testkit::Values::kRounding, .seed = 3}, &outcome));

  for (size_t i = 0; i < plan.steps().size(); ++i) {
    int64_t sent = 0;
    for (const Rank& rank : ranks_) sent = std::max(sent, rank.record.bytes_sent[i]);
    if (sent == plan.steps()[i].bytes_sent) continue;
    ++outcome.bytes_differ;
    if (outcome.message.empty()) {
      outcome.message =
          fmt::format("step {} sends {} bytes, planned {}", i, sent, plan.steps()[i].bytes_sent);
    }
  }
  return outcome;
}

absl::Status PlanRunner::RunOnce(const Plan& plan, const testkit::Oracle& oracle,
                                 const testkit::Fill& fill, RunOutcome* outcome) {
  for (int64_t position = 0; position < mesh_.NumRanks(); ++position) {
    Rank& rank = ranks_[position];
    MESHIFT_RETURN_IF_ERROR(oracle.FillSource(fill, position, absl::MakeSpan(rank.source)));
    std::fill(rank.target.begin(), rank.target.end(), kPoison);
    std::fill(rank.workspace.begin(), rank.workspace.end(), kPoison);
  }
  for (Rank& rank : ranks_) {
    MESHIFT_RETURN_IF_ERROR(rank.executor->Enqueue(rank.program, rank.communicators,
                                                   {.source = rank.source.data(),
                                                    .target = rank.target.data(),
                                                    .workspace = rank.workspace.data()},
                                                   {}, *rank.stream, &rank.record));
  }
  std::vector<absl::Span<const std::byte>> targets;
  for (int64_t position = 0; position < mesh_.NumRanks(); ++position) {
    Rank& rank = ranks_[position];
    Engine* const engine = world_->engine(mesh_.RankAt(position));
    MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*rank.stream));
    targets.emplace_back(rank.target);
  }
  MESHIFT_ASSIGN_OR_RETURN(const testkit::CheckResult result, oracle.Check(fill, targets));
  // Adversarial sums are off by more than rounding; what counts there is that replicas agree.
  if (fill.values == testkit::Values::kExact) outcome->wrong += result.wrong;
  outcome->replicas_differ += result.replicas_differ;
  if (outcome->wrong + outcome->replicas_differ > 0 && outcome->message.empty()) {
    outcome->message =
        fmt::format("{}: {}", plan.steps().empty() ? "no steps" : plan.steps()[0].ToString(),
                    result.ToString());
  }
  return absl::OkStatus();
}

}  // namespace meshift
