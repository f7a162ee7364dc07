#include "planner/one_mesh/plan_on_mesh.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/checked_math.h"
#include "base/status_macros.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/groups/plan_groups.h"
#include "planner/one_mesh/assemble.h"
#include "planner/one_mesh/mesh_paths.h"
#include "planner/one_mesh/reduction_choice.h"
#include "planner/plan/memory_limit.h"
#include "planner/limits/memory_search.h"
#include "planner/one_mesh/per_dim.h"
#include "planner/search/search.h"

namespace meshift {
namespace {

// What a plan on one mesh begins with.
struct MeshProblem {
  static absl::StatusOr<MeshProblem> Create(const Sharding& from, const Sharding& to,
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
    return MeshProblem{std::move(problem), std::move(choice), std::move(groups), memory, cost};
  }

  Problem problem;
  ReductionChoice choice;
  PlanGroups groups;
  TensorMemory memory;
  CostOptions cost;
};

}  // namespace

absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source) {
  MESHIFT_ASSIGN_OR_RETURN(MeshProblem on_mesh, MeshProblem::Create(from, to, options, budget));
  auto& [problem, choice, groups, memory, cost_options] = on_mesh;
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
  const int64_t before = budget.done();
  const auto find = [&]() -> absl::StatusOr<Path> {
    absl::StatusOr<Path> path = paths.Cheapest();
    if (budget.exhausted()) return budget.Refusal("planning");
    if (path.ok()) path->work = budget.done() - before;
    return path;
  };
  MESHIFT_ASSIGN_OR_RETURN(const Path path, path_source(problem, find));
  return Assemble(problem, model, path, options, choice, groups);
}

absl::StatusOr<int64_t> LeastMemoryOnMesh(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options, WorkBudget& budget) {
  MESHIFT_ASSIGN_OR_RETURN(const MeshProblem on_mesh,
                           MeshProblem::Create(from, to, options, budget));
  const auto& [problem, choice, groups, memory, cost_options] = on_mesh;
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
