// Implements meshift/planner.h: calls the planner for one mesh (planner/intra_mesh), two
// (planner/inter_mesh) or many tensors (planner/together), and refuses with RESOURCE_EXHAUSTED if
// the work exceeds the budget.
#include "meshift/planner.h"

#include <cstddef>

#include "planner/inter_mesh/cross_plan.h"
#include "planner/intra_mesh/plan_on_mesh.h"
#include "planner/together/together.h"

namespace meshift {

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options) {
  WorkBudget budget(options.max_work);
  return MakePlan(from, to, options, budget);
}

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options, WorkBudget& budget) {
  absl::StatusOr<Plan> plan =
      from.mesh() == to.mesh()
          ? MakePlanOnMesh(from, to, options, budget,
                           [](const Problem&, FindPathFn find) { return find(); })
          : MakeCrossPlan(from, to, options, budget);
  if (budget.exhausted()) return budget.Refusal("planning");
  return plan;
}

absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options) {
  WorkBudget budget(options.max_work);
  absl::StatusOr<int64_t> least = from.mesh() == to.mesh()
                                      ? LeastMemoryOnMesh(from, to, options, budget)
                                      : LeastCrossMemory(from, to, options, budget);
  if (budget.exhausted()) return budget.Refusal("planning");
  return least;
}

absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves,
                                  const PlannerOptions& options) {
  WorkBudget budget(options.max_work);
  return MakePlans(moves, options, budget);
}

absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                                  WorkBudget& budget) {
  absl::StatusOr<PlanSet> set = PlanTogether(moves, options, budget, [&](size_t i) {
    return MakePlan(moves[i].from, moves[i].to, options, budget);
  });
  if (budget.exhausted()) return budget.Refusal("planning");
  return set;
}

}  // namespace meshift
