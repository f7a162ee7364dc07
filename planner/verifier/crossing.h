// Checks the step that sends a value from one mesh to another: docs/plan_format.md, "Crossing to
// another mesh". Such a step may also add contributions. It computes the messages without the
// planner's code (planner/plan/crossing.h).
//
//   StepView view = {mesh_shape_after, step, before, after, {}, &mesh_shape_before};
//   std::optional<Violation> broken = CheckCrossingFields(view);
//   CrossingTraffic traffic;
//   if (!broken) broken = CheckCrossingData(view, topology, &traffic);
//   BytesOfCrossing(view, traffic).sent;
//
// The checks must be called in this order, CheckCrossingOp first; nullopt: no rule is broken. Time
// is O((ranks + pairs) * levels * log ranks), with at most kMaxPairs pairs: boxes are compared
// tensor dim by tensor dim. Internal to the verifier; pure functions.
#ifndef MESHIFT_PLANNER_VERIFIER_CROSSING_H_
#define MESHIFT_PLANNER_VERIFIER_CROSSING_H_

#include <cstdint>
#include <optional>

#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/verifier/boxes.h"
#include "planner/verifier/bytes.h"
#include "planner/verifier/state.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// The most pairs of a receiver and a piece that it needs, over all contributions; with more, the
// rule "scale" is broken. It limits the time that a plan can make the verifier use.
inline constexpr int64_t kMaxPairs = int64_t{1} << 24;

// Checks that the op is exchange or relabel over no mesh dims, and that the value after has the
// target's shape and mesh and the dtype before. Takes the place of CheckOp for this step.
std::optional<Violation> CheckCrossingOp(const Step& step, const Sharding& to, DType dtype_before);

// Checks the other fields, except the costs.
std::optional<Violation> CheckCrossingFields(const StepView& view);

struct CrossingTraffic {
  int64_t messages = 0;       // from all ranks together
  int64_t contributions = 1;  // of each element, all of which every receiver gets
  Traffic bytes;
};

// Checks that no contribution is lost, that there are at most kMaxPairs, and that an exchange sends
// and a relabel does not. Sets *traffic if no rule is broken. REQUIRES: *traffic is new.
std::optional<Violation> CheckCrossingData(const StepView& view, const Topology& topology,
                                           CrossingTraffic* traffic);

// REQUIRES: CheckCrossingData found nothing, and has set `traffic`.
StepBytes BytesOfCrossing(const StepView& view, const CrossingTraffic& traffic);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_CROSSING_H_
