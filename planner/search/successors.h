// All steps out of a state: the one definition of them, for the search, for limits and
// alternatives, and for the brute force of the tests.
//
//   Successors successors(problem, model, rules);
//   successors.ForEach(successors.layouts().Look(state), [&](const Successor& next) {
//     next.op;             // kAllGather
//     next.state;          // where it leads
//   });
//
// Which step leads from one layout to another (layouts.h), where nothing partial changes:
//
//   cuts are only added             slice
//   cuts are only taken off         all_gather, exchange
//   cuts change places with others
//     of the same sizes             permute, exchange
//   the same mesh dims cut, elsewhere   all_to_all
//   anything else                   exchange
//
// What two lists begin with alike does not count as changed. Besides, what
// is partial is reduced (all_reduce, reduce_scatter), values are masked to be partial, and cast.
// Each step acts on a set of mesh dims at once; the group of two or more is flattened, whether they
// are adjacent or not.
//
// Exchanges lead to any layout where there are few (kMostLayouts). Elsewhere, to the target, and to
// states from which one other step leads there; and in place of a gather that would pad.
//
// The problem and the model must outlive the successors. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_SUCCESSORS_H_
#define MESHIFT_PLANNER_SEARCH_SUCCESSORS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "meshift/plan.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/search/layouts.h"
#include "planner/search/value_rule.h"

namespace meshift {

struct Successor {
  StepOp op;
  State state;
  DimMask dims = 0;       // that the step is over (StepDims)
  DimMask reducible = 0;  // of `state`
  // From the cuts before to those of `state`; valid during the call.
  const StepBounds::Product& product;
};

class Successors {
 public:
  // Ways to cut, at most, for exchanges to lead to all of them: four mesh dims have fewer along up
  // to five tensor dims, and five along two.
  static constexpr int64_t kMostLayouts = 3000;

  Successors(const Problem& problem, const CostModel& model, const TransitionRules& rules);

  // What need not be listed.
  struct Limits {
    // Where nothing is partial: steps of which a rank gets, and then lacks, more items together
    // (Layouts::ForEachExtension).
    int64_t most_items = INT64_MAX;
    // Collectives to states that are not finished.
    bool only_last_collective = false;
  };
  using EmitFn = absl::FunctionRef<void(const Successor&)>;
  // In a fixed order. Only steps to values that may be held (value_rule.h), by groups that the
  // model allows; none to `view.state` itself.
  void ForEach(const View& view, const Limits& limits, EmitFn emit);
  void ForEach(const State& state, EmitFn emit) { ForEach(layouts_.Look(state), {}, emit); }

  Layouts& layouts() { return layouts_; }
  const ValueRule& value_rule() const { return value_rule_; }
  // Whether local steps alone lead from there to the target; the target included.
  bool IsFinished(const State& state) const {
    return std::binary_search(finished_.begin(), finished_.end(), state);
  }
  bool masks_target() const { return masks_target_; }  // a mesh dim is partial in the target alone

 private:
  class Masks;
  using Product = StepBounds::Product;
  void Emit(StepOp op, const State& next, DimMask dims, DimMask reducible, const Product& product,
            EmitFn emit) const;
  void CastAndMask(const View& view, EmitFn emit);
  void Reduce(const View& view, EmitFn emit);
  void Move(const View& view, const Limits& limits, EmitFn emit);
  void MoveTo(const View& view, const Lists& lists, const Product& product, EmitFn emit);
  bool MayExchangeTo(const View& view, const Lists& lists, const State& next) const;
  void FindFinished();

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules rules_;
  const ValueRule value_rule_;
  Layouts layouts_;
  bool exchanges_anywhere_ = true;
  bool masks_target_ = false;
  std::vector<State> finished_;  // sorted
  std::vector<View> finished_views_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SUCCESSORS_H_
