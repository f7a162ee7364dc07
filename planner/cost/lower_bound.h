// What no plan goes below: the bytes that must move, and the time that this takes.
//
//   const LowerBound bound = LeastCost(problem, model);    // as it stands in a plan
//
// Of any sequence of the model's steps (planner/cost/cost.h); why: docs/design.md, "Lower bound".
#ifndef MESHIFT_PLANNER_COST_LOWER_BOUND_H_
#define MESHIFT_PLANNER_COST_LOWER_BOUND_H_

#include <cstdint>

#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {

// That all ranks together send. 0 where only the target is partial: any rank may hold the value.
int64_t LeastBytesMoved(const Problem& problem);
// bytes_sent: that some rank sends. est_ns: by the model.
LowerBound LeastCost(const Problem& problem, const CostModel& model);
// Onto another mesh. `first`, `second`: of steps on either mesh; `bits`: of an element, in the
// narrowest dtype on the way; `reach`: ranks that data must get across.
LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits, int64_t reach = 2);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_LOWER_BOUND_H_
