// Checks the casts of a plan: docs/plan_format.md, "Casts". Internal to the verifier.
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

// Whether every element is rounded as the definition says: reduced in the reduce dtype, and cast at
// most once before and once after. REQUIRES: CheckFields found nothing in any step, and the last
// step leaves the target.
std::optional<PlanFault> CheckCasts(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_CASTS_H_
