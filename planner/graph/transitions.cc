#include "planner/graph/transitions.h"

#include <optional>

#include "planner/graph/geometry.h"

namespace meshift {

bool IsSingleSourced(const Problem& problem, const State& state, DimMask dims) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!HasDim(dims, d) && state.IsReplicate(d)) return false;
  }
  return true;
}

DimMask StepDims(const Problem& problem, StepOp op, const State& before, const State& after) {
  if (op == StepOp::kCast) return 0;
  if (!IsReduction(op) && op != StepOp::kMask) {
    const CutChanges changes(problem, problem.Cuts(before), problem.Cuts(after));
    return changes.from | changes.to;
  }
  DimMask dims = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (before.IsPartial(d) != after.IsPartial(d)) dims |= DimMask{1} << d;
  }
  return dims;
}

bool IsPermutation(const Problem& problem, const State& before, const State& after) {
  const CutLists a = problem.Cuts(before);
  const CutLists b = problem.Cuts(after);
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (a.of[k].size != b.of[k].size) return false;
    for (int i = 0; i < a.of[k].size; ++i) {
      const CutSizes before = i == 0 ? a.of[k].outermost : CutSizes::kCeil;
      const CutSizes after = i == 0 ? b.of[k].outermost : CutSizes::kCeil;
      if (!problem.MakesSamePieces(a.of[k][i], before, b.of[k][i], after)) return false;
    }
  }
  return true;
}

bool HasUnlikeBlocks(const Problem& problem, const CutLists& parent, const CutLists& cut) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (cut.of[k].size == parent.of[k].size) continue;
    if (k < problem.num_unit_dims()) return true;
    if (parent.of[k].size == 0 && cut.of[k].outermost != CutSizes::kCeil) return true;
  }
  return false;
}

bool IsEven(const Problem& problem, const CutLists& before, const CutLists& after) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (problem.extent(k) == 0) return true;
  }
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const int common = CommonLength(before.of[k], after.of[k]);
    if (common == before.of[k].size && common == after.of[k].size) continue;
    const Lengths wholes =
        PieceLengths(problem.extent(k), NestOf(problem, before.of[k], 0, common));
    for (const CutLists* lists : {&before, &after}) {
      const CutLists::List& list = lists->of[k];
      // A ragged cut has unequal sizes; with equal sizes it would be a plain cut.
      if (common == 0 && list.outermost != CutSizes::kCeil) return false;
      const int64_t pieces = NumPieces(NestOf(problem, list, common, list.size));
      for (const int64_t length : wholes) {
        if (length % pieces != 0) return false;
      }
    }
  }
  return true;
}

std::optional<StepOp> MoveBetween(const Problem& problem, const State& before, const State& after) {
  const CutChanges changes(problem, problem.Cuts(before), problem.Cuts(after));
  if (changes.from == 0) return std::nullopt;  // a slice, or nothing
  if (changes.to == 0) return StepOp::kAllGather;
  if (IsPermutation(problem, before, after)) return StepOp::kPermute;
  return changes.from == changes.to ? StepOp::kAllToAll : StepOp::kExchange;
}

}  // namespace meshift
