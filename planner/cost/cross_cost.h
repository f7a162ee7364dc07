// What a crossing to another mesh costs (planner/plan/crossing.h).
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   MeasureCrossing(crossing, before, after, topology).est_ns;
//
// Priced as an exchange is, but by the messages themselves: the bytes that the worst rank sends or
// receives across each level of links; contributions that are added on the way are read once more
// (docs/cost_model.md).
#ifndef MESHIFT_PLANNER_COST_CROSS_COST_H_
#define MESHIFT_PLANNER_COST_CROSS_COST_H_

#include <cstdint>
#include <iterator>

#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/plan/crossing.h"

namespace meshift {

// The price of the step; where nothing is sent, of a relabel, a copy whose `sizes` are null.
// REQUIRES: `crossing` is that of `before` and `after` on `topology`.
Traffic MeasureCrossing(const Crossing& crossing, const Sharding& before, const Sharding& after,
                        const Topology& topology);

// Two meshes and what their ranks have in common, for bounds.
class MeshPair {
 public:
  MeshPair(const DeviceMesh& from, const DeviceMesh& to, const Topology& topology);

  int64_t union_size() const { return union_size_; }
  bool disjoint() const { return shared_.empty(); }
  int64_t num_shared() const { return std::ssize(shared_); }

  // Elements that the ranks of the second mesh lack of their boxes after, of each contribution: of
  // all of them together, and what the worst one lacks at least.
  struct Lacking {
    __int128 total = 0;
    int64_t worst = 0;
  };
  Lacking Lacks(const Sharding& before, const Sharding& after) const;

  // No crossing from `before`, cut into `pieces`, to `after` takes less time.
  int64_t LeastNs(const Sharding& before, const Pieces& pieces, const Sharding& after) const;

 private:
  const Topology& topology_;
  struct Shared {
    Coordinate from, to;
  };
  int64_t from_size_;
  int64_t to_size_;
  int64_t union_size_;
  std::vector<Shared> shared_;  // ranks of both
  int level_ = 0;               // the lowest that messages are between
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_CROSS_COST_H_
