// The ways in which mesh dims can cut a problem's tensor, and steps between them.
//
//   Layouts layouts(problem, model);
//   const View view = layouts.Look(problem.source());
//   layouts.bounds().Start(view.lists);
//   layouts.ForEachExtension({}, view.cut | view.replicated, INT64_MAX,
//                            [](const Lists& lists, DimMask left, const StepBounds::Product& p)
//                            {});
//
// A layout is a list of mesh dims for each tensor dim that may be cut (Problem::candidate_dims),
// outermost first. Layouts are put together one cut at a time, and what a step from one to another
// moves is a product over tensor dims (step_bounds.h), so that a layout costs a few
// multiplications. The problem and the model must outlive the layouts. Not safe for concurrent use.
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

// A state, taken apart.
struct View {
  State state;
  Lists lists = {};
  uint64_t partial_code = 0;  // the state's code, its cuts left out
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
  const View& target() const { return target_; }

  View Look(const State& state);
  State StateOf(uint64_t partial_code, const Lists& lists, int stage) const {
    uint64_t code = partial_code;
    for (int i = 0; i < num_lists(); ++i) code |= table_.Code(lists[i], bounds_.tensor_dim(i));
    return State::FromCode(code, stage);
  }
  // Of the largest box.
  int64_t MaxItems(const Lists& lists);
  // As in StepBounds::Product.
  CutTable::Samples Wanted(const Lists& lists);
  DimMask Across(const Lists& lists) const {
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
  // As meshift::IsPermutation.
  bool IsPermutation(const Lists& before, const Lists& after) const;
  // Mesh dims whose cuts a step takes off, and those whose cuts it adds: behind what the lists of
  // each tensor dim begin with together.
  struct Changes {
    DimMask from = 0;
    DimMask to = 0;
  };
  Changes Between(const Lists& before, const Lists& after) const;

  // `lists`, cut by all of these mesh dims besides: as the target is, as far as that goes, by the
  // rest along the tensor dim of list `spare`. REQUIRES: num_lists() > 0.
  Lists CutTowardsTarget(Lists lists, DimMask dims, int spare);
  // The list of the largest tensor dim, and of the outermost that is longer than 1.
  int largest() const { return largest_; }
  int outermost() const { return outermost_; }

  // Calls fn(lists, left, product) for every layout that cuts `base` further by mesh dims of
  // `pool`, by none included; `left`: those of the pool that do not cut; `product`: of a step to it
  // from where bounds() started. Left out may be layouts of which a rank gets so many items by the
  // step, and then lacks so many of the target, that these are more than `most_items` together; and
  // all that come after the problem's budget is spent.
  using ExtensionFn =
      absl::FunctionRef<void(const Lists& lists, DimMask left, const Product& product)>;
  void ForEachExtension(const Lists& base, DimMask pool, int64_t most_items, ExtensionFn fn);
  // Calls fn(kept) for `lists`, and whatever is left when innermost cuts are taken off.
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
  View LookAnew(const State& state);

  const Problem& problem_;
  CutTable table_;
  StepBounds bounds_;
  std::array<int8_t, kMaxTensorRank> list_of_ = {};  // by tensor dim
  int largest_ = 0;
  int outermost_ = 0;
  View target_;
  View looked_;  // of the state that was looked at last: a state is, more than once in a row
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_LAYOUTS_H_
