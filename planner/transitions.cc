#include "planner/transitions.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace meshift {
namespace {

constexpr CutSizes kAllCutSizes[] = {CutSizes::kCeil, CutSizes::kSource, CutSizes::kTarget};

bool Has(DimMask mask, int d) { return (mask >> d & 1) != 0; }

// Calls fn(cuts) for every way to add all of `dims` to `cuts`, each dim as one of the innermost
// cuts of any candidate tensor dim. Every arrangement comes once: dims are inserted in ascending
// order, at any place behind the cuts that were there; one that becomes outermost has each of the
// sizes that it may have. `towards_target`: a dim goes only to the tensor dim that it cuts in the
// target, in the target's sizes, or to the largest if it cuts none there.
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

DimMask Replicated(const Problem& problem, const State& state) {
  DimMask replicated = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (state.IsReplicate(d)) replicated |= DimMask{1} << d;
  }
  return replicated;
}

// Calls fn(subset) for every subset of `mask` that is not empty, ascending.
template <typename Fn>
void ForEachSubset(DimMask mask, const Fn& fn) {
  for (DimMask subset = mask & (~mask + 1); subset != 0; subset = (subset - mask) & mask) {
    fn(subset);
    if (subset == mask) return;
  }
}

// The kinds of transition, one function each.
class Enumerator {
 public:
  Enumerator(const Problem& problem, const State& state, const TransitionRules& rules,
             const TransitionFn& emit)
      : problem_(problem), state_(state), rules_(rules), emit_(emit), cuts_(problem.Cuts(state)) {
    for (int d = 0; d < problem.num_dims(); ++d) {
      const DimMask bit = DimMask{1} << d;
      if (state.IsReplicate(d)) replicated_ |= bit;
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
    if (!(next == state_)) emit_(op, dims, next);
  }

  void Casts() {
    if (problem_.MayCast(state_)) Emit(StepOp::kCast, 0, state_.AtStage(state_.stage() + 1));
  }

  // all_reduce and reduce_scatter.
  void Reductions() {
    ForEachSubset(reducible_, [&](DimMask dims) {
      // An average is divided once, in the last reduction.
      if (((dims & averaged_) != 0 || rules_.at_once) && dims != reducible_) return;
      if (rules_.single_sourced && !rules_.exact && !IsSingleSourced(problem_, state_, dims)) {
        return;
      }
      State reduced = state_;
      for (int d = 0; d < problem_.num_dims(); ++d) {
        if (Has(dims, d)) reduced.SetReplicate(d);
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

  void Gathers() {
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
      Emit(StepOp::kAllGather, dims, problem_.WithCuts(state_, kept));
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
      if (!Has(pool, d) || problem_.size(d) != problem_.size(replaced)) continue;
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
    // can make for the target at once does not join, but may be made along with it.
    if (rules_.at_once || state_.stage() != problem_.reduce_stage()) return;
    if (reducible_ == 0 && !rules_.masks_cuts) return;
    DimMask stays = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (Has(wanted, d) && !MixesOps(Masked(state_, DimMask{1} << d))) stays |= DimMask{1} << d;
    }
    const ReduceOp op = reducible_ != 0 ? problem_.mask_op() : problem_.cut_mask_op();
    const auto join = [&](const CutLists& kept, DimMask dims) {
      if ((dims & ~stays) == 0) return;  // a mask towards the target
      State next = Masked(problem_.WithCuts(state_, kept), dims & stays);
      for (int d = 0; d < problem_.num_dims(); ++d) {
        if (Has(dims & ~stays, d)) next.SetPartial(d, op);
      }
      if (MixesOps(next)) return;
      Emit(StepOp::kMask, dims, next);
    };
    // Where nothing else is reduced, what is replicated has no reason to be but that of groups.
    const DimMask joining = reducible_ != 0 || !rules_.exact ? replicated_ : replicated_ & stays;
    if (reducible_ != 0) ForEachSubset(joining, [&](DimMask dims) { join(cuts_, dims); });
    ForEachSuffix(problem_, cuts_, [&](const CutLists& kept, DimMask dims) {
      if ((dims & stays) != 0 && AveragesAny(dims & stays)) return;
      if (reducible_ == 0 && (dims & ~stays) == 0) return;
      join(kept, dims);
      ForEachSubset(joining, [&](DimMask more) { join(kept, dims | more); });
    });
  }
  // A cut cannot become a partial average: the rest of the box has no value that leaves it as it
  // is.
  bool AveragesAny(DimMask dims) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (Has(dims, d) && problem_.target().op(d) == ReduceOp::kAvg) return true;
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
      if (Has(dims, d)) state.SetPartial(d, problem_.target().op(d));
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
  DimMask averaged_ = 0;   // those of them that are P(avg)
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

bool IsSingleSourced(const Problem& problem, const State& state, DimMask dims) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!Has(dims, d) && state.IsReplicate(d)) return false;
  }
  return true;
}

DimMask MovingDims(const Problem& problem, const State& before, const State& after) {
  const CutLists a = problem.Cuts(before);
  const CutLists b = problem.Cuts(after);
  DimMask moving = 0;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const int common = CommonLength(a.of[k], b.of[k]);
    for (const CutLists::List* list : {&a.of[k], &b.of[k]}) {
      for (int i = common; i < list->size; ++i) moving |= DimMask{1} << (*list)[i];
    }
  }
  return moving;
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

std::optional<StepOp> CollectiveBetween(const Problem& problem, const State& before,
                                        const State& after, const TransitionRules& rules) {
  if (before.stage() != after.stage()) return std::nullopt;
  DimMask reduced = 0;
  DimMask reducible = 0;
  bool averages = false;
  for (int d = 0; d < problem.num_dims(); ++d) {
    const DimMask bit = DimMask{1} << d;
    if (problem.IsReducible(before, d)) reducible |= bit;
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
    DimMask from = 0;
    DimMask to = 0;
    for (int k = 0; k < problem.tensor_rank(); ++k) {
      const int common = CommonLength(a.of[k], b.of[k]);
      for (int i = common; i < a.of[k].size; ++i) from |= DimMask{1} << a.of[k][i];
      for (int i = common; i < b.of[k].size; ++i) to |= DimMask{1} << b.of[k][i];
    }
    if (from == 0) return std::nullopt;  // a slice, or nothing
    if (to == 0) return StepOp::kAllGather;
    if (IsPermutation(problem, before, after)) return StepOp::kPermute;
    return from == to ? StepOp::kAllToAll : StepOp::kExchange;
  }
  if (before.stage() != problem.reduce_stage()) return std::nullopt;
  if ((averages || rules.at_once) && reduced != reducible) return std::nullopt;
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

FinishedStates LocallyFinished(const Problem& problem) {
  FinishedStates found = {problem.target()};
  absl::InlinedVector<bool, 8> sliced = {false};  // whether those before a slice to it were found
  const auto add = [&](const State& state, bool is_sliced = false) {
    if (std::find(found.begin(), found.end(), state) != found.end()) return;
    found.push_back(state);
    sliced.push_back(is_sliced);
  };
  for (size_t next = 0; next < found.size(); ++next) {
    const State state = found[next];
    const CutLists cuts = problem.Cuts(state);
    // Before a slice; two slices are one.
    if (!sliced[next]) {
      ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask) {
        add(problem.WithCuts(state, kept), /*is_sliced=*/true);
      });
    }
    // Before a cast.
    if (state.stage() > 0) {
      const State before = state.AtStage(state.stage() - 1);
      if (problem.MayCast(before)) add(before);
    }
    // Before a mask of one mesh dim, from R or from an innermost cut.
    if (state.stage() + 1 < problem.num_stages()) continue;
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (!state.IsPartial(d) || problem.source().IsPartial(d)) continue;
      State base = state;
      base.SetReplicate(d);
      add(base);
      if (state.op(d) == ReduceOp::kAvg) continue;
      ForEachPlacing(problem, cuts, DimMask{1} << d, /*towards_target=*/false,
                     [&](const CutLists& c) { add(problem.WithCuts(base, c)); });
    }
  }
  return found;
}

