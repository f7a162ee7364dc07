// The planner for two meshes: steps on the first, one crossing, steps on the second.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", trainer, "P,S(0)"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, Sharding::Parse("bf16[8192,8192]", server, "R,S(1)"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, FindCrossPlan(from, to, options, groups, {}, budget));
//     // reduce_scatter{dp} -> ...
//     // exchange{onto mesh 1} -> S(1)[1],S(1)[0]
//     // all_gather{dp} -> R,S(1)
//
// The planner pairs sources with targets of planner/inter_mesh/cross_ends.h and near_ends.h. The
// search for one mesh plans both sides of a pair, and the cheapest pair wins. A pair is not priced
// if its lower bound is above the cheapest pair so far. The receivers may add the contributions
// themselves: exchange{sum:ascending, onto mesh 1}. The plan is not always the cheapest: other ends
// are not tried, and after a fixed amount of work the cheapest pair so far wins.
// planner/inter_mesh/cross_plan.h applies the options' limits. Internal to the planner.
#ifndef MESHIFT_PLANNER_INTER_MESH_CROSS_MESH_H_
#define MESHIFT_PLANNER_INTER_MESH_CROSS_MESH_H_

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
#include "planner/cost/cost.h"
#include "planner/groups/plan_groups.h"
#include "planner/plan/crossing.h"

namespace meshift {

// The quantity to minimize.
enum class CrossGoal : uint8_t {
  kCost,    // the time, within a limit on the workspace if there is one
  kMemory,  // the workspace
};

struct CrossLimits {
  CrossGoal goal = CrossGoal::kCost;
  std::optional<int64_t> workspace = std::nullopt;  // kCost: at most these bytes
  const GroupSet* allowed = nullptr;                // the groups to use; null: any
  // kCost: plans that take longer are not searched for. REQUIRES: `allowed` if this is set.
  int64_t bound_ns = INT64_MAX;
};

// Returns MakePlan's errors (meshift/planner.h). RESOURCE_EXHAUSTED without a message: no pair that
// was priced keeps to the limits. INTERNAL: the same, if limits.allowed is null and on one of the
// meshes no steps keep to limits.workspace. `groups`: of both meshes. `limits` applies instead of
// the limits of `options` on memory and groups, which the plan's inputs state; a max_memory still
// lifts the default of max_value. Charges its work to `budget`; when that is exhausted, the result
// is unspecified. For kMemory, *is_done, if given, is set to whether no other plan of this kind can
// need less. REQUIRES: the meshes of `from` and `to` differ, their shapes are equal. O(ranks of
// both + messages) time.
absl::StatusOr<Plan> FindCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, const PlanGroups& groups,
                                   const CrossLimits& limits, WorkBudget& budget,
                                   bool* is_done = nullptr);

// The step of a crossing from `before` to `after`, which costs `traffic`. If `before` is partial,
// the receivers add the contributions in order, in blocks of `reduce_block`. `num_ranks`: of both
// meshes together.
Step CrossingStep(const Crossing& crossing, const Traffic& traffic, const Sharding& before,
                  const Sharding& after, int64_t num_ranks, int64_t reduce_block);

// Returns a text; plans with equal texts count as the same.
using LabelFn = absl::FunctionRef<std::string(const Plan&)>;
// The cheapest plans, at most `most`, the cheapest first; of plans with equal labels only the
// cheapest. Empty if no pair could be priced. A fixed amount of work may end the list early. Other
// errors and `groups` as in FindCrossPlan; without limits. REQUIRES: most > 0.
absl::StatusOr<std::vector<Plan>> ListCrossPlans(const Sharding& from, const Sharding& to,
                                                 const PlannerOptions& options,
                                                 const PlanGroups& groups, size_t most,
                                                 LabelFn label, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_CROSS_MESH_H_
