// Lists of cuts with cuts added or taken off: what transitions are put together from. Internal to
// them.
//
//   ForEachPlacing(problem, cuts, replicated, false, [&](const CutLists& sliced) { ... });
//   ForEachSuffix(problem, cuts, [&](const CutLists& gathered, DimMask dims) { ... });
#ifndef MESHIFT_PLANNER_GRAPH_CUT_CHANGES_H_
#define MESHIFT_PLANNER_GRAPH_CUT_CHANGES_H_

#include <cstddef>

#include "planner/graph/state.h"

namespace meshift::transitions_internal {

inline constexpr CutSizes kAllCutSizes[] = {CutSizes::kCeil, CutSizes::kSource, CutSizes::kTarget};

// The mesh dims whose cuts a step takes off, and those whose cuts it adds: behind the cuts that
// `before` and `after` have in common.
struct ChangedDims {
  DimMask from = 0;
  DimMask to = 0;
};
inline ChangedDims ChangesBetween(const Problem& problem, const CutLists& before,
                                  const CutLists& after) {
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

// Calls fn(cuts) for every way to add all of `dims` to `cuts`, each dim as one of the innermost
// cuts of any candidate tensor dim. Every arrangement comes once: dims are inserted in ascending
// order, at any place behind the cuts that were there; one that becomes outermost has each of the
// sizes that it may have. `towards_target`: a dim goes only to the tensor dim that it cuts in the
// target, in the target's sizes, or to the largest if it cuts none there. Ends early where the
// problem's budget is exhausted.
template <typename Fn>
void ForEachPlacing(const Problem& problem, const CutLists& base, DimMask dims, bool towards_target,
                    const Fn& fn) {
  struct Recursion {
    const Problem& problem;
    const CutLists& base;
    const bool towards_target;
    const Fn& fn;
    bool Allows(int d, int k) const {
      if (!towards_target) return true;
      const State& target = problem.target();
      return k == (target.IsShard(d) ? target.tensor_dim(d) : problem.largest_dim());
    }
    bool AllowsSizes(int d, int k, CutSizes sizes) const {
      if (!problem.HasCut(d, k, sizes)) return false;
      if (!towards_target) return true;
      const State& target = problem.target();
      return sizes == (Allows(d, k) && target.IsShard(d) ? target.cut_sizes(d) : CutSizes::kCeil);
    }
    // Chooses the sizes of the outermost cuts of tensor dims k and on.
    void ChooseSizes(int k, CutLists& cuts) const {
      while (k < problem.tensor_rank() && (base.of[k].size > 0 || cuts.of[k].size == 0)) ++k;
      if (k == problem.tensor_rank()) {
        fn(const_cast<const CutLists&>(cuts));
        return;
      }
      for (const CutSizes sizes : kAllCutSizes) {
        if (!AllowsSizes(cuts.of[k][0], k, sizes)) continue;
        cuts.of[k].outermost = sizes;
        ChooseSizes(k + 1, cuts);
      }
      cuts.of[k].outermost = CutSizes::kCeil;
    }
    void Place(DimMask left, const CutLists& cuts) const {
      if (!problem.Charge(1)) return;
      if (left == 0) {
        if (!problem.HasRagged()) return fn(cuts);
        CutLists sized = cuts;
        return ChooseSizes(0, sized);
      }
      const int d = __builtin_ctz(left);
      for (int k : problem.candidate_dims()) {
        if (!Allows(d, k)) continue;
        for (int at = base.of[k].size; at <= cuts.of[k].size; ++at) {
          CutLists next = cuts;
          next.of[k].Insert(at, d);
          Place(left & (left - 1), next);
        }
      }
    }
  };
  Recursion{problem, base, towards_target, fn}.Place(dims, base);
}

// Calls fn(kept, dims) for every choice of innermost cuts: `kept` is what remains, `dims` (not
// empty) what was taken off.
template <typename Fn>
void ForEachSuffix(const Problem& problem, const CutLists& cuts, const Fn& fn) {
  struct Recursion {
    const Problem& problem;
    const Fn& fn;
    void Choose(size_t index, CutLists& kept, DimMask dims) const {
      if (index == problem.candidate_dims().size()) {
        if (dims != 0) fn(const_cast<const CutLists&>(kept), dims);
        return;
      }
      const int k = problem.candidate_dims()[index];
      const int full = kept.of[k].size;
      const CutSizes outermost = kept.of[k].outermost;
      for (int keep = full; keep >= 0; --keep) {
        kept.of[k].size = keep;
        if (keep == 0) kept.of[k].outermost = CutSizes::kCeil;
        DimMask taken = dims;
        for (int i = keep; i < full; ++i) taken |= DimMask{1} << kept.of[k][i];
        Choose(index + 1, kept, taken);
      }
      kept.of[k].size = full;
      kept.of[k].outermost = outermost;
    }
  };
  CutLists kept = cuts;
  Recursion{problem, fn}.Choose(0, kept, 0);
}

// Calls fn(subset) for every subset of `mask` that is not empty, ascending.
template <typename Fn>
void ForEachSubset(DimMask mask, const Fn& fn) {
  for (DimMask subset = mask & (~mask + 1); subset != 0; subset = (subset - mask) & mask) {
    fn(subset);
    if (subset == mask) return;
  }
}

}  // namespace meshift::transitions_internal

#endif  // MESHIFT_PLANNER_GRAPH_CUT_CHANGES_H_
