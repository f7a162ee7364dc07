// What no plan goes below: the bytes that must move, and the time that this takes.
//
//   const LowerBound bound = LeastCost(problem, model);    // as it stands in a plan
//   LeastBytesMoved(problem);                              // that all ranks together send
//
// Any algorithm is meant that works in the model's steps (planner/cost/cost.h), and whose messages
// may lead between any distributions of elements, not only those that placements can name. Why each
// term holds is said in docs/design.md, "Lower bound"; integers are rounded so that it does.
#ifndef MESHIFT_PLANNER_COST_LOWER_BOUND_H_
#define MESHIFT_PLANNER_COST_LOWER_BOUND_H_

#include <cstdint>

#include "placement/sharding.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/plan/plan.h"

namespace meshift {

// Bytes that all ranks together send at least; saturates. 0 where the target is partial and the
// source is not: any rank may then hold the value.
int64_t LeastBytesMoved(const Problem& problem);

// bytes_sent: that some rank sends. est_ns: by the model. On meshes of up to 4,096 ranks every rank
// is looked at; on larger ones some, so that the work is bounded.
LowerBound LeastCost(const Problem& problem, const CostModel& model);

// Onto another mesh. `first`, `second`: of steps on the mesh of `from`, of `to`; `bits`: of an
// element, in the narrowest dtype on the way.
LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_LOWER_BOUND_H_
