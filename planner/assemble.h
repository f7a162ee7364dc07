// Turns a path of states into a Plan: steps with their bytes and times, totals, the lower bound,
// and the promise that the steps keep.
#ifndef MESHIFT_PLANNER_ASSEMBLE_H_
#define MESHIFT_PLANNER_ASSEMBLE_H_

#include "planner/cost.h"
#include "planner/plan.h"
#include "planner/planner.h"
#include "planner/reduction_choice.h"
#include "planner/search.h"
#include "planner/state.h"

namespace meshift {

Plan Assemble(const Problem& problem, const CostModel& model, const Path& path,
              const PlannerOptions& options, const ReductionChoice& choice);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_ASSEMBLE_H_
