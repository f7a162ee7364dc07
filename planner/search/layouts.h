// Enumerates the layouts of a problem's tensor (the ways in which mesh dims can cut it), with lower
// bounds of the steps to them. Also converts states to lists of cuts and back.
//
//   Layouts layouts(problem, model);
//   const DecodedState view = layouts.Decode(problem.source());
//   layouts.bounds().Start(view.lists);
//   layouts.ForEachExtension({}, view.cut | view.replicated, INT64_MAX, fn);    // an ExtensionFn
//
// A layout has, for each tensor dim that may be cut (Problem::candidate_dims), a list of mesh dims,
// outermost first. Layouts are built one cut at a time. The items that a step moves are a product
// over tensor dims (step_bounds.h), so that each further layout costs a few multiplications.
//
// A mesh dim with a unit dim (placement/unit_dims.h) makes no ceil cut of pieces of one row: its
// cut of the unit dim is the same layout.
//
// The number of layouts is exponential in the mesh dims; the problem's budget limits the work. The
// problem and the model must outlive this. Internal to the planner; not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_LAYOUTS_H_
#define MESHIFT_PLANNER_SEARCH_LAYOUTS_H_

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/cut_table.h"
#include "planner/search/step_bounds.h"

namespace meshift {

// A decoded state: its lists of cuts, and its mesh dims by kind.
struct DecodedState {
  State state;
  Lists lists = {};
  uint64_t partial_code = 0;  // the state's code without its cuts
  DimMask partial = 0;
  DimMask replicated = 0;
  DimMask reducible = 0;  // Problem::IsReducible
  DimMask along = 0;      // Problem::MayReduceAlong
  DimMask cut = 0;
};

class Layouts {
 public:
  using Product = StepBounds::Product;
  using List = CutTable::List;

  Layouts(const Problem& problem, const CostModel& model);

  int num_lists() const { return bounds_.num_lists(); }
  const CutTable& table() const { return table_; }
  CutTable& table() { return table_; }
  StepBounds& bounds() { return bounds_; }
  const DecodedState& target() const { return target_; }

  DecodedState Decode(const State& state);
  // The state with these cuts at this stage. `partial_code`: DecodedState::partial_code of a state
  // with the same partial mesh dims. All other mesh dims are R. REQUIRES: no list has a partial
  // mesh dim.
  State StateOf(uint64_t partial_code, const Lists& lists, int stage) const {
    uint64_t code = partial_code;
    for (int i = 0; i < num_lists(); ++i) code |= table_.Code(lists[i], bounds_.tensor_dim(i));
    return State::FromCode(code, stage);
  }
  // For each sample rank: the items of its target box that it holds if the cuts are these lists.
  CutTable::Samples Wanted(const Lists& lists);
  // Mesh dims that data must cross to get from these cuts to the target's (CutTable::Across).
  DimMask Across(const Lists& lists) {
    DimMask across = 0;
    for (int i = 0; i < num_lists(); ++i) {
      across |= table_.Across(lists[i], bounds_.tensor_dim(i));
    }
    return across;
  }
  DimMask DimsOf(const Lists& lists) const {
    DimMask dims = 0;
    for (int i = 0; i < num_lists(); ++i) dims |= table_.dims(lists[i]);
    return dims;
  }
  // Whether each rank's box under `inner` is empty or part of its box under `outer`: a slice leads
  // from `outer` to `inner`.
  bool Contains(const Lists& outer, const Lists& inner);
  // Whether slices from these lists, or to them, may do more than add cuts. If not, `lists`
  // contains only layouts that extend it, and only prefixes of it contain it.
  bool MayRelabel(const Lists& lists) { return any_relabels_ || OwnersOf(lists) != 0; }
  // As meshift::IsPermutation (planner/graph/transitions.h).
  bool IsPermutation(const Lists& before, const Lists& after) const;
  // Mesh dims whose cuts a step removes, and those whose cuts it adds: all that come after the
  // common prefix of the lists of each tensor dim.
  struct Changes {
    DimMask from = 0;
    DimMask to = 0;
  };
  Changes Between(const Lists& before, const Lists& after) const;

