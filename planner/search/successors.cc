#include "planner/search/successors.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_set.h"

namespace meshift {
namespace {

// Work (base/work_budget.h) of a listed step, and of a state that is kept: mostly memory.
constexpr int64_t kStepWork = 4;
constexpr int64_t kKeepWork = 64;

// The number of layouts of n mesh dims on `num_lists` tensor dims. Stops counting above `most`.
int64_t NumLayouts(int n, int64_t num_lists, int64_t most) {
  // For each k: the orders of k mesh dims, times the ways to divide an order among the tensor dims.
  int64_t layouts = 0;
  int64_t orders = 1;
  for (int k = 0; k <= n && layouts <= most; ++k) {
    layouts += orders;
    orders = orders * (n - k) * (k + num_lists) / (k + 1);
  }
  return layouts;
}

uint64_t Without(uint64_t code, DimMask dims) {
  for (; dims != 0; dims &= dims - 1) code &= ~(uint64_t{255} << (8 * __builtin_ctz(dims)));
  return code;
}

// Whether the state has two partial ops that differ; sum and avg count as one.
bool MixesOps(const Problem& problem, const State& state) {
  std::optional<ReduceOp> seen;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!state.IsPartial(d)) continue;
    const ReduceOp op = state.op(d) == ReduceOp::kAvg ? ReduceOp::kSum : state.op(d);
    if (seen && *seen != op) return true;
    seen = op;
  }
  return false;
}

}  // namespace

Successors::Successors(const Problem& problem, const CostModel& model, const TransitionRules& rules)
    : problem_(problem),
      model_(model),
      rules_(rules),
      value_rule_(problem, rules.max_value),
      layouts_(problem, model),
      exchanges_anywhere_(NumLayouts(problem.num_dims(), layouts_.num_lists(), kMostLayouts) <=
                          kMostLayouts) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    masks_target_ |= problem.target().IsPartial(d) && !problem.source().IsPartial(d);
  }
  FindFinished();
}

void Successors::Emit(StepOp op, const State& next, DimMask dims, DimMask reducible,
                      const Product& product, EmitFn emit) const {
  if (model_.groups() && IsCollective(op) && !model_.groups()->test(dims)) return;
  if (!value_rule_.MayHold(next, product.longest) || !problem_.Charge(kStepWork)) return;
  emit({op, next, dims, reducible, product});
}

void Successors::ForEach(const DecodedState& view, const Limits& limits, EmitFn emit) {
  layouts_.bounds().Start(view.lists);
  relabels_ = layouts_.MayRelabel(view.lists);
  CastAndMask(view, emit);
  if (view.state.stage() == problem_.reduce_stage()) Reduce(view, emit);
  Limits for_moves = limits;
  if (view.reducible != 0 || masks_target_) for_moves.most_items = INT64_MAX;
  Move(view, for_moves, emit);
}

// Steps that change cuts and leave partial mesh dims as they are.
void Successors::Move(const DecodedState& view, const Limits& limits, EmitFn emit) {
  // A slice that does more than add cuts may lead to any layout.
  const bool only_last = limits.only_last_collective && !relabels_;
  if (only_last) {
    for (const DecodedState& last : finished_views_) {
      if (last.partial_code != view.partial_code || last.state.stage() != view.state.stage()) {
        continue;
      }
      const Product& product = layouts_.bounds().Compare(last.lists);
      if (product.from != 0) MoveTo(view, last.lists, product, emit);
    }
  }
  const auto move = [&](const Lists& lists, DimMask, const Product& product) {
    if (layouts_.bounds().MovedAndMissing(product) <= limits.most_items) {
      MoveTo(view, lists, product, emit);
    }
  };
  if (only_last) {  // slices
    layouts_.ForEachExtension(view.lists, view.replicated, limits.most_items, move);
  } else {
    layouts_.ForEachExtension({}, view.cut | view.replicated, limits.most_items, move);
  }
}

