// Plans where limits leave none within the rule on values. Internal.
//
//   path = FindBeyondRule(on_mesh, model, options, /*refusal=*/path.status());
//   return PlanThroughReplicas(from, to, on_mesh, options, budget, /*refusal=*/path.status());
#ifndef MESHIFT_PLANNER_ONE_MESH_LAST_RESORT_H_
#define MESHIFT_PLANNER_ONE_MESH_LAST_RESORT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/cost/cost.h"
#include "planner/one_mesh/mesh_problem.h"
#include "planner/search/search.h"

namespace meshift {

// The cheapest path whose values may be of any size; `refusal` where there is none either.
// FAILED_PRECONDITION, which names the value, where options.max_value is set: that stays a limit.
absl::StatusOr<Path> FindBeyondRule(const MeshProblem& on_mesh, const CostModel& model,
                                    const PlannerOptions& options, const absl::Status& refusal);

// A plan by way of R,..,R: it may also reduce what stays partial, and mask it again. `refusal`
// where there is none, or options.max_value is set.
absl::StatusOr<Plan> PlanThroughReplicas(const Sharding& from, const Sharding& to,
                                         const MeshProblem& on_mesh, const PlannerOptions& options,
                                         WorkBudget& budget, const absl::Status& refusal);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_ONE_MESH_LAST_RESORT_H_
