// The step that takes a value from one mesh to another, by docs/plan_format.md ("Crossing to
// another mesh"), also where it adds contributions on the way. Internal to the verifier; who sends
// what is worked out here once more on purpose.
//
//   StepView view = {world_after, step, before, after, {}, &world_before};
//   std::optional<Broken> broken = CheckCrossingFields(view);
//   CrossingTraffic traffic;
//   if (!broken) broken = CheckCrossingData(view, topology, &traffic);
//   BytesOfCrossing(view, traffic).sent;
//
// Costs are O((ranks + messages) * levels * log ranks): boxes are compared tensor dim by tensor
// dim, as intervals.
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

// The most pairs of a receiver and a piece of what it wants, of each contribution, so that a plan
// cannot ask for any amount of time.
inline constexpr int64_t kMaxPairs = int64_t{1} << 24;

// Whether a step that stands where the value changes from mesh 0 to mesh 1 is one that does so, and
// leaves the target's tensor on its mesh. What CheckOp is for others.
std::optional<Broken> CheckCrossingOp(const Step& step, const Sharding& to, DType dtype_before);

// Every field but the costs.
std::optional<Broken> CheckCrossingFields(const StepView& view);

struct CrossingTraffic {
  int64_t messages = 0;
  int64_t contributions = 1;  // that every receiver gets of what it wants
  Traffic bytes;
};

// Whether no contribution is lost, and the op is right: an exchange sends, a relabel does not.
std::optional<Broken> CheckCrossingData(const StepView& view, const Topology& topology,
                                        CrossingTraffic* traffic);

// REQUIRES: CheckCrossingData found nothing; `traffic` is from there.
StepBytes BytesOfCrossing(const StepView& view, const CrossingTraffic& traffic);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_CROSSING_H_
