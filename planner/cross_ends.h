// Where a crossing to another mesh may begin and end: values from which one collective or local
// step leads on.
//
//   CrossSources(from, DType::kBF16)    // P,R -> R,R; S(0),R; R,S(0); S(0)[1],S(0)[0]; ...
//   CrossTargets(to, DType::kBF16)      // R,S(0) -> R,S(0); S(0)[1],S(0)[0]; S(1),S(0); ...
//
// Sources have no P: everything is reduced before the crossing, by all_reduce or reduce_scatter,
// and what stands in the way of a single source is sliced. Without P, the source itself is best: a
// slice only takes senders away. Targets have no P, which a mask makes behind the crossing, and may
// be cut where a gather completes them. None has a larger local box than what it stands for.
#ifndef MESHIFT_PLANNER_CROSS_ENDS_H_
#define MESHIFT_PLANNER_CROSS_ENDS_H_

#include <vector>

#include "placement/dtype.h"
#include "placement/sharding.h"

namespace meshift {

// Each once, of the given dtype, in a fixed order; the plainest first. Those that the dtype cannot
// have (f4e2m1 cut inside a byte) are left out.
std::vector<Sharding> CrossSources(const Sharding& from, DType dtype);
std::vector<Sharding> CrossTargets(const Sharding& to, DType dtype);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CROSS_ENDS_H_
