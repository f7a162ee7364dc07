// Candidate ends of a crossing: shardings of one mesh at which the step to or from the other mesh
// may begin or end. These hold data only at the coordinates of ranks near the other mesh: its own
// ranks, or the ranks that share a domain of some level with them. The search on one mesh plans
// from there, over faster or more links.
//
//   // dp=4,tp=8 on hosts of 8 ranks; the other mesh is rank 0:
//   NearEnds(to, DType::kBF16, one, topology)
//   // S(0){8192,0,0,0},S(1){8192,0,0,0,0,0,0,0}; ...; S(0){8192,0,0,0},S(0); ...
//
// The caller prices these ends: all may be worse than those of cross_ends.h. A pure function
// without errors. Internal to planner/inter_mesh.
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
// domain with one of them. A coordinate is near if a near rank has it. A mesh dim with one near
// coordinate is At there. Another of which only some coordinates are near gets a ragged cut, which
// divides a tensor dim among these as a ceil cut does. The other mesh dims are replicated, cut one
// tensor dim, or have the ceil cuts of `end`. New cuts are only of the two longest tensor dims, or
// of as many dims as there are ragged cuts. No sharding is added if no rank or every coordinate is
// near, or if the tensor has fewer dims than there are ragged cuts. Shardings that the dtype cannot
// have are left out. Empty for a tensor of 0 elements. O(levels * R log R) time for the R ranks of
// both meshes.
std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const DeviceMesh& other,
                               const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_
