// Planning onto another mesh: steps on the first, one crossing, steps on the second.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", trainer, "P,S(0)"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, Sharding::Parse("bf16[8192,8192]", server, "R,S(1)"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakeCrossPlan(from, to, options));
//     // reduce_scatter{dp} -> ...; exchange{onto mesh 1} -> S(1)[1],S(1)[0]; all_gather{dp} ->
//     R,S(1)
//
// Every source of planner/cross_ends.h is paired with every target; the search for one mesh plans
// both sides, and the cheapest of all wins. A pair is not priced where a bound says that it cannot.
// Small contributions may be added by the ranks that take them: exchange{sum:ascending, onto mesh
// 1}.
#ifndef MESHIFT_PLANNER_CROSS_MESH_H_
#define MESHIFT_PLANNER_CROSS_MESH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "placement/sharding.h"
#include "planner/plan.h"
#include "planner/planner.h"

namespace meshift {

// MakePlan's errors (planner/planner.h), and UNIMPLEMENTED for PlannerKind::kPerDim.
// REQUIRES: the meshes of `from` and `to` differ. Takes O(ranks of both + messages).
absl::StatusOr<Plan> MakeCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options);

// As LeastMemory (planner/planner.h).
absl::StatusOr<int64_t> LeastCrossMemory(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_MESH_H_
