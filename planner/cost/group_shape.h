// How the groups of a step lie on the domains of a topology, counted domain by domain.
//
//   const Topology topology = *Topology::Parse("nvlink=4");
//   const GroupShape shape = ShapeOf(topology, 10, {.size = 5, .modes = {{5, 1}}});
//   shape.sharing[0];     // 1: of ranks 0 to 4, the last has a domain for itself
//   shape.latency_ns;     // of 0 to 3 and 4: a hop between two domains, two between four ranks
//   shape.ring_ns;        // a hop between two domains, three between four ranks
//
// Groups may be jagged: each lies otherwise, and has more members in one domain than in the next.
// Of hops and of members that share a domain, those of the worst group count; each is exact.
#ifndef MESHIFT_PLANNER_COST_GROUP_SHAPE_H_
#define MESHIFT_PLANNER_COST_GROUP_SHAPE_H_

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "mesh/layout.h"
#include "meshift/topology.h"

namespace meshift {

// The least k with 2^k >= n. REQUIRES: n >= 1.
constexpr int Log2Ceil(int64_t n) { return std::bit_width(static_cast<uint64_t>(n) - 1); }

// The groups of a partition, alike in size: listed, or in closed form.
struct RankGroups {
  int64_t size = 1;
  std::vector<std::vector<int64_t>> ranks = {};  // of each group; empty: see `modes`
  // Of the first group, innermost first, each stride a multiple of the size times the stride of the
  // mode before; the others begin wherever a digit that no mode has is another.
  Layout::Modes modes = {};
};

struct GroupShape {
  int64_t size = 1;
  // For each level but the first: the fewest members that a domain of the level below holds, of any
  // group's domains; 0 where every group fits into one.
  absl::InlinedVector<int64_t, 3> sharing;
  // For each level: domains of the level below (of the first: members) in one of its domains, of
  // any group, at most.
  absl::InlinedVector<int64_t, 3> fanout;
  // One message to every member of the worst group, along a tree: from level to level, through a
  // domain to those of the level below that hold members, as many as where they are most.
  int64_t latency_ns = 0;
  int64_t beyond_ns = 0;  // likewise, of the levels but the first
  // From member to member of the worst group, in a line that enters each domain once.
  int64_t ring_ns = 0;
};

// One message to each of these ranks, which ascend, along such a tree over the first `levels`.
int64_t TreeNs(const Topology& topology, absl::Span<const int64_t> ranks, int levels);

// O(listed ranks * log) per level; of modes, O(largest domain * log(size)) at most, nothing in
// proportion to ranks. Domains of more than 65,536 ranks, if no mode divides them, hold one member
// for the crossing, all for hops. Charges that work; where the budget is exhausted, the shape is
// that of groups which each fit into one domain.
GroupShape ShapeOf(const Topology& topology, int64_t num_ranks, const RankGroups& groups,
                   WorkBudget* budget = nullptr);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_GROUP_SHAPE_H_
