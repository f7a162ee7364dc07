// Checks the casts of a whole plan by docs/plan_format.md, "Casts".
//
//   std::optional<PlanFault> fault = CheckCasts(plan, views);    // nullopt: no rule is broken
//
// CheckOp (step.h) checks that each cast exists. Internal to the verifier; a pure function.
#ifndef MESHIFT_PLANNER_VERIFIER_CASTS_H_
#define MESHIFT_PLANNER_VERIFIER_CASTS_H_

#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// A step that breaks the rule "cast" of docs/errors.md: reductions are in the reduce dtype, casts
// round at most once before the reductions and once after them, and more. REQUIRES: CheckFields
// found nothing in any step, and the last step leaves the target.
std::optional<PlanFault> CheckCasts(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_CASTS_H_
