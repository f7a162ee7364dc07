#include "testing/plan_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "comm/program/lowering.h"
#include "comm/program/program_bytes.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift::testkit {
namespace {

// Fills targets and workspaces before a run, so that elements that are not written are detected.
constexpr std::byte kPoison{0xa5};
// The world has a rank for every number up to the mesh's largest. Each costs memory, used or not.
constexpr int64_t kMaxWorld = int64_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<PlanRunner>> PlanRunner::Create(const DeviceMesh& mesh,
                                                               std::chrono::milliseconds timeout) {
  int64_t last = mesh.NumRanks() - 1;
  if (!mesh.IsRowMajor()) {
    for (int64_t rank : mesh.Ranks()) last = std::max(last, rank);
  }
  if (last >= kMaxWorld) {
    return absl::ResourceExhaustedError(
        fmt::format("rank {} needs a world of {} ranks; a test may have at most {}", last, last + 1,
                    kMaxWorld));
  }
  auto runner = std::unique_ptr<PlanRunner>(new PlanRunner(mesh));
  MESHIFT_ASSIGN_OR_RETURN(
      runner->world_,
      LocalWorld::Create({.num_ranks = last + 1, .num_workers = 0, .timeout = timeout}));
  runner->ranks_.reserve(mesh.NumRanks());
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    Engine* const engine = runner->world_->engine(mesh.RankAt(position));
    Rank rank;
    rank.engine = engine;
    MESHIFT_ASSIGN_OR_RETURN(rank.groups, GroupCache::Create(engine, mesh));
    MESHIFT_ASSIGN_OR_RETURN(rank.stream, engine->CreateStream());
    runner->ranks_.push_back(std::move(rank));
  }
  return runner;
}

PlanRunner::~PlanRunner() {
  // A failed run may have left work on streams: end it before the buffers are freed.
  for (Rank& rank : ranks_) rank.groups->AbortAll();
  for (Rank& rank : ranks_) rank.stream.reset();
}

absl::StatusOr<PlanRun> PlanRunner::Run(const Plan& plan, absl::Span<const Pass> passes) {
  for (const Sharding* sharding : {&plan.from(), &plan.to()}) {
    const DeviceMesh& mesh = sharding->mesh();
    if (mesh == mesh_) continue;
    for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
      if (mesh_.PositionOf(mesh.RankAt(position))) continue;
      return InvalidArgument("rank {} of {} is not in mesh {}", mesh.RankAt(position),
                             sharding->ToString(), mesh_.ToString());
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(const Oracle oracle,
                           Oracle::Create(plan.from(), plan.to(), plan.options().reduce_dtype));
  MESHIFT_RETURN_IF_ERROR(Prepare(plan, oracle));
  PlanRun run;
  for (const Pass& pass : passes) {
    MESHIFT_ASSIGN_OR_RETURN(CheckResult result, RunPass(oracle, pass));
    if (pass.order == ReductionOrder::kAdversarial) {
      result.wrong = 0;
      result.first_wrong.clear();
    }
    run.data.Add(result);
  }
  run.bytes_sent.resize(passes.empty() ? 0 : plan.steps().size());
  for (const Rank& rank : ranks_) {
    if (passes.empty()) break;
    const std::vector<int64_t> bytes = RecordOf(rank.program).bytes_sent;
    for (size_t i = 0; i < run.bytes_sent.size(); ++i) {
      run.bytes_sent[i] = std::max(run.bytes_sent[i], bytes[i]);
    }
    run.rank_bytes_sent.push_back(bytes);
  }
  return run;
}

absl::Status PlanRunner::Prepare(const Plan& plan, const Oracle& oracle) {
  for (int64_t position = 0; position < mesh_.NumRanks(); ++position) {
    Rank& rank = ranks_[position];
    const int64_t number = mesh_.RankAt(position);
    MESHIFT_ASSIGN_OR_RETURN(rank.program, Lower(plan, number));
    rank.source_position = plan.from().mesh().PositionOf(number);
    rank.target_position = plan.to().mesh().PositionOf(number);
    rank.source.resize(rank.source_position ? oracle.SourceBytes(*rank.source_position) : 0);
    rank.target.resize(rank.target_position ? oracle.TargetBytes(*rank.target_position) : 0);
    rank.workspace.resize(rank.program.workspace_bytes);
  }
  for (Rank& rank : ranks_) {
    std::vector<Communicator*> communicators;
    for (const ProgramGroup& group : rank.program.groups) {
      MESHIFT_ASSIGN_OR_RETURN(Communicator * communicator,
                               rank.groups->Get(rank.program.meshes[group.mesh], group));
      communicators.push_back(communicator);
    }
    MESHIFT_ASSIGN_OR_RETURN(rank.executable, rank.engine->Prepare(rank.program, communicators));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckResult> PlanRunner::RunPass(const Oracle& oracle, const Pass& pass) {
  world_->SetReductionOrder(pass.order, pass.domain_size);
  for (Rank& rank : ranks_) {
    if (rank.source_position) {
      MESHIFT_RETURN_IF_ERROR(
          oracle.FillSource(pass.fill, *rank.source_position, absl::MakeSpan(rank.source)));
    }
    std::fill(rank.target.begin(), rank.target.end(), kPoison);
    std::fill(rank.workspace.begin(), rank.workspace.end(), kPoison);
  }
  for (Rank& rank : ranks_) {
    const TensorBuffers tensor = {.source = rank.source.data(), .target = rank.target.data()};
    MESHIFT_RETURN_IF_ERROR(rank.executable->Enqueue(
        rank.program.All(), {.workspace = rank.workspace.data(), .tensors = {&tensor, 1}},
        *rank.stream, /*done=*/nullptr));
  }
  std::vector<absl::Span<const std::byte>> targets(oracle.target().mesh().NumRanks());
  for (int64_t position = 0; position < mesh_.NumRanks(); ++position) {
    Rank& rank = ranks_[position];
    MESHIFT_RETURN_IF_ERROR(rank.engine->Synchronize(*rank.stream));
    if (rank.target_position) targets[*rank.target_position] = rank.target;
  }
  return oracle.Check(pass.fill, targets);
}

}  // namespace meshift::testkit