void Successors::MoveTo(const DecodedState& view, const Lists& lists, const Product& product,
                        EmitFn emit) {
  const DimMask dims = product.from | product.to;
  if (dims == 0) return;
  const State next = State::FromCode(view.partial_code | product.code, view.state.stage());
  const auto offer = [&](StepOp op) { Emit(op, next, dims, view.reducible, product, emit); };
  if (product.from == 0) return offer(StepOp::kSlice);
  if (relabels_ && layouts_.bounds().Moved(product) == 0 && layouts_.Contains(view.lists, lists)) {
    return offer(StepOp::kSlice);
  }
  const bool permutes = layouts_.IsPermutation(view.lists, lists);
  if (product.to == 0) offer(StepOp::kAllGather);
  if (permutes) offer(StepOp::kPermute);
  // An exchange would cost the same.
  if (product.from == product.to && !permutes) return offer(StepOp::kAllToAll);
  // An option has chosen the sizes of this all_gather.
  if (product.to == 0 && model_.ragged() &&
      HasUnlikeBlocks(problem_, problem_.Cuts(next), problem_.Cuts(view.state))) {
    return;
  }
  if (exchanges_anywhere_ || MayExchangeTo(view, lists, next) ||
      (product.to == 0 && !IsEven(problem_, problem_.Cuts(view.state), problem_.Cuts(next)))) {
    offer(StepOp::kExchange);
  }
}

// Whether `next` is finished, or one step may lead from it to the target. That step may also reduce
// or mask, since an exchange leaves partial mesh dims as they are.
bool Successors::MayExchangeTo(const DecodedState& view, const Lists& lists,
                               const State& next) const {
  const DecodedState& target = layouts_.target();
  const State last = next.AtStage(target.state.stage());
  if (IsListed(last)) return true;
  const Layouts::Changes changes = layouts_.Between(lists, target.lists);
  const DimMask reduced = view.partial & ~target.partial;
  const DimMask masked = target.partial & ~view.partial;
  if (reduced != 0) {
    return masked == 0 && changes.from == 0 && (changes.to == 0 || changes.to == reduced);
  }
  if (masked != 0) return changes.to == 0 && (changes.from & ~masked) == 0;
  return view.partial_code == target.partial_code &&
         (changes.from == 0 || changes.to == 0 || changes.from == changes.to);
}

void Successors::Reduce(const DecodedState& view, EmitFn emit) {
  if (view.reducible == 0) return;
  // Otherwise several groups would compute the same value.
  if (rules_.single_sourced && !rules_.exact && view.replicated != 0) return;
  DimMask averaged = 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(view.reducible, d) && view.state.op(d) == ReduceOp::kAvg) {
      averaged |= DimMask{1} << d;
    }
  }
  const auto allows = [&](DimMask dims) {
    const DimMask must = dims & view.reducible;
    if (must == 0 || (rules_.at_once && dims != view.reducible)) return false;
    // An average is divided once, in the last reduction.
    return (dims & averaged) == 0 || must == view.reducible;
  };
  const DimMask all = view.reducible | view.along;
  const Product& same = layouts_.bounds().Compare(view.lists);
  ForEachSubset(all, [&](DimMask dims) {
    if (!allows(dims)) return;
    const State next =
        State::FromCode(Without(view.partial_code, dims) | same.code, view.state.stage());
    Emit(StepOp::kAllReduce, next, dims, view.reducible & ~dims, same, emit);
  });
  if (!rules_.scatters) return;
  layouts_.ForEachExtension(
      view.lists, all, INT64_MAX, [&](const Lists&, DimMask left, const Product& product) {
        const DimMask dims = all & ~left;
        if (!allows(dims)) return;
        const State next =
            State::FromCode(Without(view.partial_code, dims) | product.code, view.state.stage());
        Emit(StepOp::kReduceScatter, next, dims, view.reducible & ~dims, product, emit);
      });
}

