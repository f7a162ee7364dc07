// Paths under a limit on the workspace, and the least workspace that any path needs.
//
//   const CostModel limited = model.WithMaxWorkspace(1 << 20);
//   const std::optional<LimitedPath> found = FindWithin(problem, limited, rules);
//   if (found && !found->path) ... found->least_workspace ...     // more than 1 MiB, and enough
//
// A path needs what the step needs that needs most. So the cheapest path under a limit is the
// cheapest one over those steps that keep to it by themselves, however they are put together: the
// search of planner/search/search.h, with fewer edges. The least workspace is that of a widest
// path, found as a shortest one is, with a maximum where that has a sum.
//
// Both go over the steps of planner/search/successors.h, with steps done in the way that needs
// least where that is what it takes. Deterministic, as the search is; safe for concurrent use, of a
// CostModel each.
#ifndef MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_
#define MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_

#include <cstdint>
#include <optional>

#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/search/search.h"

namespace meshift {

// The workspace of a path, as `model` does its steps.
int64_t WorkspaceOf(const Problem& problem, const CostModel& model, const Path& path);

// Edges that are looked at for the least workspace, at most, of which one that is measured counts
// for 16: a second or less.
inline constexpr int64_t kMaxMemoryEdges = 300'000;

struct LeastPath {
  Path path;
  int64_t workspace = 0;  // bytes
  bool is_least = true;   // no path needs less
};

// A path that needs the least workspace; of such ones not always the cheapest. `model` may have any
// limit. Of more than `max_edges` edges, what was found by then counts, the same each time, and
// `is_least` is false: less might do. nullopt: no path keeps the rules.
std::optional<LeastPath> FindLeastWorkspace(const Problem& problem, const CostModel& model,
                                            const TransitionRules& rules,
                                            int64_t max_edges = kMaxMemoryEdges);

struct LimitedPath {
  std::optional<Path> path;     // the cheapest; none: the limit does not do
  int64_t least_workspace = 0;  // then: what FindLeastWorkspace finds
  bool is_least = true;         // likewise
};

// The cheapest path that keeps to the limit of `model`; there is none only where the limit is below
// what FindLeastWorkspace finds. nullopt: no path keeps the rules and takes `bound_ns` or less.
std::optional<LimitedPath> FindWithin(const Problem& problem, const CostModel& model,
                                      const TransitionRules& rules, int64_t bound_ns = INT64_MAX);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_MEMORY_SEARCH_H_
