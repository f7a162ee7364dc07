// Planning onto another mesh: steps on the first, one crossing, steps on the second.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", trainer, "P,S(0)"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, Sharding::Parse("bf16[8192,8192]", server, "R,S(1)"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, FindCrossPlan(from, to, options, groups, {}, budget));
//     // reduce_scatter{dp} -> ...; exchange{onto mesh 1} -> S(1)[1],S(1)[0]; all_gather{dp} ->
//     R,S(1)
//
// Every source of planner/cross/cross_ends.h and near_ends.h is paired with every target; the
// search for one mesh plans both sides, and the cheapest of all wins. A pair is not priced where a
// bound says that it cannot. Small contributions may be added by the ranks that take them:
// exchange{sum:ascending, onto mesh 1}.
#ifndef MESHIFT_PLANNER_CROSS_CROSS_MESH_H_
#define MESHIFT_PLANNER_CROSS_CROSS_MESH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/groups/plan_groups.h"

namespace meshift {

// What is wanted least of.
enum class CrossGoal : uint8_t {
  kCost,    // within a limit on the workspace, if there is one
  kMemory,  // the workspace
};

struct CrossLimits {
  CrossGoal goal = CrossGoal::kCost;
  std::optional<int64_t> workspace = std::nullopt;  // kCost: no more than these bytes
  const GroupSet* allowed = nullptr;                // over these groups; null: over any
  // kCost: plans that take more are not looked for. REQUIRES: `allowed`, where it is a limit.
  int64_t bound_ns = INT64_MAX;
};

// MakePlan's errors (meshift/planner.h); RESOURCE_EXHAUSTED without a message: no plan that was
// looked at keeps to the limits. `groups`: of both meshes; `options` are looked at but for
// max_memory and groups, which the plan's inputs name only.
// Charges its work to `budget`; where that is exhausted, the result is any.
// `is_done`, where given, is set to whether no plan of this kind needs less of what is wanted.
// REQUIRES: the meshes of `from` and `to` differ, their shapes do not. Takes O(ranks of both +
// messages).
absl::StatusOr<Plan> FindCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, const PlanGroups& groups,
                                   const CrossLimits& limits, WorkBudget& budget,
                                   bool* is_done = nullptr);

// What tells a plan from others.
using LabelFn = absl::FunctionRef<std::string(const Plan&)>;
// The cheapest plans, `most` of them or fewer, of those with one label the cheapest; the cheapest
// of all first. Errors and `groups` as above; without limits.
absl::StatusOr<std::vector<Plan>> ListCrossPlans(const Sharding& from, const Sharding& to,
                                                 const PlannerOptions& options,
                                                 const PlanGroups& groups, size_t most,
                                                 LabelFn label, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_CROSS_MESH_H_
