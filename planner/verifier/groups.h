// Checks a plan against the budget of groups in its inputs. Internal to the verifier.
//
//   std::optional<PlanFault> fault = CheckGroups(plan);
#ifndef MESHIFT_PLANNER_VERIFIER_GROUPS_H_
#define MESHIFT_PLANNER_VERIFIER_GROUPS_H_

#include <optional>

#include "meshift/plan.h"
#include "meshift/plan_io.h"

namespace meshift::verifier_internal {

// By docs/plan_format.md, "Groups". REQUIRES: CheckFields found nothing in any step.
std::optional<PlanFault> CheckGroups(const PlanFields& plan);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_GROUPS_H_
