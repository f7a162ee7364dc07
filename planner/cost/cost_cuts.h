// What the parts of the cost model ask of cuts. Internal to it.
//
//   CommonBeginning(problem, before, after);      // the cuts that a step leaves as they are
//   MovingCuts(problem, before, after).after;     // the mesh dims of those that it makes
//   IsRaggedBehind(parent.of[k], after.of[k]);    // whether it moves a ragged one of tensor dim k
#ifndef MESHIFT_PLANNER_COST_COST_CUTS_H_
#define MESHIFT_PLANNER_COST_COST_CUTS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "planner/graph/state.h"

namespace meshift::cost_internal {

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

// The cuts that a step takes away, and those that it makes.
struct MovingCuts {
  MovingCuts(const Problem& problem, const CutLists& cuts_before, const CutLists& cuts_after)
      : parent(CommonBeginning(problem, cuts_before, cuts_after)) {
    for (int k = 0; k < problem.tensor_rank(); ++k) {
      const int common = parent.of[k].size;
      const CutLists::List& old_list = cuts_before.of[k];
      const CutLists::List& new_list = cuts_after.of[k];
      for (int i = common; i < old_list.size; ++i) before |= DimMask{1} << old_list[i];
      for (int i = common; i < new_list.size; ++i) after |= DimMask{1} << new_list[i];
      ragged |= IsRaggedBehind(parent.of[k], old_list) || IsRaggedBehind(parent.of[k], new_list);
    }
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (!HasDim(before | after, d)) continue;
      dims.push_back(d);
      ranks *= problem.size(d);
      if (!HasDim(after, d)) copies *= problem.size(d);
    }
  }

  CutLists parent;
  DimMask before = 0;  // other coordinates are other holders
  DimMask after = 0;
  absl::InlinedVector<int, kMaxStateDims> dims;  // of either
  int64_t ranks = 1;                             // in a group over them
  int64_t copies = 1;  // receivers alike but for coordinates that cut nothing after
  bool ragged = false;
};

}  // namespace meshift::cost_internal

#endif  // MESHIFT_PLANNER_COST_COST_CUTS_H_
