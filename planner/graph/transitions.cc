#include "planner/graph/transitions.h"

#include <optional>

#include "planner/graph/cut_changes.h"

namespace meshift {

using transitions_internal::ChangesBetween;
using transitions_internal::ForEachPlacing;
using transitions_internal::ForEachSubset;
using transitions_internal::ForEachSuffix;
using transitions_internal::kAllCutSizes;

namespace {

// Of a transition that is listed: what is asked of each before anything else.
constexpr int64_t kListWork = 8;

// The kinds of transition, one function each.
class Enumerator {
 public:
  Enumerator(const Problem& problem, const State& state, const TransitionRules& rules,
             const TransitionFn& emit)
      : problem_(problem), state_(state), rules_(rules), emit_(emit), cuts_(problem.Cuts(state)) {
    for (int d = 0; d < problem.num_dims(); ++d) {
      const DimMask bit = DimMask{1} << d;
      if (state.IsReplicate(d)) replicated_ |= bit;
      if (problem.MayReduceAlong(state, d)) along_ |= bit;
      if (!problem.IsReducible(state, d)) continue;
      reducible_ |= bit;
      if (state.op(d) == ReduceOp::kAvg) averaged_ |= bit;
    }
  }

  void RunCastsAndMasks() {
    Casts();
    Masks();
  }
  void RunLocal() {
    RunCastsAndMasks();
    Slices();
  }
  void Run() {
    RunLocal();
    if (state_.stage() == problem_.reduce_stage()) Reductions();
    Gathers();
    Regroupings();
    Permutations();
  }

 private:
  void Emit(StepOp op, DimMask dims, const State& next) {
    if (!(next == state_) && problem_.Charge(kListWork)) emit_(op, dims, next);
  }

  void Casts() {
    if (problem_.MayCast(state_)) Emit(StepOp::kCast, 0, state_.AtStage(state_.stage() + 1));
  }

  // all_reduce and reduce_scatter.
  void Reductions() {
    ForEachSubset(reducible_ | along_, [&](DimMask dims) {
      const DimMask must = dims & reducible_;
      if (must == 0 || (rules_.at_once && dims != reducible_)) return;
      // An average is divided once, in the last reduction.
      if ((dims & averaged_) != 0 && must != reducible_) return;
      if (rules_.single_sourced && !rules_.exact && !IsSingleSourced(problem_, state_, dims)) {
        return;
      }
      State reduced = state_;
      for (int d = 0; d < problem_.num_dims(); ++d) {
        if (HasDim(dims, d)) reduced.SetReplicate(d);
      }
      Emit(StepOp::kAllReduce, dims, reduced);
      if (!rules_.scatters) return;
      ForEachPlacing(problem_, cuts_, dims, rules_.towards_target, [&](const CutLists& cuts) {
        Emit(StepOp::kReduceScatter, dims, problem_.WithCuts(reduced, cuts));
      });
    });
  }

  void Slices() {
    ForEachSubset(replicated_, [&](DimMask dims) {
      ForEachPlacing(problem_, cuts_, dims, rules_.towards_target, [&](const CutLists& cuts) {
        Emit(StepOp::kSlice, dims, problem_.WithCuts(state_, cuts));
      });
    });
  }

  // all_gather, and the exchange that does the same without padding.
  void Gathers() {
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
      const State next = problem_.WithCuts(state_, kept);
      Emit(StepOp::kAllGather, dims, next);
      if (!IsEven(problem_, cuts_, kept)) Emit(StepOp::kExchange, dims, next);
    });
  }

