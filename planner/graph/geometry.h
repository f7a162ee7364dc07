// Converts a state's cuts to the types of placement/cuts.h, and compares the cuts of two states.
//
//   PieceLengths(problem.extent(0), NestOf(problem, cuts.of[0]));    // the distinct piece lengths
//   CutChanges(problem, before, after).to;      // the mesh dims of the cuts that a step adds
//
// Lengths are in the problem's items (Problem::extent). A ragged Cut points into the problem, which
// must outlive it. REQUIRES: the cuts are the problem's; not checked. Internal to the planner.
#ifndef MESHIFT_PLANNER_GRAPH_GEOMETRY_H_
#define MESHIFT_PLANNER_GRAPH_GEOMETRY_H_

#include <array>
#include <cstdint>

#include "placement/cuts.h"
#include "planner/graph/state.h"

namespace meshift {

// Cut i of `list`.
inline Cut CutOf(const Problem& problem, const CutLists::List& list, int i) {
  const CutSizes sizes = i == 0 ? list.outermost : CutSizes::kCeil;
  return {problem.size(list[i]), problem.begins(list[i], sizes)};
}
// The cuts [first, end) of `list`. Default: all.
inline Nest NestOf(const Problem& problem, const CutLists::List& list, int first, int end) {
  Nest cuts;
  for (int i = first; i < end; ++i) cuts.push_back(CutOf(problem, list, i));
  return cuts;
}
inline Nest NestOf(const Problem& problem, const CutLists::List& list) {
  return NestOf(problem, list, 0, list.size);
}

// Compares the cuts before and after a step: the cuts that stay (the common prefix of each tensor
// dim's lists), and the mesh dims of the later cuts that the step removes (`from`) and adds (`to`).
struct CutChanges {
  CutChanges(const Problem& problem, const CutLists& before, const CutLists& after) {
    for (int k = 0; k < problem.tensor_rank(); ++k) {
      const CutLists::List& a = before.of[k];
      const CutLists::List& b = after.of[k];
      common[k] = CommonLength(a, b);
      for (int i = common[k]; i < a.size; ++i) from |= DimMask{1} << a[i];
      for (int i = common[k]; i < b.size; ++i) to |= DimMask{1} << b[i];
    }
  }

  std::array<int, kMaxTensorRank> common;  // cuts that stay; set for the problem's tensor dims only
  DimMask from = 0;
  DimMask to = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_GEOMETRY_H_
