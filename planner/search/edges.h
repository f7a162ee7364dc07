// Every step that the planner allows out of a value, listed plainly: the transitions of
// planner/graph/, exchanges besides, between values that may stand on the way.
//
//   const Edges edges(problem, model, rules);
//   edges.ForEach(state, [&](StepOp op, DimMask dims, const State& next) {
//     if (edges.MayHold(next)) ...
//   });
//
// For what goes through all of it: the list of alternatives (planner/alternatives.h), and the judge
// of the search (tests/brute_force.h). The search (planner/search/search.cc) makes the same edges
// in an order and by bounds of its own.
#ifndef MESHIFT_PLANNER_SEARCH_EDGES_H_
#define MESHIFT_PLANNER_SEARCH_EDGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/plan/plan.h"

namespace meshift {

class Edges {
 public:
  // Keeps references to `problem` and `model`.
  Edges(const Problem& problem, const CostModel& model, const TransitionRules& rules);

  // Whether the value may stand on the way: no larger than source and target (or, where the value
  // is reduced in another dtype, than the source in that), without a cut inside a byte, and not in
  // thousands of pieces that are not alike (MayBeOnTheWay).
  bool MayHold(const State& state) const;
  // Why it may not: "R,R on the way, in f32, takes 432 B, more than the larger of source and target
  // (288 B)"; empty where it may.
  std::string WhyNotHeld(const State& state) const;

  // The transitions of ForEachTransition and the exchanges, those to values that may not be held
  // included.
  void ForEach(const State& state, const TransitionFn& emit) const;

  // Those of ForEach that lead to the target, in no time.
  void ForEachToTarget(const State& state, absl::FunctionRef<void(StepOp op)> emit) const;

  // The exchanges but those of ForEachTransition: wherever it has data to move, to any state
  // (ExchangesLeadAnywhere), or to the target, to the states from which one transition leads to it
  // (NearTarget), and to those from which local steps alone do (LocallyFinished). What is partial
  // stays as it is. None takes the place of a gather whose sizes were chosen.
  void ForEachExchange(const State& state,
                       absl::FunctionRef<void(DimMask dims, const State& next)> emit) const;

 private:
  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules rules_;
  const bool anywhere_;  // ExchangesLeadAnywhere
  int64_t max_items_ = 0;
  int64_t max_bytes_ = 0;
  std::vector<State> ends_;  // of exchanges that do not lead anywhere, each at the target's stage
  absl::flat_hash_set<State> finished_;  // local steps alone lead from these to the target
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_EDGES_H_
