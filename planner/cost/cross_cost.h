// The cost of a crossing to another mesh (planner/plan/crossing.h).
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   MeasureCrossing(crossing, before, after, topology).est_ns;
//
// A crossing is priced like an exchange, but from its actual messages: the bytes that the worst
// rank sends or receives across each level of links. If it adds contributions, they are read once
// more (docs/cost_model.md).
#ifndef MESHIFT_PLANNER_COST_CROSS_COST_H_
#define MESHIFT_PLANNER_COST_CROSS_COST_H_

#include <cstdint>
#include <iterator>

#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/plan/crossing.h"

namespace meshift {

// The price of the step. If nothing is sent, that of a relabel: a copy, whose `sizes` are null.
// REQUIRES: `crossing` is that of `before` and `after` on `topology`.
Traffic MeasureCrossing(const Crossing& crossing, const Sharding& before, const Sharding& after,
                        const Topology& topology);

// Two meshes and the ranks that they share, for lower bounds. Keeps a reference to `topology`.
class MeshPair {
 public:
  MeshPair(const DeviceMesh& from, const DeviceMesh& to, const Topology& topology);

  int64_t union_size() const { return union_size_; }
  bool disjoint() const { return shared_.empty(); }
  int64_t num_shared() const { return std::ssize(shared_); }

  // Elements of their target boxes that ranks of the second mesh do not hold, counted for each
  // contribution: of all ranks together; and a lower bound of those of the worst rank.
  struct Lacking {
    __int128 total = 0;
    int64_t worst = 0;
  };
  Lacking Lacks(const Sharding& before, const Sharding& after) const;

  // A lower bound of the time of a crossing from `before`, cut into `pieces`, to `after`.
  int64_t LeastNs(const Sharding& before, const Pieces& pieces, const Sharding& after) const;

 private:
  const Topology& topology_;
  struct Shared {
    Coordinate from, to;
  };
  int64_t from_size_;
  int64_t to_size_;
  int64_t union_size_;
  std::vector<Shared> shared_;  // coordinates of the ranks of both meshes
  int level_ = 0;               // the lowest level that any message crosses
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_CROSS_COST_H_
