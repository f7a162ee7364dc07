// The baseline: one collective per mesh dim, in the two passes of DTensor's greedy planner.
//
//   PlanPerDim(problem).moves;    // P,P -> R,R: all_reduce of one mesh dim, then of the other
//
// If the source has shards, a first pass goes from the last mesh dim to the first; a dim whose
// target's cut would not sit behind the same cuts as now becomes replicated on the way. A second
// pass, from the first to the last, does what is left. Nothing is costed, groups are never
// flattened, and the promise about bits is not looked at. Cut orders other than mesh order, which
// DTensor's greedy planner does not take, are handled by gathering the cuts behind a dim before the
// dim itself.
#ifndef MESHIFT_PLANNER_ONE_MESH_PER_DIM_H_
#define MESHIFT_PLANNER_ONE_MESH_PER_DIM_H_

#include "planner/graph/state.h"
#include "planner/search/search.h"

namespace meshift {

// From the problem's source to its target. O(dims^2).
Path PlanPerDim(const Problem& problem);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_ONE_MESH_PER_DIM_H_
