// The cuts of a problem's states as placement/cuts.h takes them, and what a step changes of them.
//
//   PieceLengths(problem.extent(0), NestOf(problem, cuts.of[0]));    // lengths that pieces have
//   CutChanges(problem, before, after).to;      // the mesh dims of the cuts that a step makes
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
// The cuts [first, end) of `list`; all of them.
inline Nest NestOf(const Problem& problem, const CutLists::List& list, int first, int end) {
  Nest cuts;
  for (int i = first; i < end; ++i) cuts.push_back(CutOf(problem, list, i));
  return cuts;
}
inline Nest NestOf(const Problem& problem, const CutLists::List& list) {
  return NestOf(problem, list, 0, list.size);
}

// The cuts that a step leaves as they are, and the mesh dims of those behind them that it takes
// away, and that it makes.
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

  std::array<int, kMaxTensorRank> common;  // how many stay, by tensor dim, outermost first
  DimMask from = 0;
  DimMask to = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_GEOMETRY_H_
