// The baseline planner: one collective per mesh dim, in the two passes of DTensor's greedy planner.
//
//   PlanPerDim(problem).moves;    // P,P -> R,R: all_reduce of one mesh dim, then of the other
//
// If the source has shards, a first pass goes from the last mesh dim to the first. It gives each
// dim its target placement, or replicates it if the cuts outside its cut differ from those in the
// target. A second pass, from the first mesh dim to the last, does the remaining steps and the
// masks. It is repeated until all dims have their target placement. A cast comes first if a
// reduction needs it, or if it does not widen the elements; the others come last or before a mask.
//
// It compares no costs, never flattens groups, and ignores the promise about bits. It also ignores
// max_value, and the limits on memory and groups, which the caller checks. DTensor's greedy planner
// takes cuts in mesh order only; with other orders, this one gathers the cuts inside a dim's cut
// before the dim itself.
#ifndef MESHIFT_PLANNER_INTRA_MESH_PER_DIM_H_
#define MESHIFT_PLANNER_INTRA_MESH_PER_DIM_H_

#include "planner/graph/state.h"
#include "planner/search/search.h"

namespace meshift {

// A path from the problem's source to its target; there always is one. Pure. O(dims^3).
Path PlanPerDim(const Problem& problem);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_PER_DIM_H_
