// Makes plans onto another mesh within the options' limits on memory and groups, with MakePlan's
// errors. planner/inter_mesh/cross_mesh.h finds the plans themselves. One thread at a time for each
// budget. Internal to the planner.
//
//   WorkBudget budget(options.max_work);
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakeCrossPlan(from, to, {.max_memory = 1 << 30}, budget));
#ifndef MESHIFT_PLANNER_INTER_MESH_CROSS_PLAN_H_
#define MESHIFT_PLANNER_INTER_MESH_CROSS_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"

namespace meshift {

// Errors as for MakePlan (meshift/planner.h). Charges its work to `budget`; when that is exhausted,
// the result is unspecified and the caller must refuse. REQUIRES: the meshes of `from` and `to`
// differ. O(ranks of both + messages) time; a multiple of that if options limit memory or groups.
absl::StatusOr<Plan> MakeCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, WorkBudget& budget);

// As LeastMemory (meshift/planner.h), in bytes per rank.
absl::StatusOr<int64_t> LeastCrossMemory(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_CROSS_PLAN_H_
