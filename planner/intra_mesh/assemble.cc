#include "planner/intra_mesh/assemble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/checked_math.h"
#include "placement/cast.h"
#include "planner/cost/lower_bound.h"
#include "planner/graph/transitions.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/memory_limit.h"
#include "planner/plan/workspace.h"
#include "planner/search/value_rule.h"

namespace meshift {
namespace {

// `placed`: `before` as a sharding.
Step MakeStep(const Problem& problem, const CostModel& model, int mesh, StepOp op,
              const State& before, const Sharding& placed, const State& after,
              const Traffic& traffic) {
  const DimMask dims = StepDims(problem, op, before, after);
  Step step{.op = op, .mesh = mesh, .sizes = traffic.sizes, .after = problem.ToSharding(after)};
  int64_t divisor = 1;
  bool averages = false;
  ReduceOp reduce_op = ReduceOp::kSum;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if ((dims >> d & 1) == 0) continue;
    step.mesh_dims.push_back(problem.mesh_dim(d));
    if (!IsReduction(op)) continue;
    if (before.op(d) == ReduceOp::kAvg) {
      averages = true;
      divisor *= problem.size(d);
    } else {
      reduce_op = before.op(d);
    }
  }
  const CutLists cuts_before = problem.Cuts(before);
  const CutLists cuts_after = problem.Cuts(after);
  for (int k = 0; k < problem.tensor_rank() && !problem.HasOwners(); ++k) {
    if (!(cuts_before.of[k] == cuts_after.of[k])) step.tensor_dims.push_back(k);
  }
  if (problem.HasOwners()) {
    step.tensor_dims = ChangedTensorDims(placed, step.after);
    step.op = OpFor(step, placed);
  }
  if (IsCollective(op)) {
    step.group_size = model.GroupSize(dims);
    step.groups = problem.mesh().NumRanks() / model.GroupSize(dims);
    step.wire_dtype = problem.dtype(before.stage());
  }
  if (IsReduction(op)) {
    step.reduce_op = averages ? ReduceOp::kAvg : reduce_op;
    step.reduce_order = model.ordered() ? ReduceOrder::kAscending : ReduceOrder::kAny;
    if (averages) step.divisor = divisor;
    if (traffic.reduce_stages > 1) step.reduce_stages = traffic.reduce_stages;
    step.accumulate_dtype = AccumulateDType(*step.wire_dtype);
  }
  step.bytes_in = problem.MaxBytes(before);
  step.bytes_out = problem.MaxBytes(after);
  step.bytes_sent = traffic.bytes_sent;
  step.est_ns = traffic.est_ns;
  return step;
}

std::string DimNames(const Problem& problem, const Step& step) {
  std::vector<std::string> names;
  for (int d : step.mesh_dims) names.push_back(problem.mesh().dim(d).name);
  return fmt::format("{}", fmt::join(names, ","));
}

PlanInputs InputsOf(const PlannerOptions& options, const PlanGroups& groups) {
  PlanInputs inputs{options};
  inputs.options.engine = EngineCapabilities::Of(options.engine.name());
  if (options.reproducibility == Reproducibility::kBatchInvariant) {
    inputs.options.engine.native_invariance = options.engine.native_invariance;
  }
  inputs.options.groups = groups.Stated();
  return inputs;
}

}  // namespace

PlanAssembly::PlanAssembly(std::vector<DeviceMesh> meshes, const Sharding& from, const Sharding& to,
                           const PlannerOptions& options, const PlanGroups& groups)
    : options_(options),
      groups_(groups),
      fields_{.meshes = std::move(meshes),
              .from_mesh = 0,
              .to_mesh = 0,
              .from = from,
              .to = to,
              .kept = Reproducibility::kReplicas,
              .inputs = InputsOf(options, groups)} {
  fields_.to_mesh = static_cast<int>(fields_.meshes.size()) - 1;
}

void PlanAssembly::AddStep(Step step, int64_t send_piece_bytes, int64_t receive_piece_bytes) {
  PlanTotals& total = fields_.total;
  total.collectives += IsCollective(step.op) ? 1 : 0;
  total.bytes_sent = SaturatingAdd(total.bytes_sent, step.bytes_sent);
  total.est_ns = SaturatingAdd(total.est_ns, step.est_ns);
  pieces_.push_back({send_piece_bytes, receive_piece_bytes});
  fields_.steps.push_back(std::move(step));
}

