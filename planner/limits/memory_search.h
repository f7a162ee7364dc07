// Finds the cheapest path whose workspace stays within a limit, and a path that needs the least.
//
//   const CostModel limited = model.WithMaxWorkspace(1 << 20);
//   const std::optional<LimitedPath> found = FindWithin(problem, limited, rules);
//   if (found && !found->path) ... found->least_workspace ...     // a limit that suffices
//
// A path needs as much workspace as its most demanding step. So the cheapest path under a limit is
// the cheapest path over the steps that are within the limit themselves: the search of
// planner/search/search.h with fewer edges. The least workspace is a bottleneck shortest path (also
// called widest path): Dijkstra's algorithm with a maximum instead of a sum.
//
// Edges are the steps of planner/search/successors.h. A step that can be done in several ways is
// done within the limit if possible. Deterministic. Safe for concurrent use if each thread has its
// own CostModel, and its own Problem and WorkBudget if the problem has a budget
// (Problem::SetBudget). After the budget is spent, results may be worse, or missing; the caller
// checks the budget.
#ifndef MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_
#define MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_

#include <cstdint>
#include <optional>

#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/search/search.h"

namespace meshift {

// The workspace of a path, as `model` does its steps: bytes on the worst rank.
int64_t WorkspaceOf(const Problem& problem, const CostModel& model, const Path& path);

// The most edges examined for the least workspace; measuring one counts as 16 more. That takes
// about a second. The search for the cheapest path, which comes first, has its own limit.
inline constexpr int64_t kMaxMemoryEdges = 300'000;

struct LeastPath {
  Path path;
  // Bytes on the worst rank, if each step is done in the way that needs least.
  int64_t workspace = 0;
  bool is_least = true;  // no path needs less
};

// A path that needs the least workspace, not always the cheapest of these. The limit of `model` is
// ignored. After `max_edges` edges, or when the problem's budget is spent, the search ends with the
// best path so far, and `is_least` is false. Deterministic. nullopt: no path keeps the rules and
// the groups of `model`, or the budget was spent before one was found.
std::optional<LeastPath> FindLeastWorkspace(const Problem& problem, const CostModel& model,
                                            const TransitionRules& rules,
                                            int64_t max_edges = kMaxMemoryEdges);

struct LimitedPath {
  std::optional<Path> path;     // none: no path was found within the limit
  int64_t least_workspace = 0;  // without a path: bytes, as FindLeastWorkspace finds them
  bool is_least = true;         // without a path: that of FindLeastWorkspace
};

// The path is the cheapest within the limit of `model`, unless a search ended early (search.h) or
// the problem's budget was spent. There is no path only if the limit is below the workspace that
// FindLeastWorkspace finds. nullopt: no path that keeps the rules and the groups of `model` takes
// at most `bound_ns`; or paths fit the limit, but none of those found takes at most `bound_ns`.
std::optional<LimitedPath> FindWithin(const Problem& problem, const CostModel& model,
                                      const TransitionRules& rules, int64_t bound_ns = INT64_MAX);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_
