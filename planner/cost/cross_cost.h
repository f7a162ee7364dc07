// The cost of a crossing to another mesh (planner/plan/crossing.h).
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   MeasureCrossing(crossing, before, after, topology).est_ns;
//
// A crossing is priced like an exchange, but from its actual messages: the bytes that the worst
// rank sends or receives across each level of links. If it adds contributions, they are read once
// more (docs/cost_model.md). Times are in ns; sums saturate. REQUIRES: both shardings have one
// shape and one dtype. No errors; safe for concurrent use. Internal to the planner.
#ifndef MESHIFT_PLANNER_COST_CROSS_COST_H_
#define MESHIFT_PLANNER_COST_CROSS_COST_H_

#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/plan/crossing.h"

namespace meshift {

// The price of the step. If nothing is sent, that of a relabel: a copy, whose `sizes` are null.
// REQUIRES: `crossing` is that of `before` and `after` on `topology`.
Traffic MeasureCrossing(const Crossing& crossing, const Sharding& before, const Sharding& after,
                        const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_CROSS_COST_H_
