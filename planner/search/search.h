// The cheapest path of steps from a problem's source to its target.
//
//   std::optional<Path> path = FindCheapest(problem, model, rules);
//   path->moves[0].op;       // kAllReduce
//
// A* (best_first.h) over the steps of successors.h, with the heuristic of heuristic.h: exact under
// the cost model. Equally quick paths go by the bytes of worst ranks, then as ties.h says, so that
// the result is the same everywhere.
//
// Besides the heuristic, two bounds make it quick:
// - the least time of a step (StepBounds::LeastNs), by which steps wait until they are priced:
//   without it, every step that is listed is priced. [bench/planner_bench cold/4d]
// - the incumbent: a path that a greedy walk finds (FindIncumbent of search.cc), from three mesh
//   dims on. What cannot beat it does not wait. [bench/planner_bench cold/5d]
//
// Where that takes about a second, which no search on up to four mesh dims is known to, the search
// settles for less: from then on only paths count that are shorter than the best known one by a
// 64th; after as much work again by a 16th, then by a quarter. What is done is counted, not timed.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"

namespace meshift {

// One step of a path, and the state that it leads to.
struct Move {
  StepOp op;
  State after;
};

struct Path {
  std::vector<Move> moves;  // empty: the source is the target
  int64_t work = 0;         // of finding it (base/work_budget.h), where who found it says so
};

// Of all steps of a path from the source, under `model`.
PathCost CostOf(const Problem& problem, const CostModel& model, const Path& path);

// nullopt: no path keeps the rules (which no problem is known to cause), takes at most `bound_ns`,
// needs no more workspace and is over no other groups than the model allows. Where the problem has
// a budget, what is done is charged to it; a search without one never settles.
std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules, int64_t bound_ns = INT64_MAX);

// Mesh dims that the collectives of every path are over: each of at least one.
DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_H_
