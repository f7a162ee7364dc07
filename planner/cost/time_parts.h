// What the time of a step is made of, by the terms of docs/cost_model.md.
//
//   const TimeParts parts = TimePartsOf(plan.from(), plan.steps()[0], topology);
//   parts.links_ns;                                  // bytes over the slowest links
//   topology.level(parts.level).name;                // "net": these
//   Name(parts.algorithm);                           // "ring"
#ifndef MESHIFT_PLANNER_COST_TIME_PARTS_H_
#define MESHIFT_PLANNER_COST_TIME_PARTS_H_

#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"

namespace meshift {

// Of a step that leads from `before` on, as plans for `topology` price it; onto another mesh too.
// They add up to the step's `est_ns`. REQUIRES: a step of a plan that is right.
TimeParts TimePartsOf(const Sharding& before, const Step& step, const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_TIME_PARTS_H_
