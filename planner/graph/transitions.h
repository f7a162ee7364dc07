// Which steps lead from a state to which others.
//
//   ForEachTransition(problem, state, rules,
//                     [&](StepOp op, DimMask dims, const State& next) { ... });
//
// Each transition acts on a set of mesh dims at once; a set of two or more uses a flattened group,
// whether its dims are adjacent or not, and may cut or gather several tensor dims at once.
// An exchange could lead anywhere. Listed here are those in place of an all_gather of pieces that
// are not all alike, which it pads; the search (planner/search/edges.h) adds all others, or, where
// there are too many states, those to the states that are worth it: NearTarget and LocallyFinished.
//
// transitions.cc has the steps out of a state, transitions_between.cc what the step between two
// states is, near_target.cc NearTarget and LocallyFinished.
#ifndef MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
#define MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "planner/graph/state.h"
#include "planner/plan/plan.h"

namespace meshift {

struct TransitionRules {
  // Only reductions that leave equal bits on replicas: each value comes from one group.
  bool single_sourced = true;
  // The reductions of this tensor are exact, so that any number of groups may compute them.
  bool exact = false;
  // Whatever is reduced is reduced by one step over all of it and nothing else. Not where `exact`.
  bool at_once = false;
  // reduce_scatter is among the reductions.
  bool scatters = true;
  // Where a mesh dim is partial in the target alone: a mask towards it may also make cuts
  // partial, which a reduction then makes whole: of what is not reduced, or is already.
  bool masks_cuts = false;
  // Cuts are added only where the target has them: a fraction of the edges, for a first upper
  // bound.
  bool towards_target = false;
};

using TransitionFn = std::function<void(StepOp op, DimMask dims, const State& next)>;

// Calls `emit` for every transition out of `state`, in a fixed order, each once.
void ForEachTransition(const Problem& problem, const State& state, const TransitionRules& rules,
                       const TransitionFn& emit);

// Only the slices, masks and casts among them.
void ForEachLocalTransition(const Problem& problem, const State& state,
                            const TransitionRules& rules, const TransitionFn& emit);

// Only the casts and masks.
void ForEachCastAndMask(const Problem& problem, const State& state, const TransitionRules& rules,
                        const TransitionFn& emit);

// Calls `emit` for every exchange: to each state that differs in nothing but what mesh dims cut,
// and where, unless cuts are only added, which moves nothing. `dims`: those that move (MovingDims).
void ForEachExchange(const Problem& problem, const State& state,
                     absl::FunctionRef<void(DimMask dims, const State& next)> emit);

// Whether a reduction over `dims` in `state` is single-sourced: every other mesh dim is a shard or
// partial, so that no two groups compute the same value.
bool IsSingleSourced(const Problem& problem, const State& state, DimMask dims);

// The mesh dims behind the longest common beginning of any tensor dim's cuts, before or after.
DimMask MovingDims(const Problem& problem, const State& before, const State& after);

// The mesh dims that the step `op` from `before` to `after` is over: those of its groups, where it
// is a collective. None of a cast.
DimMask StepDims(const Problem& problem, StepOp op, const State& before, const State& after);

// Whether every rank can send its whole box to one rank and receive its new box whole from one: on
// each tensor dim, the moving cuts before and after have equal sizes pairwise.
bool IsPermutation(const Problem& problem, const State& before, const State& after);

// Whether all pieces that the step takes, and all that it makes, are alike.
bool IsEven(const Problem& problem, const CutLists& before, const CutLists& after);

// The op of the one step that leads from `before` to `after`, if any; the cheapest kind that fits,
// local ones left out.
std::optional<StepOp> CollectiveBetween(const Problem& problem, const State& before,
                                        const State& after, const TransitionRules& rules);

// Whether exchanges lead from any state to any other: where mesh dims can cut the tensor in no more
// than 3,000 ways, which four do along up to five tensor dims, and five along two. Elsewhere they
// lead near the target.
bool ExchangesLeadAnywhere(const Problem& problem);

// The target, and the states from which local steps alone lead to it; in a fixed order. Few, as a
// rule.
using FinishedStates = absl::InlinedVector<State, 8>;
FinishedStates LocallyFinished(const Problem& problem);

// The target, and the states from which one transition leads to it, casts left out: all of the last
// stage; in a fixed order.
std::vector<State> NearTarget(const Problem& problem, bool towards_target);

// Those among them that are partial where the target is not, or not partial where the target is.
std::vector<State> NearTargetInPartials(const Problem& problem, bool towards_target);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
