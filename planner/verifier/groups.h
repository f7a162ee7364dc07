// Whether a plan keeps to the budget of groups that its inputs name. Internal to the verifier.
//
//   std::optional<PlanFault> fault = CheckGroups(plan);
#ifndef MESHIFT_PLANNER_VERIFIER_GROUPS_H_
#define MESHIFT_PLANNER_VERIFIER_GROUPS_H_

#include <optional>

#include "meshift/plan.h"
#include "meshift/plan_io.h"

namespace meshift::verifier_internal {

// docs/plan_format.md, "Groups". REQUIRES: each of the steps leaves what it says (CheckFields).
std::optional<PlanFault> CheckGroups(const PlanFields& plan);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_GROUPS_H_
