// Plans that are the crossing itself, with local steps around it: each rank gets its box from the
// ranks that hold it, and casts and masks are local.
//
//   CrossDirectly(from, to, options, budget);              // exchange{onto mesh 1}
//   CrossDirectly(from, to, options, budget, &one_owner);  // slice{dp}; exchange{onto mesh 1}
//
// Cuts cannot say that an At lists several coordinates, so the search does not know it; such
// problems are planned here. The plans are not always the cheapest. Internal to the planner.
#ifndef MESHIFT_PLANNER_INTER_MESH_DIRECT_CROSSING_H_
#define MESHIFT_PLANNER_INTER_MESH_DIRECT_CROSSING_H_

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"

namespace meshift {

// As MakeCrossPlan, also where an At lists several coordinates. `source`: where the crossing
// begins, which a local slice makes of `from`: as `from`, but At of one coordinate on mesh dims
// that are R or At there. Null: `from`. FAILED_PRECONDITION: the value after the slice has more
// bytes than options.max_value. RESOURCE_EXHAUSTED: the plan needs more than options.max_memory.
// REQUIRES: equal shapes, two meshes; with `source`, `from` is not partial and `to` has its dtype.
absl::StatusOr<Plan> CrossDirectly(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, WorkBudget& budget,
                                   const Sharding* source = nullptr);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_DIRECT_CROSSING_H_
