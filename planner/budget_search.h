// The cheapest plan under a budget of groups: an exact search over sets of groups, on top of one
// over steps.
//
//   const auto solve = [&](const GroupSet& allowed) -> std::optional<Priced> { ... };
//   std::optional<GroupSet> best = FindGroups(groups, groups.each_setup_ns(), solve);
//     // what solve() finds with these groups is the cheapest of all that keep to the budget
//
// Which groups a path of steps is over is no matter of single steps: a group that two steps use is
// set up once. But with a set of groups fixed, it is: so solve() finds the cheapest path over a
// set, and this search branches on a group of the path that it found, which is either set up, and
// paid for, or forbidden. What is forbidden never makes a path cheaper, so that the path over all
// groups that are left bounds the rest.
#ifndef MESHIFT_PLANNER_BUDGET_SEARCH_H_
#define MESHIFT_PLANNER_BUDGET_SEARCH_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "planner/path_cost.h"
#include "planner/plan_groups.h"

namespace meshift {

// What a solution costs, set-up left aside, and the groups that it is over.
struct Priced {
  PathCost cost;
  GroupSet used;
};

// The cheapest solution over groups of `allowed`; nullopt where there is none. A function of its
// argument; a larger set never makes it cost more.
using SolveFn = absl::FunctionRef<std::optional<Priced>(const GroupSet& allowed)>;

// A set of groups over which solve() finds a solution that costs, with `each_setup_ns` for each
// that does not exist, least of all that are over groups.Allowed() and need no more than
// max_communicators. nullopt: there is none. It ends after 4,096 calls of solve(), which only
// meshes of five dims or more are known to take; the best that was found by then counts, the same
// each time.
std::optional<GroupSet> FindGroups(const PlanGroups& groups, int64_t each_setup_ns, SolveFn solve);

// The least max_communicators for which there is a solution; nullopt: none over the groups allowed.
std::optional<int64_t> LeastCommunicators(const PlanGroups& groups, SolveFn solve);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_BUDGET_SEARCH_H_
