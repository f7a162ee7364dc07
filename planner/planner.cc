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
#include "planner/cross_plan.h"
#include "planner/make_plan.h"
#include "planner/memory_limit.h"
#include "planner/memory_search.h"
#include "planner/mesh_paths.h"
#include "planner/per_dim.h"
#include "planner/plan_groups.h"
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

// Of a plan on one mesh: has the model know how runs are handed their buffers.
TensorMemory SetMemory(const Sharding& from, const Sharding& to, const PlannerOptions& options,
                       CostOptions* cost) {
  const TensorMemory memory(from, to, options.buffers);
  cost->copied_bytes = memory.copied;
  cost->scratch_bytes = memory.scratch;
  return memory;
}

}  // namespace

absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, PathSourceFn path_source) {
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
  PlanGroups groups;
  if (options.groups.IsSet()) {
    MESHIFT_ASSIGN_OR_RETURN(groups, GroupsOf({from.mesh()}, options));
  }
  CostOptions cost_options = CostOptionsOf(options, choice);
  const TensorMemory memory = SetMemory(from, to, options, &cost_options);
  std::optional<int64_t> limit;
  if (options.max_memory) {
    MESHIFT_ASSIGN_OR_RETURN(limit, memory.WorkspaceLimit(*options.max_memory));
  }
  if (options.planner == PlannerKind::kPerDim) {
    // One collective per mesh dim leaves no choice.
    const CostModel model(problem, options.topology, cost_options);
    Plan plan = Assemble(problem, model, PlanPerDim(problem), options, choice, groups);
    MESHIFT_RETURN_IF_ERROR(groups.Check(groups.UsedBy(plan.steps())));
    const int64_t workspace = plan.total().workspace_bytes;
    if (limit && workspace > *limit) {
      return memory.Refusal(*options.max_memory, workspace, /*is_least=*/true);
    }
    return plan;
  }
  cost_options.max_workspace = limit;
  const CostModel model(problem, options.topology, cost_options);
  const MeshPaths paths(problem, model, options, choice.rules, groups, memory);
  MESHIFT_ASSIGN_OR_RETURN(const Path path, path_source(problem, [&] { return paths.Cheapest(); }));
  return Assemble(problem, model, path, options, choice, groups);
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
  PlanGroups groups;
  if (options.groups.IsSet()) {
    MESHIFT_ASSIGN_OR_RETURN(groups, GroupsOf({from.mesh()}, options));
  }
  CostOptions cost_options = CostOptionsOf(options, choice);
  const TensorMemory memory = SetMemory(from, to, options, &cost_options);
  const CostModel model(problem, options.topology, cost_options);
  int64_t workspace = 0;
  if (options.planner == PlannerKind::kPerDim) {
    const Path path = PlanPerDim(problem);
    const Plan plan = Assemble(problem, model, path, options, choice, groups);
    MESHIFT_RETURN_IF_ERROR(groups.Check(groups.UsedBy(plan.steps())));
    workspace = WorkspaceOf(problem, model, path);
  } else {
    const MeshPaths paths(problem, model, options, choice.rules, groups, memory);
    MESHIFT_ASSIGN_OR_RETURN(const Least<Path> least, paths.LeastWorkspace());
    workspace = least.workspace;
  }
  return SaturatingAdd(memory.together, workspace);
}

}  // namespace meshift
