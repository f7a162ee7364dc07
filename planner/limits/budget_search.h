// The cheapest plan under a budget of groups: an exact search over sets of groups, on top of one
// over steps.
//
//   const auto solve = [&](const GroupSet& allowed, int64_t bound_ns) -> std::optional<Priced> {
//     ...
//   };
//   const FoundGroups found = FindGroups(groups, groups.each_setup_ns(), needs, solve);
//     // what solve() finds over *found.set is the cheapest of all that keep to the budget
//
// Which groups a path of steps is over is no matter of single steps: a group that two steps use is
// set up once. But with a set of groups fixed, it is: so solve() finds the cheapest path over a
// set, and this search branches on a group of the path that it found, which is either set up, and
// paid for, or forbidden. What is forbidden never makes a path cheaper, so that the path over all
// groups that are left bounds the rest; and what is known to be no better than the best so far need
// not be found.
#ifndef MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_
#define MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "planner/cost/path_cost.h"
#include "planner/groups/plan_groups.h"

namespace meshift {

// What a solution costs, set-up left aside, and the groups that it is over.
struct Priced {
  PathCost cost;
  GroupSet used;
};

// The cheapest solution over groups of `allowed`, if it takes bound_ns or less: of one that takes
// more, and where there is none, nullopt or any other. Else a function of `allowed`; a larger set
// never makes it cost more.
using SolveFn = absl::FunctionRef<std::optional<Priced>(const GroupSet& allowed, int64_t bound_ns)>;

// Every solution is over some group of each of these.
using GroupNeeds = std::vector<GroupSet>;

// The search ends after so many calls of solve(), which only meshes of five dims or more are known
// to take. What was found by then counts, the same each time.
inline constexpr int64_t kMaxSolutions = 4096;

struct FoundGroups {
  std::optional<GroupSet> set;
  bool is_best = true;  // false: the search ended early; others might be better
};

// A set of groups over which solve() finds a solution that costs, with `each_setup_ns` for each
// that does not exist, least of all that are over groups.Allowed() and need no more than
// max_communicators. No set: there is none, if that is_best.
FoundGroups FindGroups(const PlanGroups& groups, int64_t each_setup_ns, const GroupNeeds& needs,
                       SolveFn solve);

struct FewestGroups {
  int64_t communicators = 0;
  GroupSet set;          // of a solution: whatever is over these needs no more
  bool is_least = true;  // false: a search ended early; fewer might do
};

// The least max_communicators for which there is a solution; nullopt: none over the groups allowed.
std::optional<FewestGroups> LeastCommunicators(const PlanGroups& groups, const GroupNeeds& needs,
                                               SolveFn solve);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_BUDGET_SEARCH_H_
