// Candidate ends of a crossing: shardings of one mesh at which the step to or from the other mesh
// may begin or end. These hold data at few coordinates only, those of ranks near the other mesh.
// The search on one mesh plans from there, over faster or more links.
//
//   NearEndsOfBoth(from, to, DType::kBF16, topology)   // of both meshes
//   // dp=4,tp=8 on hosts of 8 ranks; the other mesh is rank 0:
//   NearEnds(to, DType::kBF16, from, topology, /*owned=*/true)
//   // At(0),At(0); At(0),R; At(0),S(0); At(0),S(1); ...
//
// The caller prices these ends: all may be worse than those of cross_ends.h. A pure function
// without errors. Internal to planner/inter_mesh.
#ifndef MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_
#define MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_

#include <vector>

#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {

// Shardings of `end`'s tensor on its mesh, in `dtype` and without P, each once, in a fixed order.
// The near ranks are those that hold elements of `other`; then, level by level, all that share a
// domain with one of them. The same follows for all ranks of the other mesh. A coordinate is near
// if a near rank has it. For each set of near ranks there are two kinds of ends:
//
// - If some coordinates are near and some are not: mesh dims with one near coordinate are At there.
//   Those with several get a ragged cut, which divides a tensor dim among these as a ceil cut does.
//   None if the tensor has fewer dims than there are ragged cuts.
// - With `owned`: one mesh dim, or all, are At the coordinate with the most near ranks. If only the
//   last level, of all ranks, has near ones, all coordinates have as many, and the first counts.
//
// The other mesh dims have the ceil cuts of `end`, are replicated, or cut one of the two longest
// tensor dims (with `owned` on more than 64 ranks: the longest). Shardings that the dtype cannot
// have are left out. Empty for a tensor of 0 elements. O(levels * R log R) time for the R ranks of
// both meshes.
std::vector<Sharding> NearEnds(const Sharding& end, DType dtype, const Sharding& other,
                               const Topology& topology, bool owned);

// The near ends of a crossing, each once, in the order in which they are to be tried: those of the
// source for the target and those of the target for the source, with `owned`. On meshes of up to 64
// ranks, also those for each of these ends: a reduction may leave its result where a broadcast on
// the target begins. On larger meshes, whose searches take longer, a source without P has no owned
// ends.
std::vector<Sharding> NearEndsOfBoth(const Sharding& from, const Sharding& to, DType dtype,
                                     const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_NEAR_ENDS_H_
