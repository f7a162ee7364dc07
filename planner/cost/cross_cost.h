// The cost of a crossing to another mesh (planner/plan/crossing.h), and a lower bound of it.
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   MeasureCrossing(crossing, before, after, topology).est_ns;
//
// A crossing is priced like an exchange, but from its actual messages: the bytes that the worst
// rank sends or receives across each level of links. If it adds contributions, they are read once
// more (docs/cost_model.md). Times are in ns; sums saturate. REQUIRES: both shardings have one
// shape and one dtype. No errors; safe for concurrent use. Internal to the planner.
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

// Two meshes and the ranks that they share, for lower bounds. Immutable. Refers to `topology`.
class MeshPair {
 public:
  MeshPair(const DeviceMesh& from, const DeviceMesh& to, const Topology& topology);

  int64_t union_size() const { return union_size_; }
  bool disjoint() const { return shared_.empty(); }
  int64_t num_shared() const { return std::ssize(shared_); }

  // Elements that ranks of the second mesh need for their target boxes and do not hold before the
  // crossing. An element counts once for each contribution.
  struct MissingElements {
    __int128 total = 0;  // of all ranks together
    int64_t worst = 0;   // a lower bound of those of the worst rank
  };
  MissingElements CountMissing(const Sharding& before, const Sharding& after) const;

  // A lower bound of the ns of a crossing from `before`, whose boxes are `boxes`, to `after`.
  // REQUIRES: they are on the first and on the second mesh.
  int64_t LeastNs(const Sharding& before, const DistinctBoxes& boxes, const Sharding& after) const;

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
