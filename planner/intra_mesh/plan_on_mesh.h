// Makes a plan on one mesh, with the limits and errors of MakePlan (meshift/planner.h). The caller
// may supply the path from a cache.
//
//   absl::StatusOr<Plan> plan = MakePlanOnMesh(
//       from, to, options, budget, [](const Problem&, FindPathFn find) { return find(); });
//
// One thread at a time for each budget. Internal to the planner.
#ifndef MESHIFT_PLANNER_INTRA_MESH_PLAN_ON_MESH_H_
#define MESHIFT_PLANNER_INTRA_MESH_PLAN_ON_MESH_H_

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
// Returns the path of a problem: the result of find(), now or earlier for an equal problem with
// equal options. find() fails if the budget is exhausted; that result must not be cached.
using PathSourceFn = absl::FunctionRef<absl::StatusOr<Path>(const Problem&, FindPathFn find)>;

// As MakePlan (meshift/planner.h), with its errors. Work is charged to `budget`. If it is
// exhausted, the result is unspecified and the caller must return an error. Two meshes are
// UNIMPLEMENTED. kPerDim does not call `path_source`.
absl::StatusOr<Plan> MakePlanOnMesh(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source);

// As LeastMemory (meshift/planner.h), with the same conditions.
absl::StatusOr<int64_t> LeastMemoryOnMesh(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_PLAN_ON_MESH_H_
