#include "planner/cost/time_parts.h"

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "planner/cost/cross_cost.h"
#include "planner/graph/state.h"
#include "planner/plan/crossing.h"

namespace meshift {

int64_t TimeParts::Sum() const {
  const int64_t in_turn = SaturatingAdd(SaturatingAdd(starts_ns, hops_ns), messages_ns);
  return SaturatingAdd(SaturatingAdd(in_turn, links_ns), copies_ns);
}
namespace {

CostOptions OptionsOf(const Step& step) {
  CostOptions options{.ordered = step.reduce_order == ReduceOrder::kAscending,
                      .reduce_block = step.reduce_block.value_or(0)};
  if (step.sizes && *step.sizes != StepSizes::kEven) options.ragged = *step.sizes;
  return options;
}

}  // namespace

TimeParts TimePartsOf(const Sharding& before, const Step& step, const Topology& topology) {
  TimeParts parts;
  if (!IsCollective(step.op)) {
    parts.copies_ns = step.est_ns;
    return parts;
  }
  if (IsCrossing(step)) {
    const Crossing crossing = Crossing::Of(before, step.after, topology);
    return MeasureCrossing(crossing, before, step.after, topology).time;
  }
  // The step by itself: from what is before it to what is behind.
  const absl::StatusOr<Problem> problem = Problem::Create(before, step.after, before.dtype());
  if (!problem.ok()) {  // no step of a right plan; still, parts add up
    parts.links_ns = step.est_ns;
    return parts;
  }
  const CostModel model(*problem, topology, OptionsOf(step));
  return model.Measure(step.op, problem->source(), problem->target()).time;
}

}  // namespace meshift
