// Best-first search for the cheapest path of transitions.
//
//   std::optional<Path> path = FindCheapest(problem, model, rules);
//   path->moves[0].op;       // kAllReduce
//
// Exact under the cost model over its edges: the transitions of ForEachTransition, and exchanges:
// to any state or, where there are too many (ExchangesLeadAnywhere), to those near the target. No
// value on the way is larger than source and target (or, where it is reduced in another dtype, than
// the source in that), and ties are broken by bytes sent, then number of steps, then the order in
// which paths are found, which is a function of the problem, so that the result is the same
// everywhere.
//
// Where that takes long (about a second; as a rule on five mesh dims or more, of unlike sizes, and
// large tensors), the path takes at most a 63rd longer than the best; after half as long again, a
// 31st, and so on, so that searches end within seconds; of eight uneven mesh dims within tens of
// them, since steps are counted as if all took equally long to price. What is done is counted, not
// timed.
//
// A* on packed states: what is left of a path is bounded by the bytes that some rank lacks, the
// contributions that are yet to be added, and the start of the collectives that are needed at
// least. Steps that cannot be part of the best path are not even made.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/plan/plan.h"

namespace meshift {

// One step of a path, and the state that it leads to.
struct Move {
  StepOp op;
  State after;
  // Of the step, under the model of the search that found it; null where none did.
  std::optional<Traffic> traffic = std::nullopt;
};

struct Path {
  std::vector<Move> moves;  // empty: the source is the target
  int64_t work = 0;         // of finding it (base/work_budget.h), where who found it says so
};

// Of all steps of a path from the source, under `model`.
PathCost CostOf(const Problem& problem, const CostModel& model, const Path& path);

// nullopt: no path keeps the rules (which no problem is known to cause), takes at most `bound_ns`,
// needs no more workspace and is over no other groups than the model allows. `work`: where given,
// what was done is added to it, in the measure by which long searches settle: some 2^26 a second.
std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules, int64_t bound_ns = INT64_MAX,
                                 int64_t* work = nullptr);

// Mesh dims that the collectives of every path are over: each of at least one.
DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_H_
