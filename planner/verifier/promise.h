// Checks, from a plan alone, that its reductions keep the promise `kept`, and that ordered
// reductions have the block size of the option reduce_block.
//
//   std::optional<PlanFault> fault = CheckPromise(plan, views);    // nullopt: no rule is broken
//
// It computes no values, takes the option native_invariance as true, takes native min and max as
// exact in any order (plans do not state EngineCapabilities::min_max_exact), and does not compare
// `kept` with the promise that the caller asked for. On a mesh of more than 4,096 ranks it may
// refuse a batch-invariant plan that keeps its promise. Internal to the verifier; a pure function.
#ifndef MESHIFT_PLANNER_VERIFIER_PROMISE_H_
#define MESHIFT_PLANNER_VERIFIER_PROMISE_H_

#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// A step that breaks `plan.kept` (docs/plan_format.md, "The promise") or the option reduce_block;
// no step if that option is below 0. REQUIRES: CheckFields found nothing in any step, and the last
// step ends in the target's sharding.
std::optional<PlanFault> CheckPromise(const PlanFields& plan, const std::vector<StepView>& views);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_PROMISE_H_
