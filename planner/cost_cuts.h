// What the parts of the cost model ask of cuts. Internal to it.
//
//   CommonBeginning(problem, before, after);      // the cuts that a step leaves as they are
//   IsRaggedBehind(parent.of[k], after.of[k]);    // whether it moves a ragged one of tensor dim k
#ifndef MESHIFT_PLANNER_COST_CUTS_H_
#define MESHIFT_PLANNER_COST_CUTS_H_

#include "planner/state.h"

namespace meshift::cost_internal {

inline bool Has(DimMask mask, int d) { return (mask >> d & 1) != 0; }

// The cuts that both have, from the outermost on.
inline CutLists CommonBeginning(const Problem& problem, const CutLists& a, const CutLists& b) {
  CutLists common;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const int length = CommonLength(a.of[k], b.of[k]);
    if (length == 0) continue;
    common.of[k] = a.of[k];
    common.of[k].size = length;
  }
  return common;
}

// Whether the cuts of `list` behind `parent`, its beginning, have a ragged one among them.
inline bool IsRaggedBehind(const CutLists::List& parent, const CutLists::List& list) {
  return parent.size == 0 && list.outermost != CutSizes::kCeil;
}

}  // namespace meshift::cost_internal

#endif  // MESHIFT_PLANNER_COST_CUTS_H_
