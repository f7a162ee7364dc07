// Implements meshift/planner.h: calls the planner for one mesh (planner/intra_mesh), two
// (planner/inter_mesh) or many tensors (planner/together), and refuses with RESOURCE_EXHAUSTED if
// the work exceeds the budget.
#include "meshift/planner.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "meshift/status.h"
#include "planner/bucket.h"
#include "planner/inter_mesh/cross_plan.h"
#include "planner/intra_mesh/plan_on_mesh.h"
#include "planner/together/links.h"
#include "planner/together/plan_loads.h"
#include "planner/together/rounds.h"
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

absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                                  std::optional<int64_t> bucket_bytes) {
  WorkBudget budget(options.max_work);
  return MakePlans(moves, options, budget, bucket_bytes);
}

absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                                  WorkBudget& budget, std::optional<int64_t> bucket_bytes) {
  if (bucket_bytes) MESHIFT_RETURN_IF_ERROR(CheckBucket(*bucket_bytes));
  const auto plan_one = [&](size_t i) -> absl::StatusOr<Plan> {
    MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(moves[i].from, moves[i].to, options, budget));
    if (!bucket_bytes) return plan;
    return FitBucket(std::move(plan), options, *bucket_bytes, budget);
  };
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  absl::StatusOr<PlanSet> set =
      PlanTogether(moves, options, budget, plan_one, bucket_bytes.value_or(kNoLimit));
  if (budget.exhausted()) return budget.Refusal("planning");
  if (!bucket_bytes || !set.ok()) return set;
  std::vector<int64_t> counts;
  for (const TensorMove& move : moves) counts.push_back(move.count);
  MESHIFT_ASSIGN_OR_RETURN(set->rounds, CutIntoRounds(set->plans, counts, *bucket_bytes));
  MESHIFT_ASSIGN_OR_RETURN(const Links links, LinksOf(set->plans, options.topology, budget));
  PlanLoads loads(set->plans, links, budget);
  CountRounds(loads, &set->rounds);
  if (budget.exhausted()) return budget.Refusal("planning");
  return set;
}

}  // namespace meshift
