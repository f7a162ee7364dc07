// Checks a plan against the budget of groups in its inputs: existing groups, the number of
// communicators per rank, and setup_ns.
//
//   std::optional<PlanFault> fault = CheckGroups(plan);    // nullopt: no rule is broken
//
// It trusts that the groups exist that the inputs list as existing, and checks only that they are
// over the plan's meshes. It ignores GroupBudget::root, which plans do not state. Internal to the
// verifier; a pure function.
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