void PlanAssembly::AddPath(const Problem& problem, const CostModel& model, const Path& path,
                           const ReductionChoice& choice, int mesh) {
  const bool blocks = choice.ordered && options_.reduce_block > 0;
  fields_.steps.reserve(fields_.steps.size() + path.moves.size());
  State before = problem.source();
  Sharding placed = problem.from();
  for (const auto& [op, after] : path.moves) {
    const Traffic traffic = model.Measure(op, before, after);
    Step step = MakeStep(problem, model, mesh, op, before, placed, after, traffic);
    if (blocks && IsReduction(op)) step.reduce_block = options_.reduce_block;
    if (IsReduction(op)) {
      const DimMask dims = StepDims(problem, op, before, after);
      if (!choice.exact && !choice.ordered && fields_.kept == Reproducibility::kReplicas &&
          !IsSingleSourced(problem, before, dims)) {
        fields_.kept = Reproducibility::kNone;
        std::string idle;
        for (int d = 0; d < problem.num_dims(); ++d) {
          if ((dims >> d & 1) == 0 && before.IsReplicate(d)) {
            idle += (idle.empty() ? "" : ",") + problem.mesh().dim(problem.mesh_dim(d)).name;
          }
        }
        fields_.why = fmt::format(
            "step {}, the {} over {}, is computed by several groups: {} is replicated there",
            fields_.steps.size(), Name(step.op), DimNames(problem, step), idle);
      }
    }
    placed = step.after;
    AddStep(std::move(step), traffic.send_pack_bytes, traffic.receive_pack_bytes);
    before = after;
  }
}

void PlanAssembly::NoteValuesBeyond(const Problem& problem, const Path& path,
                                    const ReductionChoice& choice) {
  if (options_.planner != PlannerKind::kBest) return;
  const ValueRule rule(problem, choice.rules.max_value);
  int64_t most = 0;
  for (const Move& move : path.moves) {
    if (!rule.MayHold(move.after)) most = std::max(most, problem.MaxBytes(move.after));
  }
  fields_.inputs.exceeded_max_value = most;
}

Plan PlanAssembly::Seal(const LowerBound& bound, const std::string& why) && {
  PlanTotals& total = fields_.total;
  const TensorMemory memory(fields_.from, fields_.to, options_.buffers);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto& [send, receive] = pieces_[i];
    int64_t workspace = PiecesBytes(send, receive, i > 0 ? memory.scratch : 0);
    if (i > 0) workspace = SaturatingAdd(workspace, AlignedPiece(fields_.steps[i].bytes_in));
    if (i + 1 < pieces_.size()) {
      workspace = SaturatingAdd(workspace, AlignedPiece(fields_.steps[i].bytes_out));
    }
    total.workspace_bytes = std::max(total.workspace_bytes, workspace);
  }
  if (memory.copied > 0 && fields_.steps.size() == 1 &&
      WorksOnCopy(fields_.steps[0].op, fields_.from, fields_.to)) {
    total.workspace_bytes = SaturatingAdd(total.workspace_bytes, memory.copied);
  }
  if (groups_.IsBounded()) total.setup_ns = groups_.SetupNs(groups_.UsedBy(fields_.steps));
  total.peak_bytes = SaturatingAdd(memory.together, total.workspace_bytes);
  fields_.lower_bound = bound;
  if (fields_.kept == Reproducibility::kReplicas) {
    if (!why.empty()) {
      fields_.kept = std::max(fields_.kept, options_.reproducibility);
      fields_.why = why;
    } else {
      fields_.why = "every value is reduced by one group; the rest is copied";
    }
  }
  return Plan::Seal(std::move(fields_));
}

Plan Assemble(const Problem& problem, const CostModel& model, const Path& path,
              const PlannerOptions& options, const ReductionChoice& choice,
              const PlanGroups& groups) {
  PlanAssembly plan({problem.mesh()}, problem.from(), problem.to(), options, groups);
  plan.AddPath(problem, model, path, choice, /*mesh=*/0);
  plan.NoteValuesBeyond(problem, path, choice);
  const bool adds = std::any_of(path.moves.begin(), path.moves.end(),
                                [](const Move& move) { return IsReduction(move.op); });
  const bool adds_identities = adds && !choice.reduces;
  return std::move(plan).Seal(LeastCost(problem, model),
                              adds_identities ? choice.why_masked : choice.why);
}

absl::StatusOr<PlanGroups> GroupsOf(absl::Span<const DeviceMesh> meshes,
                                    const PlannerOptions& options, WorkBudget& budget) {
  constexpr int64_t kListedWork = 12;  // per rank and set of mesh dims
  for (const DeviceMesh& mesh : meshes) {
    const bool compares =
        meshes.size() > 1 || options.groups.existing_groups || options.groups.root;
    if (mesh.IsRowMajor() || !options.groups.IsSet() || !compares) continue;
    const int64_t sets = int64_t{1} << std::min(mesh.NumDims(), kMaxStateDims);
    if (!budget.Charge(SaturatingMul(kListedWork, sets), mesh.NumRanks())) {
      return budget.Refusal("planning");
    }
  }
  return PlanGroups::Create(meshes, options.groups, options.topology.constants().group_setup_ns);
}

}  // namespace meshift