// Masks out of one state: mesh dims that are replicated, or are innermost cuts, become partial
// (docs/plan_format.md, "Masks").
class Successors::Masks {
 public:
  Masks(Successors& successors, const DecodedState& view, EmitFn emit)
      : successors_(successors),
        problem_(successors.problem_),
        target_(problem_.target()),
        view_(view),
        emit_(emit) {
    if (view.state.stage() != target_.stage()) return;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (target_.IsPartial(d) && !view.state.IsPartial(d)) wanted_ |= DimMask{1} << d;
    }
  }

  // Masks to the target's partial ops. They are made in the target's dtype, for the identity of the
  // op in that dtype.
  void TowardsTarget() {
    ForEachSubset(wanted_ & view_.replicated,
                  [&](DimMask dims) { Mask(view_.lists, dims, dims, ReduceOp::kSum); });
    if ((wanted_ & ~view_.replicated) == 0) return;
    ForEachCut([&](const Lists& kept, DimMask cut) {
      if ((cut & ~wanted_) != 0 || AveragesAny(cut)) return;
      Mask(kept, cut, cut, ReduceOp::kSum);
      ForEachSubset(wanted_ & view_.replicated,
                    [&](DimMask more) { Mask(kept, cut | more, cut | more, ReduceOp::kSum); });
    });
  }

  // Masks that join a reduction. From R: several groups must not compute the same value. From R or
  // innermost cuts: one collective may be cheaper than a reduction and a gather. Mesh dims that the
  // same mask can make partial for the target (`stays`) get the target's op and may be reduced
  // along; a mesh dim that is to be an average may join as a sum instead.
  void ToJoinReduction(const TransitionRules& rules) {
    if (rules.at_once || view_.state.stage() != problem_.reduce_stage()) return;
    const bool reduces = view_.reducible != 0;
    if (!reduces && !rules.masks_cuts) return;
    DimMask stays = 0;
    DimMask averages = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      const DimMask bit = DimMask{1} << d;
      State alone = view_.state;
      if (!HasDim(wanted_, d)) continue;
      alone.SetPartial(d, target_.op(d));
      if (MixesOps(problem_, alone)) continue;
      stays |= bit;
      if (AveragesAny(bit)) averages |= bit;
    }
    const ReduceOp op = reduces ? problem_.mask_op() : problem_.cut_mask_op();
    const auto join = [&](const Lists& kept, DimMask dims, DimMask cut) {
      const auto with_sums = [&](DimMask sums) {
        const DimMask staying = dims & stays & ~sums;
        if ((dims & ~staying) == 0) return;  // a mask towards the target
        if (!reduces && (cut & ~staying) == 0) return;
        Mask(kept, dims, staying, op);
      };
      const DimMask always = averages & cut;
      with_sums(always);
      if (!reduces) return;
      ForEachSubset(averages & dims & ~cut, [&](DimMask sums) { with_sums(always | sums); });
    };
    // Without another reduction, replicated dims join only so that each value has one group.
    const DimMask joining = reduces || !rules.exact ? view_.replicated : view_.replicated & stays;
    if (reduces) ForEachSubset(joining, [&](DimMask dims) { join(view_.lists, dims, 0); });
    ForEachCut([&](const Lists& kept, DimMask cut) {
      join(kept, cut, cut);
      ForEachSubset(joining, [&](DimMask more) { join(kept, cut | more, cut); });
    });
  }

 private:
  // Calls fn(kept, cut) for every nonempty set `cut` of innermost cuts; `kept`: the other cuts.
  template <typename Fn>
  void ForEachCut(const Fn& fn) {
    const Layouts& layouts = successors_.layouts_;
    layouts.ForEachPrefix(view_.lists, [&](const Lists& kept) {
      const DimMask cut = view_.cut & ~layouts.DimsOf(kept);
      if (cut != 0 && problem_.HasWorkLeft()) fn(kept, cut);
    });
  }
  // Emits the mask that makes `dims` partial: with the target's op on `staying`, `op` on the rest.
  void Mask(const Lists& kept, DimMask dims, DimMask staying, ReduceOp op) {
    Layouts& layouts = successors_.layouts_;
    const Product& product = layouts.bounds().Compare(kept);
    State next = State::FromCode(view_.partial_code | product.code, view_.state.stage());
    DimMask reducible = view_.reducible;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (!HasDim(dims, d)) continue;
      next.SetPartial(d, HasDim(staying, d) ? target_.op(d) : op);
      if (problem_.IsReducible(next, d)) reducible |= DimMask{1} << d;
    }
    if (MixesOps(problem_, next)) return;
    successors_.Emit(StepOp::kMask, next, dims, reducible, product, emit_);
  }
  // A cut cannot become a partial average, since an average has no identity.
  bool AveragesAny(DimMask dims) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (HasDim(dims, d) && target_.op(d) == ReduceOp::kAvg) return true;
    }
    return false;
  }

  Successors& successors_;
  const Problem& problem_;
  const State& target_;
  const DecodedState& view_;
  EmitFn emit_;
  DimMask wanted_ = 0;  // partial in the target, not yet in the state
};

