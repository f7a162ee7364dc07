// Plans onto another mesh within what the options allow: memory, and groups. Internal.
//
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakeCrossPlan(from, to, {.max_memory = 1 << 30}, budget));
#ifndef MESHIFT_PLANNER_CROSS_CROSS_PLAN_H_
#define MESHIFT_PLANNER_CROSS_CROSS_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"

namespace meshift {

// MakePlan's errors (meshift/planner.h), and UNIMPLEMENTED for PlannerKind::kPerDim.
// Charges its work to `budget`; where that is exhausted, the result is any, and the caller refuses.
// REQUIRES: the meshes of `from` and `to` differ. Takes O(ranks of both + messages), several times
// where options limit memory or groups.
absl::StatusOr<Plan> MakeCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, WorkBudget& budget);

// As LeastMemory (meshift/planner.h).
absl::StatusOr<int64_t> LeastCrossMemory(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_CROSS_PLAN_H_
