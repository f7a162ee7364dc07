// Properties of a step between two given states of a problem, and the rules that steps keep.
//
//   StepDims(problem, StepOp::kAllGather, before, after);      // the mesh dims of its groups
//
// Pure functions without errors. REQUIRES: the states and cuts are the problem's; not checked.
// planner/search/successors.h enumerates the steps out of a state. Internal to the planner.
#ifndef MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
#define MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_

#include <cstdint>
#include <optional>

#include "meshift/plan.h"
#include "planner/graph/state.h"

namespace meshift {

struct TransitionRules {
  // Each value is reduced by one group only, so that replicas get equal bits.
  bool single_sourced = true;
  // The reductions of this tensor are exact, so that any number of groups may compute them.
  bool exact = false;
  // One step reduces all mesh dims that must be reduced, and no others. Not with `exact`.
  bool at_once = false;
  // reduce_scatter is allowed.
  bool scatters = true;
  // For a target in which a mesh dim becomes partial. A mask may turn innermost cuts into partial
  // mesh dims, which a reduction then removes, even if no other mesh dim must be reduced.
  bool masks_cuts = false;
  // The largest intermediate value in bytes. Default: that of ValueRule.
  std::optional<int64_t> max_value = std::nullopt;
};

// Whether a reduction over `dims` in `state` is single-sourced: no other mesh dim is replicated, so
// that no two groups compute the same value.
bool IsSingleSourced(const Problem& problem, const State& state, DimMask dims);

// The mesh dims on which the step `op` from `before` to `after` acts: those of the groups of a
// collective; none for a cast.
DimMask StepDims(const Problem& problem, StepOp op, const State& before, const State& after);

// Whether each rank can send its whole box to one rank, and receive its new box from one: the cuts
// of each tensor dim before and after make equal pieces pairwise.
bool IsPermutation(const Problem& problem, const State& before, const State& after);

// Whether the blocks of a gather from `cut` to `parent`, or of a scatter back, have such different
// sizes that blocks of exact sizes may be cheaper than padded ones: those of a ragged cut or an
// owner. Padding other ceil chunks adds fewer rows than a cut has pieces.
bool HasUnlikeBlocks(const Problem& problem, const CutLists& parent, const CutLists& cut);

// Whether, along each tensor dim whose cuts change, the cuts before divide each piece of the common
// cuts into equal pieces, and so do the cuts after; true if there is no item.
bool IsEven(const Problem& problem, const CutLists& before, const CutLists& after);

// The op of the cheapest kind of collective that leads from `before` to `after`, which differ in
// their cuts only. nullopt: there is none.
std::optional<StepOp> MoveBetween(const Problem& problem, const State& before, const State& after);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_TRANSITIONS_H_