  // Adds each mesh dim of `dims` to one of `lists`. A list that is a prefix of the target's list
  // gets the target's next cuts, as long as `dims` has them. The other mesh dims are appended to
  // list `spare`, in ascending order, where layouts may have these cuts. REQUIRES:
  // num_lists() > 0; no list has a mesh dim of `dims`.
  Lists CutTowardsTarget(Lists lists, DimMask dims, int spare);
  // The list of the outermost tensor dim longer than 1 that may be cut; if none is longer, of the
  // innermost.
  int outermost() const { return outermost_; }
  bool is_empty() const { return is_empty_; }  // the tensor has no element

  // Calls fn(lists, left, product) for every layout that extends `base` by mesh dims of `pool`, or
  // by none. `left`: the mesh dims of the pool that it does not use. `product`: of the step to it
  // from the lists of bounds().Start(); valid during the call. After the problem's budget is spent
  // no further layouts follow. REQUIRES: bounds().Start() was called; no list of `base` has a mesh
  // dim of the pool.
  //
  // `most_items` limits two numbers added together: the items that a rank receives by the step, and
  // the items of the target that it still needs after the step. A layout for which some rank
  // exceeds the limit may be left out. INT64_MAX: none is left out.
  using ExtensionFn =
      absl::FunctionRef<void(const Lists& lists, DimMask left, const Product& product)>;
  void ForEachExtension(const Lists& base, DimMask pool, int64_t most_items, ExtensionFn fn);
  // Calls fn(lists) for every layout that contains `inner` and that mesh dims of `pool` cut, with
  // the same end. REQUIRES: the tensor has elements.
  void ForEachContaining(const Lists& inner, DimMask pool,
                         absl::FunctionRef<void(const Lists&)> fn);
  // Calls fn(kept) for `lists` and for every layout that results from removing innermost cuts.
  template <typename Fn>
  void ForEachPrefix(const Lists& lists, const Fn& fn) const {
    Lists kept = lists;
    while (true) {
      fn(kept);
      int i = 0;
      while (i < num_lists() && kept[i] == CutTable::kNoCuts) {
        kept[i] = lists[i];
        ++i;
      }
      if (i == num_lists()) return;
      kept[i] = table_.Parent(kept[i]);
    }
  }

 private:
  struct Extension;
  struct Containing;
  // Calls fn(longer, left) for each list of tensor dim number i that is `list` and one more cut, by
  // a mesh dim of `pool`. `left`: the others of the pool.
  template <typename Fn>
  void ForEachLonger(int i, List list, DimMask pool, const Fn& fn) {
    const DimMask may_cut = problem_.MayCut(bounds_.tensor_dim(i));
    for (DimMask dims = pool & may_cut; dims != 0; dims &= dims - 1) {
      const int d = __builtin_ctz(dims);
      const DimMask left = pool & ~(DimMask{1} << d);
      if (MayCutCeil(i, list, d)) fn(table_.Append(list, d), left);
      if (list != CutTable::kNoCuts || !problem_.HasRagged()) continue;
      for (const CutSizes sizes : {CutSizes::kSource, CutSizes::kTarget}) {
        if (!problem_.HasCut(d, bounds_.tensor_dim(i), sizes)) continue;
        fn(table_.Append(list, d, sizes), left);
      }
    }
  }
  // Whether layouts may have a ceil cut by mesh dim d that follows `list`.
  bool MayCutCeil(int i, List list, int d) {
    const int k = bounds_.tensor_dim(i);
    return !HasDim(owned_dims_, d) || k < problem_.num_unit_dims() ||
           table_.Along(list, k).longest != 1;
  }
  uint32_t OwnersOf(const Lists& lists) {  // CutTable::Pieces::owners
    uint32_t owners = 0;
    for (int i = 0; i < num_lists(); ++i) {
      owners |= table_.Along(lists[i], bounds_.tensor_dim(i)).owners;
    }
    return owners;
  }
  DecodedState DecodeUncached(const State& state);

  const Problem& problem_;
  CutTable table_;
  StepBounds bounds_;
  std::array<int8_t, kMaxTensorRank> list_of_ = {};  // by tensor dim
  int outermost_ = 0;
  bool is_empty_ = false;
  DimMask owned_dims_ = 0;     // the mesh dims that have a unit dim
  bool any_relabels_ = false;  // MayRelabel() of all lists
  DecodedState target_;
  DecodedState last_decoded_;  // cache: the last state decoded, since calls repeat
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_LAYOUTS_H_
