// What a plan must show of its reductions to keep its promise about bits. Internal to the verifier.
//
//   std::optional<PlanFault> fault = CheckPromise(plan, views);
#ifndef MESHIFT_PLANNER_VERIFIER_PROMISE_H_
#define MESHIFT_PLANNER_VERIFIER_PROMISE_H_

#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// Whether the steps keep `plan.kept`: docs/plan_format.md, "The promise". REQUIRES: each of the
// steps leaves what it says (CheckFields), and the last one the target.
std::optional<PlanFault> CheckPromise(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_PROMISE_H_
