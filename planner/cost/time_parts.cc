#include "planner/cost/time_parts.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"

namespace meshift {
namespace {

// In bytes per us: what is so fast takes 1 ns.
constexpr int64_t kAtOnce = INT64_MAX / 2;

struct Terms {
  std::vector<TopologyLevel> levels;
  TopologyConstants constants;
};

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
  // The step by itself: from what is before it to what is behind.
  const absl::StatusOr<Problem> problem = Problem::Create(before, step.after, before.dtype());
  if (!problem.ok()) {  // no step of a right plan; still, parts add up
    parts.links_ns = step.est_ns;
    return parts;
  }
  const CostOptions options = OptionsOf(step);
  Terms terms{{}, topology.constants()};
  for (int i = 0; i < topology.NumLevels(); ++i) terms.levels.push_back(topology.level(i));
  // What the step takes less where the terms are changed so.
  const auto less = [&](const std::function<void(Terms&)>& change) -> int64_t {
    Terms changed = terms;
    change(changed);
    const absl::StatusOr<Topology> other =
        Topology::Create(std::move(changed.levels), changed.constants);
    if (!other.ok()) return 0;
    const CostModel model(*problem, *other, options);
    const int64_t ns = model.Measure(step.op, problem->source(), problem->target()).est_ns;
    return std::max<int64_t>(step.est_ns - ns, 0);
  };
  parts.starts_ns = less([](Terms& t) { t.constants.collective_latency_ns = 0; });
  parts.messages_ns = less([](Terms& t) { t.constants.message_latency_ns = 0; });
  parts.hops_ns = less([](Terms& t) {
    for (TopologyLevel& level : t.levels) level.latency_ns = 0;
  });
  parts.copies_ns = less([](Terms& t) {
    t.constants.copy_latency_ns = 0;
    t.constants.copy_bandwidth_bytes_per_us = kAtOnce;
  });
  parts.links_ns = step.est_ns - parts.Sum();
  // Faster links of one level help as far as those of the others go: of the slowest, of the
  // outermost of equal ones, most.
  int64_t most = 0;
  for (int i = 0; i < topology.NumLevels(); ++i) {
    const int64_t ns = less([i](Terms& t) { t.levels[i].bandwidth_bytes_per_us = kAtOnce; });
    if (ns < most || ns == 0) continue;
    most = ns;
    parts.slowest_level = i;
  }
  if (parts.slowest_level.value_or(0) > 0) {
    const CostModel model(*problem, topology, options);
    const DimMask dims = StepDims(*problem, step.op, problem->source(), problem->target());
    parts.sharing = model.Shape(dims).sharing[*parts.slowest_level - 1];
  }
  return parts;
}

}  // namespace meshift
