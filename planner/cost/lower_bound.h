// Lower bounds of bytes and time of any plan for a problem, without a search.
//
//   const LowerBound bound = LeastCost(problem, model);    // as a plan records it
//
// They hold for every sequence of the cost model's steps (planner/cost/cost.h). The proof is in
// docs/design.md, "Lower bound". Bytes and ns saturate; 0: nothing moves, or no bound is known.
// Once the budget of the problem that `model` was made for is spent, results are meaningless. The
// search has a heuristic of its own (planner/search/heuristic.h). Internal to the planner.
#ifndef MESHIFT_PLANNER_COST_LOWER_BOUND_H_
#define MESHIFT_PLANNER_COST_LOWER_BOUND_H_

#include <cstdint>

#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {

// Bytes that all ranks together send. 0 if a mesh dim is partial in the target alone: any rank may
// hold the value.
int64_t LeastBytesMoved(const Problem& problem);
// bytes_sent: some rank sends at least these. est_ns: any plan takes at least this, by the model.
LowerBound LeastCost(const Problem& problem, const CostModel& model);
// For plans onto another mesh. `first`, `second`: the models of steps on either mesh; `bits`: of an
// element in the narrowest dtype of the plan; `reach`: the number of ranks in a group over all mesh
// dims that data must cross.
LowerBound LeastCost(const Sharding& from, const Sharding& to, const CostModel& first,
                     const CostModel& second, int bits, int64_t reach = 2);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_LOWER_BOUND_H_
