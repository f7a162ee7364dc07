// Candidate ends of a crossing to another mesh: shardings of the source's mesh where it may begin,
// and of the target's mesh where it may end.
//
//   CrossSources(from, DType::kBF16)    // P,R -> R,R; S(0),R; R,S(0); S(0)[1],S(0)[0]; ...
//   PartialSources(from, DType::kBF16, /*at_once=*/false)   // P,R; P,S(0)
//   CrossTargets(to, DType::kBF16)      // R,S(0) -> R,S(0); S(0)[1],S(0)[0]; S(1),S(0); ...
//
// CrossSources have no P: an all_reduce or reduce_scatter removes it before the crossing.
// PartialSources keep P on some mesh dims (on all, with `at_once`): the receivers add the
// contributions. Sources may slice replicated dims, so that no two groups reduce the same elements,
// or that more ranks send less each. CrossTargets have no P: a mask makes it after the crossing.
// They may have cuts that a gather removes again, also before a mask that makes an average.
//
// A choice assigns to each mesh dim a tensor dim that it cuts, one of up to four, or none. Meshes
// of up to 64 ranks get all choices, with cuts in mesh order and in reverse order. If a small mesh
// has more than 32 choices, only two kinds are listed: the first mesh dims together cut one tensor
// dim, or the last ones do. Larger meshes get a few: the best may be missing. Pure functions.
// Internal to planner/inter_mesh.
#ifndef MESHIFT_PLANNER_INTER_MESH_CROSS_ENDS_H_
#define MESHIFT_PLANNER_INTER_MESH_CROSS_ENDS_H_

#include <vector>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {

// Each list has each sharding once, with the given dtype, in a fixed order, the simplest first.
// Shardings that the dtype cannot have (such as f4e2m1 cut inside a byte) are left out, so that a
// list may be empty.
std::vector<Sharding> CrossSources(const Sharding& from, DType dtype);
// Keeps P on some of the mesh dims of size > 1 that are P in `from`; with `at_once`, on all of
// them. P(avg) is always kept there. Empty if no mesh dim of size > 1 is P, or the tensor has 0
// elements.
std::vector<Sharding> PartialSources(const Sharding& from, DType dtype, bool at_once);
std::vector<Sharding> CrossTargets(const Sharding& to, DType dtype);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTER_MESH_CROSS_ENDS_H_
