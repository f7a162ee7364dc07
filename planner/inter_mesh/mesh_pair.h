// Two meshes and the ranks that they share: lower bounds of crossings from one to the other.
//
//   const MeshPair pair(before.mesh(), after.mesh(), topology);
//   pair.LeastNs(before, DistinctBoxes(before), after);    // ns
//
// The bounds never exceed the price of a crossing (planner/cost/cross_cost.h). REQUIRES: shardings
// have one shape and one dtype. No errors; safe for concurrent use. Internal to the planner.
#ifndef MESHIFT_PLANNER_INTER_MESH_MESH_PAIR_H_
#define MESHIFT_PLANNER_INTER_MESH_MESH_PAIR_H_

#include <cstdint>
#include <iterator>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/plan/crossing.h"

namespace meshift {

// Immutable. Refers to `topology`.
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

#endif  // MESHIFT_PLANNER_INTER_MESH_MESH_PAIR_H_
