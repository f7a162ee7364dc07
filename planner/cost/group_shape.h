// The shape of a step's groups on a topology: how their members are spread over domains.
//
//   const Topology topology = *Topology::Parse("nvlink=4");
//   const GroupShape shape = ShapeOf(topology, 10, {.size = 5, .modes = {{5, 1}}});
//   shape.sharing[0];     // 1: rank 4 of the first group is alone in its domain
//   shape.latency_ns;     // one hop between two domains, log2(4) = 2 between ranks 0 to 3
//   shape.ring_ns;        // one hop between two domains, three between ranks 0 to 3
//
// Groups may be jagged: their members may be spread in different ways, and unevenly. Each field is
// that of the group that is worst in it. Domains of more than 65,536 ranks may be approximated. The
// functions are pure, except that ShapeOf() charges its budget. They check nothing: the caller
// guarantees groups as RankGroups describes them.
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

// The groups of a partition, all of one size: as lists of ranks, or in closed form.
struct RankGroups {
  int64_t size = 1;                              // members of a group
  std::vector<std::vector<int64_t>> ranks = {};  // of each group; empty: see `modes`
  // The ranks of the first group, innermost mode first. Each stride is a multiple of size times
  // stride of the mode before. The other groups are the translations of the first by the digits
  // that no mode covers.
  Layout::Modes modes = {};
};

struct GroupShape {
  int64_t size = 1;  // members of a group
  // For each level except the first: the fewest members of a group in one domain of the level
  // below, over all groups and domains with members. 0: every group fits into one such domain.
  absl::InlinedVector<int64_t, 3> sharing;
  // For each level: the most domains of the level below (first level: members) that hold members of
  // one group in one domain of this level.
  absl::InlinedVector<int64_t, 3> fanout;
  // Hops of one message to every member of the worst group along a tree: log2(fanout) hops per
  // level.
  int64_t latency_ns = 0;
  int64_t beyond_ns = 0;  // the same without the first level
  // Hops from member to member of the worst group, in a line that enters each domain once.
  int64_t ring_ns = 0;
};

// latency_ns of one group, given by its ranks in ascending order, over the first `levels` levels.
int64_t TreeNs(const Topology& topology, absl::Span<const int64_t> ranks, int levels);

// Takes O(listed ranks * log) per level; for modes at most O(largest domain * log(size)), whatever
// the number of ranks. A domain of more than 65,536 ranks that no mode divides is approximated: it
// holds one member for `sharing`, and as many as fit for hops. Work is charged to the budget. If
// that is exhausted, the result is meaningless, and the caller must refuse.
GroupShape ShapeOf(const Topology& topology, int64_t num_ranks, const RankGroups& groups,
                   WorkBudget* budget = nullptr);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_GROUP_SHAPE_H_
