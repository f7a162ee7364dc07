#include "planner/planner.h"

#include "planner/cross/cross_plan.h"
#include "planner/one_mesh/plan_on_mesh.h"

namespace meshift {

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options) {
  if (!(from.mesh() == to.mesh())) return MakeCrossPlan(from, to, options);
  return MakePlanOnMesh(from, to, options, [](const Problem&, FindPathFn find) { return find(); });
}

absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options) {
  if (!(from.mesh() == to.mesh())) return LeastCrossMemory(from, to, options);
  return LeastMemoryOnMesh(from, to, options);
}

}  // namespace meshift
