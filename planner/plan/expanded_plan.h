// Plans with owned mesh dims (placement/unit_dims.h) as plans of cuts, and back. Planner, verifier
// and lowering know only cuts.
//
//   const UnitDims units = UnitDimsOf(plan.fields());
//   if (!units.empty()) {
//     const std::optional<RootedFault> fault = FindRootedFault(plan.fields());
//     PlanFields cuts = ExpandPlan(plan.fields(), units).value();   // REQUIRES: no fault
//   }
//   step.op = OpFor(step, before);   // broadcast for an all_gather from At
//
// The rooted ops (broadcast, reduce, gather, scatter, send) are names of all_gather, reduce_scatter
// and all_to_all where all mesh dims of the step are At before, after, or both. Internal to
// Meshift. Pure functions; safe for concurrent use.
#ifndef MESHIFT_PLANNER_PLAN_EXPANDED_PLAN_H_
#define MESHIFT_PLANNER_PLAN_EXPANDED_PLAN_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "placement/unit_dims.h"

namespace meshift {

// all_gather, reduce_scatter or all_to_all for a rooted op; any other op as it is.
StepOp OpOnCuts(StepOp op);
// The rooted op of which step.op is the op on cuts, if the mesh dims of the step are At as that
// needs; else step.op.
StepOp OpFor(const Step& step, const Sharding& before);
// The tensor dims whose cuts differ, ascending. Cuts by mesh dims of size 1 do not count. REQUIRES:
// equal meshes and shapes.
DimSet ChangedTensorDims(const Sharding& before, const Sharding& after);

// The unit dims of all shardings of the plan.
UnitDims UnitDimsOf(const PlanFields& plan);

// Whether the plan has an At or a rooted op.
bool HasAt(const PlanFields& plan);

// The first step whose rooted op does not fit its placements, or that an At of several coordinates
// does not allow: such a mesh dim may be in a step only if the step is a slice to fewer of its
// coordinates. A plan without At has none, but for rooted ops. nullopt: there is no such step.
struct RootedFault {
  int step = 0;
  std::string message;
};
std::optional<RootedFault> FindRootedFault(const PlanFields& plan);

// The plan with all_gather, reduce_scatter and all_to_all in place of rooted ops.
PlanFields WithOpsOnCuts(const PlanFields& plan);

// The plan in which each owner is a cut of a unit dim. An At of several coordinates stays.
// Fingerprints are not those of the plan. UNIMPLEMENTED: as UnitDims::Expand. REQUIRES:
// !FindRootedFault(plan), `units` is UnitDimsOf(plan).
absl::StatusOr<PlanFields> ExpandPlan(const PlanFields& plan, const UnitDims& units);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_EXPANDED_PLAN_H_
