#include "planner/graph/transitions.h"

#include <optional>

#include "planner/graph/geometry.h"

namespace meshift {
namespace {

// The mesh dims whose cuts a step takes off, and those whose cuts it adds: behind the cuts that
// `before` and `after` have in common.
struct ChangedDims {
  DimMask from = 0;
  DimMask to = 0;
};
ChangedDims ChangesBetween(const Problem& problem, const CutLists& before, const CutLists& after) {
  ChangedDims dims;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const CutLists::List& a = before.of[k];
    const CutLists::List& b = after.of[k];
    const int common = CommonLength(a, b);
    for (int i = common; i < a.size; ++i) dims.from |= DimMask{1} << a[i];
    for (int i = common; i < b.size; ++i) dims.to |= DimMask{1} << b[i];
  }
  return dims;
}

}  // namespace

bool IsSingleSourced(const Problem& problem, const State& state, DimMask dims) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!HasDim(dims, d) && state.IsReplicate(d)) return false;
  }
  return true;
}

DimMask MovingDims(const Problem& problem, const State& before, const State& after) {
  const auto [from, to] = ChangesBetween(problem, problem.Cuts(before), problem.Cuts(after));
  return from | to;
}

DimMask StepDims(const Problem& problem, StepOp op, const State& before, const State& after) {
  if (op == StepOp::kCast) return 0;
  if (!IsReduction(op) && op != StepOp::kMask) return MovingDims(problem, before, after);
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
      if (!problem.CutAlike(a.of[k][i], before, b.of[k][i], after)) return false;
    }
  }
  return true;
}

bool IsEven(const Problem& problem, const CutLists& before, const CutLists& after) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (problem.extent(k) == 0) return true;
  }
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const int common = CommonLength(before.of[k], after.of[k]);
    if (common == before.of[k].size && common == after.of[k].size) continue;
    // Where the beginning makes pieces of one length, that is all there is.
    int64_t extent = problem.extent(k);
    bool one_length = before.of[k].outermost == CutSizes::kCeil || common == 0;
    for (int i = 0; i < common && one_length; ++i) {
      const int64_t n = problem.size(before.of[k][i]);
      one_length = extent % n == 0;
      extent /= n;
    }
    Extents extents = {extent};
    if (!one_length) {
      CutLists::List parent = before.of[k];
      parent.size = common;
      extents = ExtentsAfter(problem, k, parent);
    }
    for (const CutLists* lists : {&before, &after}) {
      const CutLists::List& list = lists->of[k];
      // Ragged cuts of equal sizes are plain ones.
      if (common == 0 && list.outermost != CutSizes::kCeil) return false;
      int64_t pieces = 1;
      for (int i = common; i < list.size; ++i) pieces *= problem.size(list[i]);
      for (const int64_t length : extents) {
        if (length % pieces != 0) return false;
      }
    }
  }
  return true;
}

std::optional<StepOp> CollectiveBetween(const Problem& problem, const State& before,
                                        const State& after, const TransitionRules& rules) {
  if (before.stage() != after.stage()) return std::nullopt;
  DimMask reduced = 0;
  DimMask reducible = 0;
  DimMask along = 0;
  bool averages = false;
  for (int d = 0; d < problem.num_dims(); ++d) {
    const DimMask bit = DimMask{1} << d;
    if (problem.IsReducible(before, d)) reducible |= bit;
    if (problem.MayReduceAlong(before, d)) along |= bit;
    if (before.IsPartial(d) == after.IsPartial(d)) {
      if (before.IsPartial(d) && before.op(d) != after.op(d)) return std::nullopt;
      continue;
    }
    if (after.IsPartial(d)) return std::nullopt;
    reduced |= bit;
    averages |= before.op(d) == ReduceOp::kAvg;
  }
  const CutLists a = problem.Cuts(before);
  const CutLists b = problem.Cuts(after);
  if (reduced == 0) {
    const auto [from, to] = ChangesBetween(problem, a, b);
    if (from == 0) return std::nullopt;  // a slice, or nothing
    if (to == 0) return StepOp::kAllGather;
    if (IsPermutation(problem, before, after)) return StepOp::kPermute;
    return from == to ? StepOp::kAllToAll : StepOp::kExchange;
  }
  if (before.stage() != problem.reduce_stage()) return std::nullopt;
  const DimMask must = reduced & reducible;
  if (must == 0 || (reduced & ~(reducible | along)) != 0) return std::nullopt;
  if (averages && must != reducible) return std::nullopt;
  if (rules.at_once && reduced != reducible) return std::nullopt;
  if (rules.single_sourced && !rules.exact && !IsSingleSourced(problem, before, reduced)) {
    return std::nullopt;
  }
  // The cuts that were there stay outermost; those added are the reduced dims.
  DimMask added = 0;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (CommonLength(a.of[k], b.of[k]) < a.of[k].size) return std::nullopt;
    for (int i = a.of[k].size; i < b.of[k].size; ++i) added |= DimMask{1} << b.of[k][i];
  }
  if (added == 0) return StepOp::kAllReduce;
  if (added == reduced && rules.scatters) return StepOp::kReduceScatter;
  return std::nullopt;
}

}  // namespace meshift
