// Finds the cheapest path of steps from a problem's source to its target, on one mesh.
//
//   std::optional<Path> path = FindCheapest(problem, model, rules);
//   path->moves[0].op;       // kAllReduce
//
// A* (best_first.h) over the successors of successors.h with the heuristic of heuristic.h: exact
// under the cost model, except after much work (below). Ties in time are broken by the bytes that
// the worst ranks send, then by ties.h, so that the result is the same on every machine.
//
// Three more bounds make the search fast:
// - The time on links between domains (domain_bound.h). Without it, `cold/5d/h100` of
//   bench/planner_bench takes 7 times as long.
// - A lower bound of the time of each step (StepBounds::LeastNs). Steps are queued by it and are
//   priced only when they reach the front of the queue. [bench/planner_bench cold/4d]
// - The incumbent, on three or more mesh dims: a path that a greedy walk finds (FindIncumbent in
//   search.cc). Steps that cannot beat it are not queued. [bench/planner_bench cold/5d]
//
// Bounded suboptimality: after work of about a second, the search looks only for paths that are
// shorter than the incumbent by 1/64 of its time; after the same work again by 1/16, then by 1/4;
// then it returns the incumbent, or without one the first path that it finds. No search on up to
// four mesh dims is known to need that. Work is counted (base/work_budget.h), not timed. One thread
// at a time for each CostModel, and for each Problem with a budget. Internal to the planner.
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
  int64_t work = 0;         // of finding it (base/work_budget.h); 0: not counted
};

// The sum over all steps of a path from the source, under `model`.
PathCost CostOf(const Problem& problem, const CostModel& model, const Path& path);

// The cheapest path that keeps `rules`, takes at most `bound_ns`, and stays within the workspace
// and the groups that `model` allows. nullopt: there is none. Work is charged to the problem's
// budget; a search without a budget is exact. The caller checks the budget: once exhausted, the
// result may be nullopt or a dearer path. Path::work of the result is 0.
std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules, int64_t bound_ns = INT64_MAX);

// Mesh dims that every path needs: each is among those of at least one of its collectives. Not
// always all such mesh dims.
DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_H_