  // all_to_all: the innermost cuts are placed otherwise.
  void Regroupings() {
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
      ForEachPlacing(problem_, kept, dims, rules_.towards_target, [&](const CutLists& cuts) {
        const State next = problem_.WithCuts(state_, cuts);
        // The same states with fewer dims come from a smaller suffix.
        if (MovingDims(problem_, state_, next) != dims || IsPermutation(problem_, state_, next)) {
          return;
        }
        Emit(StepOp::kAllToAll, dims, next);
      });
    });
  }

  // permute: innermost cuts change places with each other and with replicated dims of their size.
  void Permutations() {
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
      CutLists cuts = kept;
      Permute(0, cuts, dims | replicated_, dims);
    });
  }
  void Permute(int k, CutLists& cuts, DimMask pool, DimMask taken) {
    if (!problem_.Charge(1)) return;
    while (k < problem_.tensor_rank() && cuts.of[k].size == cuts_.of[k].size) ++k;
    if (k == problem_.tensor_rank()) {
      const State next = problem_.WithCuts(state_, cuts);
      const DimMask moving = MovingDims(problem_, state_, next);
      if ((moving & taken) != taken) return;  // comes from a smaller suffix
      Emit(StepOp::kPermute, moving, next);
      return;
    }
    const int at = cuts.of[k].size;
    const int replaced = cuts_.of[k][at];
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (!HasDim(pool, d) || problem_.size(d) != problem_.size(replaced)) continue;
      for (const CutSizes sizes : kAllCutSizes) {
        // An outermost cut keeps its sizes; others have ceil chunks.
        const CutSizes now = at == 0 ? cuts_.of[k].outermost : CutSizes::kCeil;
        if (!problem_.HasCut(d, k, sizes) || !problem_.CutAlike(replaced, now, d, sizes)) continue;
        if (at == 0) cuts.of[k].outermost = sizes;
        cuts.of[k].Append(d);
        Permute(k, cuts, pool & ~(DimMask{1} << d), taken);
        --cuts.of[k].size;
      }
      if (at == 0) cuts.of[k].outermost = CutSizes::kCeil;
    }
  }

  void Masks() {
    // Towards a partial target, from R or from an innermost cut; in its dtype, which has the
    // identity that the target wants.
    DimMask wanted = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (problem_.target().IsPartial(d) && !state_.IsPartial(d)) wanted |= DimMask{1} << d;
    }
    if (state_.stage() != problem_.target().stage()) wanted = 0;
    ForEachSubset(wanted & replicated_, [&](DimMask dims) { Mask(dims, cuts_, dims); });
    if ((wanted & ~replicated_) != 0) {
      ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
        if ((dims & ~wanted) != 0 || AveragesAny(dims)) return;
        const DimMask also = wanted & replicated_;
        Mask(dims, kept, dims);
        ForEachSubset(also, [&](DimMask more) { Mask(dims | more, kept, dims | more); });
      });
    }
    // To join a reduction: from R, where several groups must not compute it; from R or from
    // innermost cuts, where one collective is cheaper than a reduction and a gather. What a mask
    // can make for the target at once is made along with it (and may be reduced along, but for an
    // average, which may join as a sum instead).
    if (rules_.at_once || state_.stage() != problem_.reduce_stage()) return;
    if (reducible_ == 0 && !rules_.masks_cuts) return;
    DimMask stays = 0;
    DimMask averages = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      const DimMask bit = DimMask{1} << d;
      if (!HasDim(wanted, d) || MixesOps(Masked(state_, bit))) continue;
      stays |= bit;
      if (AveragesAny(bit)) averages |= bit;
    }
    const ReduceOp op = reducible_ != 0 ? problem_.mask_op() : problem_.cut_mask_op();
    // `cut`: those of the dims that are cuts, behind `kept`.
    const auto join = [&](const CutLists& kept, DimMask dims, DimMask cut) {
      const auto with_sums = [&](DimMask sums) {
        const DimMask staying = dims & stays & ~sums;
        if ((dims & ~staying) == 0) return;  // a mask towards the target
        if (reducible_ == 0 && (cut & ~staying) == 0) return;
        State next = Masked(problem_.WithCuts(state_, kept), staying);
        for (int d = 0; d < problem_.num_dims(); ++d) {
          if (HasDim(dims & ~staying, d)) next.SetPartial(d, op);
        }
        if (!MixesOps(next)) Emit(StepOp::kMask, dims, next);
      };
      const DimMask always = averages & cut;
      with_sums(always);
      if (reducible_ == 0) return;
      ForEachSubset(averages & dims & ~cut, [&](DimMask sums) { with_sums(always | sums); });
    };
    // Where nothing else is reduced, what is replicated has no reason to be but that of groups.
    const DimMask joining = reducible_ != 0 || !rules_.exact ? replicated_ : replicated_ & stays;
    if (reducible_ != 0) ForEachSubset(joining, [&](DimMask dims) { join(cuts_, dims, 0); });
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask cut) {
      join(kept, cut, cut);
      ForEachSubset(joining, [&](DimMask more) { join(kept, cut | more, cut); });
    });
  }
  // A cut cannot become a partial average: the rest of the box has no value that leaves it as it
  // is.
  bool AveragesAny(DimMask dims) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (HasDim(dims, d) && problem_.target().op(d) == ReduceOp::kAvg) return true;
    }
    return false;
  }
  void Mask(DimMask dims, const CutLists& kept, DimMask masked) {
    const State next = Masked(problem_.WithCuts(state_, kept), masked);
    if (MixesOps(next)) return;
    Emit(StepOp::kMask, dims, next);
  }
  // Partial on `dims` as the target is.
  State Masked(State state, DimMask dims) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (HasDim(dims, d)) state.SetPartial(d, problem_.target().op(d));
    }
    return state;
  }
  // Whether partial ops other than sum with avg meet.
  bool MixesOps(const State& next) const {
    std::optional<ReduceOp> seen;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (!next.IsPartial(d)) continue;
      const ReduceOp op = next.op(d) == ReduceOp::kAvg ? ReduceOp::kSum : next.op(d);
      if (seen && *seen != op) return true;
      seen = op;
    }
    return false;
  }

  const Problem& problem_;
  const State& state_;
  const TransitionRules& rules_;
  const TransitionFn& emit_;
  const CutLists cuts_;
  DimMask replicated_ = 0;
  DimMask reducible_ = 0;  // Problem::IsReducible
  DimMask along_ = 0;      // Problem::MayReduceAlong
  DimMask averaged_ = 0;   // those of the reducible ones that are P(avg)
};

}  // namespace

void ForEachTransition(const Problem& problem, const State& state, const TransitionRules& rules,
                       const TransitionFn& emit) {
  Enumerator(problem, state, rules, emit).Run();
}

void ForEachLocalTransition(const Problem& problem, const State& state,
                            const TransitionRules& rules, const TransitionFn& emit) {
  Enumerator(problem, state, rules, emit).RunLocal();
}

void ForEachCastAndMask(const Problem& problem, const State& state, const TransitionRules& rules,
                        const TransitionFn& emit) {
  Enumerator(problem, state, rules, emit).RunCastsAndMasks();
}

void ForEachExchange(const Problem& problem, const State& state,
                     absl::FunctionRef<void(DimMask dims, const State& next)> emit) {
  const CutLists before = problem.Cuts(state);
  const State uncut = problem.WithCuts(state, CutLists());
  const auto emit_to = [&](const CutLists& cuts) {
    const auto [from, to] = ChangesBetween(problem, before, cuts);
    if (from != 0 && problem.Charge(kListWork)) emit(from | to, problem.WithCuts(uncut, cuts));
  };
  DimMask pool = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!state.IsPartial(d)) pool |= DimMask{1} << d;
  }
  emit_to(CutLists());
  ForEachSubset(pool, [&](DimMask dims) {
    ForEachPlacing(problem, CutLists(), dims, /*towards_target=*/false, emit_to);
  });
}

}  // namespace meshift
