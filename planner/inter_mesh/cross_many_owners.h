// Planning onto another mesh where an At lists several coordinates. Cuts cannot say
// that, so the search does not know it.
//
//   if (HasManyOwners(from) || HasManyOwners(to)) {
//     return CrossManyOwners(from, to, options, budget);
//   }
//
// The plan is the crossing itself: each rank gets its box from the ranks that hold it, and casts
// and masks around it are local. It is not always the cheapest. Internal to planner/inter_mesh.
#ifndef MESHIFT_PLANNER_INTER_MESH_CROSS_MANY_OWNERS_H_
#define MESHIFT_PLANNER_INTER_MESH_CROSS_MANY_OWNERS_H_

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"

namespace meshift {

// As MakeCrossPlan. REQUIRES: HasManyOwners(from) or HasManyOwners(to) (placement/unit_dims.h),
// equal shapes, two meshes.
absl::StatusOr<Plan> CrossManyOwners(const Sharding& from, const Sharding& to,
                                     const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_CROSS_MANY_OWNERS_H_
