// What the time of a step is made of, by the terms of docs/cost_model.md.
//
//   const TimeParts parts = TimePartsOf(plan.from(), plan.steps()[0], topology);
//   parts.links_ns;                                // bytes over the slowest links
//   topology.level(*parts.slowest_level).name;     // "net": these
//   parts.sharing;                                 // so many members bring a link of theirs each
//
// A part is what the step would take less if that cost nothing, so that it needs no knowledge of
// how steps are priced.
#ifndef MESHIFT_PLANNER_COST_TIME_PARTS_H_
#define MESHIFT_PLANNER_COST_TIME_PARTS_H_

#include <cstdint>
#include <optional>

#include "mesh/topology.h"
#include "placement/sharding.h"
#include "planner/plan/plan.h"

namespace meshift {

// In ns. They add up to the step's `est_ns`; of copies and links, a few ns of rounding count for
// the other.
struct TimeParts {
  int64_t starts_ns = 0;
  int64_t hops_ns = 0;
  int64_t messages_ns = 0;
  int64_t links_ns = 0;
  int64_t copies_ns = 0;
  // The level of links that bytes wait for; null where none are sent.
  std::optional<int> slowest_level = std::nullopt;
  // Of a level between domains: the fewest members of a group that share a domain of the level
  // below, each with a link of its own. Else 0.
  int64_t sharing = 0;

  int64_t Sum() const { return starts_ns + hops_ns + messages_ns + links_ns + copies_ns; }
};

// Of a step that leads from `before` on, as plans for `topology` price it. REQUIRES: a step of a
// plan that is right, and no crossing to another mesh.
TimeParts TimePartsOf(const Sharding& before, const Step& step, const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_TIME_PARTS_H_
