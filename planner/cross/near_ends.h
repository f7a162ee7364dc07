// Ends of a crossing that give something only to the ranks near the other mesh: a root, the ranks
// of its host. From there the one-mesh search goes on, over faster links or over more of them.
//
//   // dp=4,tp=8 on hosts of 8 ranks, the other mesh is rank 0:
//   NearEnds(to, DType::kBF16, one, topology)
//   // S(0){8192,0,0,0},S(1){8192,0,0,0,0,0,0,0}; ...; S(0){8192,0,0,0},S(0); ...
#ifndef MESHIFT_PLANNER_CROSS_NEAR_ENDS_H_
#define MESHIFT_PLANNER_CROSS_NEAR_ENDS_H_

#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {

// Layouts of `end`'s tensor, of the given dtype and without P, on its mesh: each once, in a fixed
// order. Near are the ranks of `other` themselves, then those that share a domain with one of them,
// by levels. A mesh dim of which only some coordinates are near gets a ragged cut, even among
// these; the others hold replicas, cut one tensor dim, or are placed as in `end`. None where all
// ranks are near, or none; or where the tensor has fewer dims than there are such mesh dims. Takes
// O(ranks of both * levels).
std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const DeviceMesh& other,
                               const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_NEAR_ENDS_H_
