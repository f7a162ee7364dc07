// Also implements MeshProblem::Create() of planner/intra_mesh/mesh_problem.h.
#include "planner/intra_mesh/plan_on_mesh.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "placement/unit_dims.h"
#include "planner/cost/cost.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/fallbacks.h"
#include "planner/intra_mesh/many_owners.h"
#include "planner/intra_mesh/mesh_paths.h"
#include "planner/intra_mesh/mesh_problem.h"
#include "planner/intra_mesh/per_dim.h"
#include "planner/limits/memory_search.h"
#include "planner/search/search.h"

namespace meshift {
namespace {

// The plan of the per-dim planner, which has only one path to check against the limits.
absl::StatusOr<Plan> PlanPerDimOnMesh(const MeshProblem& on_mesh, const PlannerOptions& options) {
  const CostModel model(on_mesh.problem, options.topology, on_mesh.cost);
  Plan plan = Assemble(on_mesh.problem, model, PlanPerDim(on_mesh.problem), options, on_mesh.choice,
                       on_mesh.groups);
  MESHIFT_RETURN_IF_ERROR(on_mesh.groups.Check(on_mesh.groups.UsedBy(plan.steps())));
  const int64_t workspace = plan.total().workspace_bytes;
  if (on_mesh.workspace_limit && workspace > *on_mesh.workspace_limit) {
    return on_mesh.memory.Refusal(*options.max_memory, workspace, /*is_least=*/true);
  }
  return plan;
}

// `sharding` with R on the mesh dims that are not partial, or on all.
Sharding WithReplicas(const Sharding& sharding, bool all) {
  std::vector<Placement> placements;
  for (const Placement& p : sharding.placements()) {
    placements.push_back(p.IsPartial() && !all ? p : Placement::Replicate());
  }
  return sharding.WithPlacements(std::move(placements)).value();
}

// Whether the plan has casts alone: without elements all placements say the same. Not if the
// target's dtype does not have an op of the source, which the steps would name.
bool NeedsCastsAlone(const Sharding& from, const Sharding& to, const PlannerOptions& options) {
  return NumElements(from.shape()) == 0 && from.shape() == to.shape() &&
         options.planner != PlannerKind::kPerDim && from.WithDType(to.dtype()).ok();
}

absl::StatusOr<Plan> PlanWithoutElements(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options, WorkBudget& budget,
                                         PathSourceFn path_source) {
  // Ends that no values could have are refused, by the same rules in all notations.
  const absl::Status allowed =
      MeshProblem::Create(WithReplicas(from, false), WithReplicas(to, false), options, budget)
          .status();
  if (!allowed.ok()) {
    const absl::Status as_written = MeshProblem::Create(from, to, options, budget).status();
    return absl::IsInvalidArgument(as_written) ? as_written : allowed;
  }
  MESHIFT_ASSIGN_OR_RETURN(
      const MeshProblem on_mesh,
      MeshProblem::Create(WithReplicas(from, true), WithReplicas(to, true), options, budget));
  const CostModel model(on_mesh.problem, options.topology, on_mesh.cost);
  const MeshPaths paths(on_mesh.problem, model, options, on_mesh.choice.rules, on_mesh.groups,
                        on_mesh.memory);
  MESHIFT_ASSIGN_OR_RETURN(const Path path,
                           path_source(on_mesh.problem, [&] { return paths.Cheapest(); }));
  PlanFields plan =
      Assemble(on_mesh.problem, model, path, options, on_mesh.choice, on_mesh.groups).fields();
  for (Step& step : plan.steps) {
    MESHIFT_ASSIGN_OR_RETURN(step.after, from.WithDType(step.after.dtype()));
  }
  plan.from = from;
  plan.to = to;
  return Plan::Seal(std::move(plan));
}

}  // namespace

absl::StatusOr<MeshProblem> MeshProblem::Create(const Sharding& from, const Sharding& to,
                                                const PlannerOptions& options, WorkBudget& budget) {
  MESHIFT_ASSIGN_OR_RETURN(Problem problem, Problem::Create(from, to, options.reduce_dtype));
  problem.SetBudget(&budget);
  MESHIFT_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReductions(problem, options));
  PlanGroups groups;
  if (options.groups.IsSet()) {
    MESHIFT_ASSIGN_OR_RETURN(groups, GroupsOf({from.mesh()}, options, budget));
  }
  const TensorMemory memory(from, to, options.buffers);
  CostOptions cost = CostOptionsOf(options, choice);
  cost.copied_bytes = memory.copied;
  cost.scratch_bytes = memory.scratch;
  std::optional<int64_t> limit;
  if (options.max_memory) {
    MESHIFT_ASSIGN_OR_RETURN(limit, memory.WorkspaceLimit(*options.max_memory));
  }
  return MeshProblem{std::move(problem), std::move(choice), std::move(groups), memory, cost, limit};
}

absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source) {
  if (NeedsCastsAlone(from, to, options)) {
    return PlanWithoutElements(from, to, options, budget, path_source);
  }
  if (HasManyOwners(from) || HasManyOwners(to)) {
    return PlanManyOwners(from, to, options, budget, path_source);
  }
  MESHIFT_ASSIGN_OR_RETURN(const MeshProblem on_mesh,
                           MeshProblem::Create(from, to, options, budget));
  if (options.planner == PlannerKind::kPerDim) return PlanPerDimOnMesh(on_mesh, options);
  CostOptions cost = on_mesh.cost;
  cost.max_workspace = on_mesh.workspace_limit;
  const CostModel model(on_mesh.problem, options.topology, cost);
  const auto find = [&]() -> absl::StatusOr<Path> {
    const int64_t before = budget.done();
    const TransitionRules& rules = on_mesh.choice.rules;
    absl::StatusOr<Path> path =
        MeshPaths(on_mesh.problem, model, options, rules, on_mesh.groups, on_mesh.memory)
            .Cheapest();
    if (!path.ok() && rules.max_value != INT64_MAX && !budget.exhausted()) {
      path = FindBeyondRule(on_mesh, model, options, path.status());
    }
    if (budget.exhausted()) return budget.Refusal("planning");
    if (path.ok()) path->work = budget.done() - before;
    return path;
  };
  const absl::StatusOr<Path> path = path_source(on_mesh.problem, find);
  if (!path.ok() && options.groups.IsSet() && !budget.exhausted()) {
    return PlanThroughReplicas(from, to, on_mesh, options, budget, path.status());
  }
  MESHIFT_RETURN_IF_ERROR(path.status());
  return Assemble(on_mesh.problem, model, *path, options, on_mesh.choice, on_mesh.groups);
}

absl::StatusOr<int64_t> LeastMemoryOnMesh(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options, WorkBudget& budget) {
  PlannerOptions unlimited = options;
  // These have only one plan.
  if (NeedsCastsAlone(from, to, options) || HasManyOwners(from) || HasManyOwners(to)) {
    unlimited.max_memory.reset();
    MESHIFT_ASSIGN_OR_RETURN(
        const Plan plan, MakePlanOnMesh(from, to, unlimited, budget,
                                        [](const Problem&, FindPathFn find) { return find(); }));
    return plan.total().peak_bytes;
  }
  unlimited.max_memory = INT64_MAX;
  MESHIFT_ASSIGN_OR_RETURN(const MeshProblem on_mesh,
                           MeshProblem::Create(from, to, unlimited, budget));
  const auto& [problem, choice, groups, memory, cost_options, limit] = on_mesh;
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
