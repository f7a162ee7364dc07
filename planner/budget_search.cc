#include "planner/budget_search.h"

#include <algorithm>
#include <map>
#include <utility>

namespace meshift {
namespace {

constexpr int64_t kMaxSolutions = 4096;

class BudgetSearch {
 public:
  // `most`: communicators, if they are limited. `price_ns`: of each new group.
  BudgetSearch(const PlanGroups& groups, SolveFn solve, std::optional<int64_t> most,
               int64_t price_ns, bool any)
      : groups_(groups), solve_(solve), most_(most), price_ns_(price_ns), any_(any) {}

  std::optional<GroupSet> Run() {
    Visit(GroupSet(groups_.size(), false), groups_.Allowed());
    return std::move(best_set_);
  }

 private:
  // Solutions over groups of `allowed`, of which those of `taken` are paid for.
  void Visit(const GroupSet& taken, GroupSet allowed);
  const std::optional<Priced>& Solve(const GroupSet& allowed) {
    const auto [at, is_new] = solved_.try_emplace(allowed);
    if (is_new) at->second = solve_(allowed);
    return at->second;
  }
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
  // Takes away what there is no communicator left for.
  void Shrink(const GroupSet& taken, GroupSet* allowed) const {
    if (!most_) return;
    for (const GroupSet& side : groups_.sides()) {
      int64_t count = 0;
      for (int g = 0; g < groups_.size(); ++g) count += taken[g] && side[g] ? 1 : 0;
      if (count < *most_) continue;
      for (int g = 0; g < groups_.size(); ++g) {
        if (side[g] && !taken[g]) (*allowed)[g] = false;
      }
    }
  }

  const PlanGroups& groups_;
  const SolveFn solve_;
  const std::optional<int64_t> most_;
  const int64_t price_ns_;
  const bool any_;  // the first solution is enough
  std::map<GroupSet, std::optional<Priced>> solved_;
  PathCost best_;
  std::optional<GroupSet> best_set_;
};

void BudgetSearch::Visit(const GroupSet& taken, GroupSet allowed) {
  if ((any_ && best_set_) || static_cast<int64_t>(solved_.size()) >= kMaxSolutions) return;
  Shrink(taken, &allowed);
  const std::optional<Priced> found = Solve(allowed);
  if (!found) return;
  Offer(*found, allowed);
  PathCost least = Paid(found->cost, taken);
  // Either nothing new is taken besides, or one more is paid for.
  GroupSet without = allowed;
  for (int g = 0; g < groups_.size(); ++g) {
    if (IsNew(g) && !taken[g]) without[g] = false;
  }
  if (without != allowed) {
    least = Paid(found->cost, taken, /*more=*/1);
    if (const std::optional<Priced>& plain = Solve(without)) {
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

std::optional<GroupSet> FindGroups(const PlanGroups& groups, int64_t each_setup_ns, SolveFn solve) {
  return BudgetSearch(groups, solve, groups.max_communicators(), each_setup_ns, /*any=*/false)
      .Run();
}

std::optional<int64_t> LeastCommunicators(const PlanGroups& groups, SolveFn solve) {
  const std::optional<Priced> any = solve(groups.Allowed());
  if (!any) return std::nullopt;
  const int64_t enough = groups.Communicators(any->used);
  for (int64_t most = 0; most < enough; ++most) {
    if (BudgetSearch(groups, solve, most, 0, /*any=*/true).Run()) return most;
  }
  return enough;
}

}  // namespace meshift