void Successors::CastAndMask(const DecodedState& view, EmitFn emit) {
  if (problem_.MayCast(view.state)) {
    const State next = view.state.AtStage(view.state.stage() + 1);
    Emit(StepOp::kCast, next, 0, layouts_.Decode(next).reducible,
         layouts_.bounds().Compare(view.lists), emit);
  }
  if (!masks_target_ && view.reducible == 0) return;
  Masks masks(*this, view, emit);
  masks.TowardsTarget();
  masks.ToJoinReduction(rules_);
}

void Successors::FindFinished() {
  std::vector<State>& found = finished_;
  absl::flat_hash_set<State> seen;
  std::vector<bool> sliced;  // by index: the state is followed by a slice
  const auto add = [&](const State& state, bool is_sliced) {
    if (!problem_.Charge(kKeepWork) || !seen.insert(state).second) return;
    found.push_back(state);
    sliced.push_back(is_sliced);
  };
  add(problem_.target(), false);
  for (size_t i = 0; i < found.size(); ++i) {
    const State state = found[i];
    const DecodedState view = layouts_.Decode(state);
    // A slice before a slice is one slice.
    if (!sliced[i]) {
      layouts_.ForEachPrefix(view.lists, [&](const Lists& kept) {
        add(layouts_.StateOf(view.partial_code, kept, state.stage()), true);
      });
    }
    if (layouts_.MayRelabel(view.lists)) {
      // Masks before such slices, and layouts of an empty tensor, would be too many.
      all_finished_ |= masks_target_ || layouts_.is_empty();
      if (!all_finished_ && state.AtStage(problem_.target().stage()) == problem_.target()) {
        layouts_.ForEachContaining(view.lists, view.cut | view.replicated, [&](const Lists& lists) {
          add(layouts_.StateOf(view.partial_code, lists, state.stage()), true);
        });
      }
    }
    if (state.stage() > 0) {
      const State before = state.AtStage(state.stage() - 1);
      if (problem_.MayCast(before)) add(before, false);
    }
    if (state.stage() != problem_.target().stage()) continue;
    // The states before a mask of one mesh dim, from R or from an innermost cut.
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (!state.IsPartial(d) || problem_.source().IsPartial(d)) continue;
      const uint64_t code = Without(view.partial_code, DimMask{1} << d);
      add(layouts_.StateOf(code, view.lists, state.stage()), false);
      if (state.op(d) == ReduceOp::kAvg) continue;
      layouts_.bounds().Start(view.lists);
      layouts_.ForEachExtension(view.lists, DimMask{1} << d, INT64_MAX,
                                [&](const Lists&, DimMask, const Product& product) {
                                  add(State::FromCode(code | product.code, state.stage()), false);
                                });
    }
  }
  std::sort(found.begin(), found.end());
  for (const State& state : found) finished_views_.push_back(layouts_.Decode(state));
}

}  // namespace meshift
