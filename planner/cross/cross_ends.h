// Where a crossing to another mesh may begin and end.
//
//   CrossSources(from, DType::kBF16)    // P,R -> R,R; S(0),R; R,S(0); S(0)[1],S(0)[0]; ...
//   PartialSources(from, DType::kBF16, /*at_once=*/false)   // P,R; P,S(0)
//   CrossTargets(to, DType::kBF16)      // R,S(0) -> R,S(0); S(0)[1],S(0)[0]; S(1),S(0); ...
//
// CrossSources have no P: everything is reduced before the crossing, by all_reduce or
// reduce_scatter. PartialSources keep P, all or, unless that must go at once, some: their
// contributions cross, and are added by who takes them. What is replicated may be sliced: so that
// no two groups reduce the same, or that more ranks send, less each. CrossTargets have no P, which
// a mask makes behind the crossing, and may be cut where a gather completes them, before the mask
// too where it makes an average. On small meshes
// all cuts in mesh order or the other way round are among them, whatever their size; where these
// are many, those where the first mesh dims or the last cut one tensor dim.
#ifndef MESHIFT_PLANNER_CROSS_CROSS_ENDS_H_
#define MESHIFT_PLANNER_CROSS_CROSS_ENDS_H_

#include <vector>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {

// Each once, of the given dtype, in a fixed order; the plainest first. Those that the dtype cannot
// have (f4e2m1 cut inside a byte) are left out.
std::vector<Sharding> CrossSources(const Sharding& from, DType dtype);
// With P on some of the mesh dims that are P in `from`; `at_once`: on all of them. All that are
// averaged stay so. None where nothing is P, or there are no elements.
std::vector<Sharding> PartialSources(const Sharding& from, DType dtype, bool at_once);
std::vector<Sharding> CrossTargets(const Sharding& to, DType dtype);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_CROSS_ENDS_H_
