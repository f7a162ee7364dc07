// Candidate ends of a crossing that use only the ranks near the other mesh: those ranks themselves,
// or all ranks of their hosts. The search on one mesh plans from there, over faster or more links.
//
//   // dp=4,tp=8 on hosts of 8 ranks; the other mesh is rank 0:
//   NearEnds(to, DType::kBF16, one, topology)
//   // S(0){8192,0,0,0},S(1){8192,0,0,0,0,0,0,0}; ...; S(0){8192,0,0,0},S(0); ...
#ifndef MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_
#define MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_

#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {

// Shardings of `end`'s tensor on its mesh, in `dtype` and without P, each once, in a fixed order.
// The near ranks are first the ranks of `other`, then, level by level, the ranks that share a
// domain with one of them. A mesh dim of which only some coordinates are near gets a ragged cut,
// even among these coordinates. The other mesh dims are replicated, cut one tensor dim, or are
// placed as in `end`. Empty if all ranks are near or none is, or if the tensor has fewer dims than
// there are ragged cuts. O(ranks of both meshes * levels) time.
std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const DeviceMesh& other,
                               const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_
