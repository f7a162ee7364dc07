// Enumerates the successors of a state: the steps out of it that plans may have. The search, the
// searches under limits, the alternatives and the brute force in tests use this one definition.
//
//   Successors successors(problem, model, rules);
//   successors.ForEach(state, [&](const Successor& next) {
//     next.op;             // kAllGather
//     next.state;          // where it leads
//   });
//
// A layout has a list of cuts for each tensor dim (layouts.h). This table has the steps from one
// layout to another that leave partial mesh dims as they are. Cuts with which both lists of a
// tensor dim begin count as unchanged. The first row that fits has the ops.
//
//   no rank receives anything                    slice
//   cuts are only removed                        all_gather, exchange
//   each cut is replaced by one of equal size    permute, exchange
//   the same mesh dims cut in another place      all_to_all
//   anything else                                exchange
//
// Other steps: all_reduce and reduce_scatter on partial mesh dims; masks, which make mesh dims
// partial; and casts. A step acts on one set of mesh dims, adjacent or not: ranks that differ only
// in these form one group.
//
// A slice may do more than add cuts where only one coordinate of a mesh dim holds anything, as in
// "S(0){8,0},S(0) -> S(1){4,0},S(0)". Such a step is local in any notation of the cuts.
//
// A state is finished if local steps alone may lead from it to the target. Exchanges lead to every
// layout if a problem has at most kMostLayouts. If it has more, they lead only to finished states,
// to states from which one slice, all_gather, all_to_all, reduction or mask may lead to the target
// (besides casts), and to where an all_gather with padding would lead. No exchange replaces an
// all_gather over a ragged cut whose sizes an option chooses.
//
// Once the problem's budget is spent, results are incomplete. The problem and the model must
// outlive the successors. Internal to the planner; not safe for concurrent use.
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
  DimMask dims = 0;       // mesh dims of the step (StepDims)
  DimMask reducible = 0;  // mesh dims of `state` that must still be reduced
  // From the cuts before to those of `state`. Valid only during the callback.
  const StepBounds::Product& product;
};

class Successors {
 public:
  // The most layouts for which exchanges lead to all of them. Four mesh dims have fewer on up to
  // five tensor dims; so have five mesh dims on two tensor dims.
  static constexpr int64_t kMostLayouts = 3000;

  Successors(const Problem& problem, const CostModel& model, const TransitionRules& rules);

  // Steps that ForEach() may leave out.
  struct Limits {
    // If no mesh dim must be reduced, and none is partial in the target alone: steps after which
    // some rank has received, and still needs for the target, more items than this together
    // (Layouts::ForEachExtension).
    int64_t most_items = INT64_MAX;
    // Collectives to states that are not finished.
    bool only_last_collective = false;
  };
  using EmitFn = absl::FunctionRef<void(const Successor&)>;
  // Calls emit() in a fixed order. Steps keep the value rule (value_rule.h) and use groups that the
  // model allows; none leads to `view.state` itself. Ends early if the problem's budget is spent.
  void ForEach(const DecodedState& view, const Limits& limits, EmitFn emit);
  void ForEach(const State& state, EmitFn emit) { ForEach(layouts_.Decode(state), {}, emit); }

  Layouts& layouts() { return layouts_; }
  const ValueRule& value_rule() const { return value_rule_; }
  // Whether local steps alone may lead from `state` to the target (the value rule may forbid a
  // value between them). True for the target.
  // May also be true of other states: then it is true of all states.
  bool IsFinished(const State& state) const { return all_finished_ || IsListed(state); }
  bool masks_target() const { return masks_target_; }  // a mesh dim is partial in the target alone

 private:
  class Masks;
  using Product = StepBounds::Product;
  void Emit(StepOp op, const State& next, DimMask dims, DimMask reducible, const Product& product,
            EmitFn emit) const;
  void CastAndMask(const DecodedState& view, EmitFn emit);
  void Reduce(const DecodedState& view, EmitFn emit);
  void Move(const DecodedState& view, const Limits& limits, EmitFn emit);
  void MoveTo(const DecodedState& view, const Lists& lists, const Product& product, EmitFn emit);
  bool MayExchangeTo(const DecodedState& view, const Lists& lists, const State& next) const;
  void FindFinished();
  bool IsListed(const State& state) const {
    return std::binary_search(finished_.begin(), finished_.end(), state);
  }

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules rules_;
  const ValueRule value_rule_;
  Layouts layouts_;
  bool exchanges_anywhere_ = true;
  bool masks_target_ = false;
  bool relabels_ = false;  // Layouts::MayRelabel() of the state of ForEach()
  bool all_finished_ = false;
  std::vector<State> finished_;  // sorted
  std::vector<DecodedState> finished_views_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SUCCESSORS_H_
