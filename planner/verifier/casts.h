// What docs/plan_format.md says about the casts of a plan ("Casts"). Internal to the verifier.
//
//   std::optional<PlanFault> fault = CheckCasts(plan, views);
#ifndef MESHIFT_PLANNER_VERIFIER_CASTS_H_
#define MESHIFT_PLANNER_VERIFIER_CASTS_H_

#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// Whether every element is rounded as the definition says: reduced in the reduce dtype, cast once
// before and once after. REQUIRES: each of the steps leaves what it says (CheckFields), and the
// last one the target.
std::optional<PlanFault> CheckCasts(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_CASTS_H_
