// The cheapest plan under a budget of groups: a branch and bound over sets of groups, which calls a
// search over steps.
//
//   const auto solve = [&](const GroupSet& allowed, int64_t bound_ns) -> std::optional<Priced> {
//     ...
//   };
//   const FoundGroups found = FindGroups(groups, groups.each_setup_ns(), needs, solve);
//     // solve(*found.set, INT64_MAX) is the cheapest solution within the budget
//
// The cost of groups is not a sum over steps: a group that two steps use is set up once. So solve()
// finds the cheapest path over a set of allowed groups without this cost, which is a lower bound,
// and this search branches on a group of that path: it is either taken, and its set-up paid, or
// forbidden. Forbidding groups never makes a path cheaper, so the path over all remaining groups is
// a lower bound for the branch. solve() gets a bound that follows from the incumbent's time. The
// result is exact up to kMaxSolutions calls of solve(), if solve() keeps the conditions of SolveFn.
// Times are in ns. Internal to the planner.
#ifndef MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_
#define MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "planner/cost/path_cost.h"
#include "planner/groups/plan_groups.h"

namespace meshift {

// The cost of a solution without set-up, and the groups that it uses.
struct Priced {
  PathCost cost;
  GroupSet used;
};

// Finds the cheapest solution over groups of `allowed`, if it takes at most bound_ns. Otherwise it
// may return nullopt or any solution. Below the bound the result depends on `allowed` only, and a
// larger set never costs more.
using SolveFn = absl::FunctionRef<std::optional<Priced>(const GroupSet& allowed, int64_t bound_ns)>;

// Every solution uses at least one group of each of these sets.
using GroupNeeds = std::vector<GroupSet>;

// A search ends after this many calls of solve(), or one more, with the best solution so far; the
// result is deterministic if solve() is.
inline constexpr int64_t kMaxSolutions = 4096;

struct FoundGroups {
  std::optional<GroupSet> set;
  bool is_best = true;  // false: the search ended early; a better set may exist
};

// A set of groups for which solve() finds the cheapest solution. Its cost includes `each_setup_ns`
// for each used group that does not exist. Solutions use groups.Allowed() and need at most
// max_communicators. No set and is_best: no solution exists. REQUIRES: groups.IsBounded().
FoundGroups FindGroups(const PlanGroups& groups, int64_t each_setup_ns, const GroupNeeds& needs,
                       SolveFn solve);

struct FewestGroups {
  int64_t communicators = 0;
  GroupSet set;          // of a solution; every solution within it needs at most as many
  bool is_least = true;  // false: a search ended early; fewer may be enough
};

// The least max_communicators for which there is a solution, by one search for each smaller number;
// kMaxSolutions limits each of them. The max_communicators of `groups` is ignored. nullopt: no
// solution over the allowed groups. REQUIRES: groups.IsBounded().
std::optional<FewestGroups> LeastCommunicators(const PlanGroups& groups, const GroupNeeds& needs,
                                               SolveFn solve);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_
