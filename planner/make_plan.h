// MakePlan (planner.h) on one mesh, with a say in where the path comes from. Internal.
//
//   MakePlanOnMesh(from, to, options, [&](const Problem& problem, FindPathFn find) {
//     return memory.Recall(problem) or find();
//   });
#ifndef MESHIFT_PLANNER_MAKE_PLAN_H_
#define MESHIFT_PLANNER_MAKE_PLAN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "placement/sharding.h"
#include "planner/plan.h"
#include "planner/planner.h"
#include "planner/search.h"
#include "planner/state.h"

namespace meshift {

using FindPathFn = absl::FunctionRef<absl::StatusOr<Path>()>;
// Gives the path of a problem: what find() gives, or has given for an equal problem.
using PathSourceFn = absl::FunctionRef<absl::StatusOr<Path>(const Problem&, FindPathFn find)>;

// As MakePlan. REQUIRES: both are on one mesh.
absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, PathSourceFn path_source);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_MAKE_PLAN_H_