std::vector<State> NearTarget(const Problem& problem, bool towards_target) {
  const State& target = problem.target();
  const CutLists cuts = problem.Cuts(target);
  std::vector<State> near = {target};
  absl::flat_hash_set<State> seen = {target};
  const auto add = [&](const State& state) {
    if (seen.insert(state).second) near.push_back(state);
  };
  // Before an all_gather.
  ForEachSubset(Replicated(problem, target), [&](DimMask dims) {
    ForEachPlacing(problem, cuts, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(target, c)); });
  });
  // Before a slice, an all_to_all or a permutation.
  ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask dims) {
    add(problem.WithCuts(target, kept));
    ForEachPlacing(problem, kept, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(target, c)); });
  });
  for (const State& state : NearTargetInPartials(problem, towards_target)) add(state);
  return near;
}

std::vector<State> NearTargetInPartials(const Problem& problem, bool towards_target) {
  const State& target = problem.target();
  const CutLists cuts = problem.Cuts(target);
  const DimMask replicated = Replicated(problem, target);
  std::vector<State> near;
  const auto add = [&](const State& state) {
    if (std::find(near.begin(), near.end(), state) == near.end()) near.push_back(state);
  };
  // Before a reduction, whose result the target holds whole or scattered.
  DimMask reduced = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (problem.source().IsPartial(d) && !target.IsPartial(d)) reduced |= DimMask{1} << d;
  }
  const auto with_partials = [&](State state, DimMask dims) {
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (Has(dims, d)) state.SetPartial(d, problem.source().op(d));
    }
    add(state);
  };
  ForEachSubset(reduced & replicated, [&](DimMask dims) { with_partials(target, dims); });
  ForEachSuffix(problem, cuts, [&](const CutLists& kept, DimMask dims) {
    if ((dims & ~reduced) != 0) return;
    with_partials(problem.WithCuts(target, kept), dims);
  });
  // Before masks: any placement of the masked dims that a mask accepts.
  DimMask masked = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (target.IsPartial(d) && !problem.source().IsPartial(d)) masked |= DimMask{1} << d;
  }
  ForEachSubset(masked, [&](DimMask dims) {
    State base = target;
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (Has(dims, d)) base.SetReplicate(d);
    }
    add(base);
    for (int d = 0; d < problem.num_dims(); ++d) {
      if (Has(dims, d) && target.op(d) == ReduceOp::kAvg) return;
    }
    ForEachPlacing(problem, cuts, dims, towards_target,
                   [&](const CutLists& c) { add(problem.WithCuts(base, c)); });
  });
  return near;
}

}  // namespace meshift
