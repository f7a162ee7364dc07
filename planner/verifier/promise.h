// Checks by the steps of a plan that its reductions keep the promise `kept`, and that reductions in
// order have the block size of the option reduce_block. It computes no values. It believes the
// option native_invariance. It does not check that `kept` is the promise that the caller asked for.
// Internal to the verifier.
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

// The first step that breaks `plan.kept` (docs/plan_format.md, "The promise") or the option
// reduce_block. REQUIRES: CheckFields found nothing in any step, and the last step ends in the
// target's sharding.
std::optional<PlanFault> CheckPromise(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_PROMISE_H_
