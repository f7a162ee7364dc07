#include "planner/planner.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "planner/assemble.h"
#include "planner/cost.h"
#include "planner/cross_mesh.h"
#include "planner/make_plan.h"
#include "planner/memory_limit.h"
#include "planner/memory_search.h"
#include "planner/per_dim.h"
#include "planner/reduction_choice.h"
#include "planner/search.h"
#include "planner/state.h"

namespace meshift {

std::string_view Name(PlannerKind kind) { return kind == PlannerKind::kBest ? "best" : "per-dim"; }

absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name) {
  if (name == "best") return PlannerKind::kBest;
  if (name == "per-dim") return PlannerKind::kPerDim;
  return InvalidArgument("'{}' is no planner; known are best, per-dim", name);
}

std::string_view Name(RaggedSizes sizes) {
  constexpr std::array<std::string_view, 3> kNames = {"cost", "max", "sum"};
  return kNames[static_cast<size_t>(sizes)];
}

absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name) {
  for (const RaggedSizes sizes : {RaggedSizes::kCost, RaggedSizes::kMax, RaggedSizes::kSum}) {
    if (Name(sizes) == name) return sizes;
  }
  return InvalidArgument("'{}' is no choice of ragged sizes; known are cost, max, sum", name);
}

namespace {

absl::Status NoPlan(const Problem& problem) {
  return Internal("no plan from {} to {}", problem.from().ToString(), problem.to().ToString());
}

// Of a plan on one mesh: has the model know how runs are handed their buffers.
TensorMemory SetMemory(const Sharding& from, const Sharding& to, const PlannerOptions& options,
                       CostOptions* cost) {
  const TensorMemory memory(from, to, options.buffers);
  cost->copied_bytes = memory.copied;
  cost->scratch_bytes = memory.scratch;
  return memory;
}

// `model` keeps to the limit that options.max_memory leaves.
absl::StatusOr<Path> FindPath(const Problem& problem, const CostModel& model,
                              const PlannerOptions& options, const TransitionRules& rules) {
  if (!options.max_memory) {
    std::optional<Path> path = FindCheapest(problem, model, rules);
    if (!path) return NoPlan(problem);
    return *std::move(path);
  }
  std::optional<LimitedPath> found = FindWithin(problem, model, rules);
  if (!found) return NoPlan(problem);
  if (!found->path) {
    return TensorMemory(problem.from(), problem.to(), options.buffers)
        .Refusal(*options.max_memory, found->least_workspace, found->is_least);
  }
  return *std::move(found->path);
}

}  // namespace

absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, PathSourceFn path_source) {
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
  CostOptions cost_options = CostOptionsOf(options, choice);
  const TensorMemory memory = SetMemory(from, to, options, &cost_options);
  std::optional<int64_t> limit;
  if (options.max_memory) {
    MESHIFT_ASSIGN_OR_RETURN(limit, memory.WorkspaceLimit(*options.max_memory));
  }
  if (options.planner == PlannerKind::kPerDim) {
    // One collective per mesh dim leaves no choice.
    const CostModel model(problem, options.topology, cost_options);
    Plan plan = Assemble(problem, model, PlanPerDim(problem), options, choice);
    const int64_t workspace = plan.total().workspace_bytes;
    if (limit && workspace > *limit) {
      return memory.Refusal(*options.max_memory, workspace, /*is_least=*/true);
    }
    return plan;
  }
  cost_options.max_workspace = limit;
  const CostModel model(problem, options.topology, cost_options);
  MESHIFT_ASSIGN_OR_RETURN(const Path path, path_source(problem, [&] {
                             return FindPath(problem, model, options, choice.rules);
                           }));
  return Assemble(problem, model, path, options, choice);
}

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options) {
  if (!(from.mesh() == to.mesh())) return MakeCrossPlan(from, to, options);
  return MakePlanOnMesh(from, to, options, [](const Problem&, FindPathFn find) { return find(); });
}

absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options) {
  if (!(from.mesh() == to.mesh())) return LeastCrossMemory(from, to, options);
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
  CostOptions cost_options = CostOptionsOf(options, choice);
  const TensorMemory memory = SetMemory(from, to, options, &cost_options);
  const CostModel model(problem, options.topology, cost_options);
  int64_t workspace = 0;
  if (options.planner == PlannerKind::kPerDim) {
    workspace = WorkspaceOf(problem, model, PlanPerDim(problem));
  } else {
    const std::optional<LeastPath> least = FindLeastWorkspace(problem, model, choice.rules);
    if (!least) return NoPlan(problem);
    workspace = least->workspace;
  }
  return SaturatingAdd(memory.together, workspace);
}

}  // namespace meshift
