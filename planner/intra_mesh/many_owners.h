// Planning on one mesh where an At lists several coordinates. Cuts cannot say that, so the
// search does not know it.
//
//   if (HasManyOwners(from) || HasManyOwners(to)) {
//     return PlanManyOwners(from, to, options, budget, path_source);
//   }
//
// A plan from several owners begins with a slice to one of them. A plan to several goes through R
// on their mesh dims and ends with a slice. Where source and target have the same owners, and no
// step needs their mesh dims, all of them do the same. Such plans are not always the cheapest.
// Internal to planner/intra_mesh.
#ifndef MESHIFT_PLANNER_INTRA_MESH_MANY_OWNERS_H_
#define MESHIFT_PLANNER_INTRA_MESH_MANY_OWNERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/intra_mesh/plan_on_mesh.h"

namespace meshift {

// FAILED_PRECONDITION: a value between two steps is larger than options.max_value.
absl::Status CheckMaxValue(const PlanFields& plan, const PlannerOptions& options);

// As MakePlanOnMesh. REQUIRES: HasManyOwners(from) or HasManyOwners(to) (placement/unit_dims.h).
absl::StatusOr<Plan> PlanManyOwners(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_MANY_OWNERS_H_
