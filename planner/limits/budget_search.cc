#include "planner/limits/budget_search.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace meshift {
namespace {

bool Meets(const GroupSet& a, const GroupSet& b) {
  for (size_t g = 0; g < a.size(); ++g) {
    if (a[g] && b[g]) return true;
  }
  return false;
}

bool IsWithin(const GroupSet& part, const GroupSet& set) {
  for (size_t g = 0; g < part.size(); ++g) {
    if (part[g] && !set[g]) return false;
  }
  return true;
}

class BudgetSearch {
 public:
  // `most`: the limit on communicators, if any. `price_ns`: of each new group. `any`: stop at the
  // first solution.
  BudgetSearch(const PlanGroups& groups, const GroupNeeds& needs, SolveFn solve,
               std::optional<int64_t> most, int64_t price_ns, bool any)
      : groups_(groups),
        needs_(needs),
        solve_(solve),
        most_(most),
        price_ns_(price_ns),
        any_(any) {}

  FoundGroups Run() {
    Visit(GroupSet(groups_.size(), false), groups_.Allowed());
    return {std::move(best_set_), is_done_};
  }

 private:
  // Searches the solutions over groups of `allowed`. The groups of `taken` are paid for.
  void Visit(const GroupSet& taken, GroupSet allowed);
  // The cheapest of them. nullopt if there is none; also, unless it is known already, if it takes
  // longer than the incumbent.
  std::optional<Priced> Solve(const GroupSet& allowed, const GroupSet& taken);
  bool IsNew(int g) const { return price_ns_ > 0 && !groups_.existing()[g]; }
  PathCost Paid(PathCost cost, const GroupSet& paid, int more = 0) const {
    int64_t made = more;
    for (int g = 0; g < groups_.size(); ++g) made += paid[g] && IsNew(g) ? 1 : 0;
    cost.ns = SaturatingAdd(cost.ns, SaturatingMul(made, price_ns_));
    return cost;
  }
  bool IsTooMany(const GroupSet& used) const {
    return most_ && groups_.Communicators(used) > *most_;
  }
  void Offer(const Priced& found, const GroupSet& allowed) {
    if (IsTooMany(found.used)) return;
    const PathCost cost = Paid(found.cost, found.used);
    if (best_set_ && !(cost < best_)) return;
    best_ = cost;
    best_set_ = allowed;
  }
  void Shrink(const GroupSet& taken, GroupSet* allowed) const;

  struct Known {
    std::optional<Priced> found;
    int64_t bound_ns = -1;  // if none was found: no solution takes this time or less
  };
  const PlanGroups& groups_;
  const GroupNeeds& needs_;
  const SolveFn solve_;
  const std::optional<int64_t> most_;
  const int64_t price_ns_;
  const bool any_;
  std::map<GroupSet, Known> solved_;
  int64_t num_solved_ = 0;
  bool is_done_ = true;
  PathCost best_;
  std::optional<GroupSet> best_set_;
};

std::optional<Priced> BudgetSearch::Solve(const GroupSet& allowed, const GroupSet& taken) {
  const int64_t bound_ns = best_set_ ? best_.ns - Paid({}, taken).ns : INT64_MAX;
  if (bound_ns < 0) return std::nullopt;
  Known& known = solved_[allowed];
  if (known.found || bound_ns <= known.bound_ns) return known.found;
  ++num_solved_;
  known = {solve_(allowed, bound_ns), bound_ns};
  if (known.found && known.found->cost.ns > bound_ns) known.found.reset();
  return known.found;
}

// Removes the groups that no longer fit the budget: all that are not taken, if no communicator is
// left; if one is left, the groups that would leave a need unmet.
void BudgetSearch::Shrink(const GroupSet& taken, GroupSet* allowed) const {
  if (!most_) return;
  for (const GroupSet& side : groups_.sides()) {
    int64_t left = *most_;
    for (int g = 0; g < groups_.size(); ++g) left -= taken[g] && side[g] ? 1 : 0;
    if (left > 1) continue;
    for (int g = 0; g < groups_.size(); ++g) {
      if (!side[g] || taken[g]) continue;
      bool may_be = left == 1;
      for (const GroupSet& need : needs_) {
        may_be = may_be && (need[g] || Meets(need, taken) || !IsWithin(need, side));
      }
      if (!may_be) (*allowed)[g] = false;
    }
  }
}

void BudgetSearch::Visit(const GroupSet& taken, GroupSet allowed) {
  if (any_ && best_set_) return;
  if (num_solved_ >= kMaxSolutions) {
    is_done_ = false;
    return;
  }
  Shrink(taken, &allowed);
  const std::optional<Priced> found = Solve(allowed, taken);
  if (!found) return;
  Offer(*found, allowed);
  PathCost least = Paid(found->cost, taken);
  // A better solution either takes no further new group, or pays for at least one more.
  GroupSet without = allowed;
  for (int g = 0; g < groups_.size(); ++g) {
    if (IsNew(g) && !taken[g]) without[g] = false;
  }
  if (without != allowed) {
    least = Paid(found->cost, taken, /*more=*/1);
    if (const std::optional<Priced> plain = Solve(without, taken)) {
      Offer(*plain, without);
      least = std::min(least, Paid(plain->cost, taken));
    }
  }
  if (best_set_ && !(least < best_)) return;
  const bool too_many = IsTooMany(found->used);
  for (int g = 0; g < groups_.size(); ++g) {
    if (!found->used[g] || taken[g] || (!too_many && !IsNew(g))) continue;
    GroupSet more = taken;
    more[g] = true;
    Visit(more, allowed);
    allowed[g] = false;
    Visit(taken, std::move(allowed));
    return;
  }
}

}  // namespace

FoundGroups FindGroups(const PlanGroups& groups, int64_t each_setup_ns, const GroupNeeds& needs,
                       SolveFn solve) {
  return BudgetSearch(groups, needs, solve, groups.max_communicators(), each_setup_ns,
                      /*any=*/false)
      .Run();
}

std::optional<FewestGroups> LeastCommunicators(const PlanGroups& groups, const GroupNeeds& needs,
                                               SolveFn solve) {
  const std::optional<Priced> any = solve(groups.Allowed(), INT64_MAX);
  if (!any) return std::nullopt;
  FewestGroups fewest{groups.Communicators(any->used), any->used};
  for (int64_t most = 0; most < fewest.communicators; ++most) {
    const FoundGroups found =
        BudgetSearch(groups, needs, solve, most, /*price_ns=*/0, /*any=*/true).Run();
    if (found.set) {
      return FewestGroups{most, solve(*found.set, INT64_MAX)->used, fewest.is_least};
    }
    fewest.is_least &= found.is_best;
  }
  return fewest;
}

}  // namespace meshift
