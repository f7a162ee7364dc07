// Checks that a plan's reductions keep its promise about bits. Internal to the verifier.
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

// Whether the steps keep `plan.kept`: docs/plan_format.md, "The promise". REQUIRES: CheckFields
// found nothing in any step, and the last step leaves the target.
std::optional<PlanFault> CheckPromise(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_PROMISE_H_
