// Plans on one mesh, with a say in where the path comes from. Internal.
//
//   MakePlanOnMesh(from, to, options, budget,
//                  [](const Problem&, FindPathFn find) { return find(); });
#ifndef MESHIFT_PLANNER_ONE_MESH_PLAN_ON_MESH_H_
#define MESHIFT_PLANNER_ONE_MESH_PLAN_ON_MESH_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/graph/state.h"
#include "planner/search/search.h"

namespace meshift {

using FindPathFn = absl::FunctionRef<absl::StatusOr<Path>()>;
// Gives the path of a problem: what find() gives, or has given for an equal problem. find() fails
// where the budget is exhausted: there is no path to keep then.
using PathSourceFn = absl::FunctionRef<absl::StatusOr<Path>(const Problem&, FindPathFn find)>;

// As MakePlan (planner.h), with its work charged to `budget`. Where that is exhausted, the result
// is any: the caller refuses. REQUIRES: both are on one mesh.
absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source);

// As LeastMemory (planner.h), and likewise.
absl::StatusOr<int64_t> LeastMemoryOnMesh(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_ONE_MESH_PLAN_ON_MESH_H_
