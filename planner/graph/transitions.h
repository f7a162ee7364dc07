// What may be done between two states of a problem, and what a step between them is.
//
//   StepDims(problem, StepOp::kAllGather, before, after);      // the mesh dims of its groups
//
// All steps out of a state are listed by planner/search/successors.h.
#ifndef MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
#define MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_

#include <cstdint>
#include <optional>

#include "meshift/plan.h"
#include "planner/graph/state.h"

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
  // The most bytes of a value between two steps. None: ValueRule's default.
  std::optional<int64_t> max_value = std::nullopt;
};

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

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
