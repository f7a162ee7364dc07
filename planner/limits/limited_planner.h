// The cheapest solution within limits on memory and groups, and one that needs the least workspace:
// of paths on one mesh, and of plans onto another. Internal.
//
//   class MeshPaths final : public LimitedPlanner<Path> { ... CheapestOver() ... LeastOver() ... };
//   MESHIFT_ASSIGN_OR_RETURN(const Path path, paths.Cheapest());
//   MESHIFT_ASSIGN_OR_RETURN(const Least<Path> least, paths.LeastWorkspace());
//
// Who derives from it knows what there is over a given set of groups; which set that should be, and
// why there is none, is found here (planner/limits/budget_search.h).
#ifndef MESHIFT_PLANNER_LIMITS_LIMITED_PLANNER_H_
#define MESHIFT_PLANNER_LIMITS_LIMITED_PLANNER_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "planner/cost/path_cost.h"
#include "planner/groups/plan_groups.h"
#include "planner/limits/budget_search.h"
#include "planner/plan/memory_limit.h"

namespace meshift {

template <typename Solution>
struct Least {
  Solution solution;
  int64_t workspace = 0;  // bytes
  bool is_least = true;   // no other is known to need less
};

template <typename Solution>
class LimitedPlanner {
 public:
  // MakePlan's FAILED_PRECONDITION and RESOURCE_EXHAUSTED, and the errors of CheapestOver().
  absl::StatusOr<Solution> Cheapest() const;
  // Over groups that keep to the budget; options.max_memory is not looked at. Fails likewise.
  absl::StatusOr<Least<Solution>> LeastWorkspace() const;

 protected:
  // Keeps references to `options` and `groups`.
  LimitedPlanner(const PlannerOptions& options, const PlanGroups& groups,
                 const TensorMemory& memory)
      : options_(options), groups_(groups), memory_(memory) {}
  ~LimitedPlanner() = default;

  const PlannerOptions& options() const { return options_; }
  const PlanGroups& groups() const { return groups_; }
  const TensorMemory& memory() const { return memory_; }

 private:
  // The cheapest one over groups of `allowed` (null: any) of those that take `bound_ns` or less;
  // where there is none, any error. `within_memory`: within options.max_memory, if that is set, or
  // TensorMemory's Refusal.
  virtual absl::StatusOr<Solution> CheapestOver(const GroupSet* allowed, bool within_memory,
                                                int64_t bound_ns) const = 0;
  virtual absl::StatusOr<Least<Solution>> LeastOver(const GroupSet* allowed) const = 0;
  virtual PathCost CostOf(const Solution& solution) const = 0;
  virtual GroupSet UsedBy(const Solution& solution) const = 0;
  virtual GroupNeeds Needs() const { return {}; }

  // Groups that keep to the budget, and over which there is a solution, memory left aside; else why
  // there are none.
  absl::StatusOr<GroupSet> SomeGroups() const;

  const PlannerOptions& options_;
  const PlanGroups& groups_;
  const TensorMemory memory_;
};

template <typename Solution>
absl::StatusOr<GroupSet> LimitedPlanner<Solution>::SomeGroups() const {
  const auto find = [&](const GroupSet* allowed) {
    return CheapestOver(allowed, /*within_memory=*/false, INT64_MAX);
  };
  GroupSet allowed = groups_.Allowed();
  if (!find(&allowed).ok()) {
    // What has nothing to do with groups comes first.
    MESHIFT_ASSIGN_OR_RETURN(const Solution any, find(nullptr));
    return groups_.RefuseNewGroups(UsedBy(any), options_.reproducibility);
  }
  if (!groups_.max_communicators()) return allowed;
  std::optional<FewestGroups> fewest = LeastCommunicators(
      groups_, Needs(), [&](const GroupSet& set, int64_t /*bound*/) -> std::optional<Priced> {
        const absl::StatusOr<Solution> solution = find(&set);
        if (!solution.ok()) return std::nullopt;
        return Priced{{}, UsedBy(*solution)};
      });
  if (!fewest) return allowed;
  if (fewest->communicators <= *groups_.max_communicators()) return std::move(fewest->set);
  return groups_.RefuseCommunicators(fewest->communicators, fewest->is_least);
}

template <typename Solution>
absl::StatusOr<Least<Solution>> LimitedPlanner<Solution>::LeastWorkspace() const {
  if (!groups_.IsBounded()) return LeastOver(nullptr);
  bool is_least = true;
  // Bytes of memory in place of time: groups cost none.
  FoundGroups best =
      FindGroups(groups_, /*each_setup_ns=*/0, Needs(),
                 [&](const GroupSet& allowed, int64_t /*bound*/) -> std::optional<Priced> {
                   const absl::StatusOr<Least<Solution>> least = LeastOver(&allowed);
                   if (!least.ok()) return std::nullopt;
                   is_least &= least->is_least;
                   return Priced{{.ns = least->workspace}, UsedBy(least->solution)};
                 });
  if (!best.set) {
    MESHIFT_ASSIGN_OR_RETURN(best.set, SomeGroups());
  }
  MESHIFT_ASSIGN_OR_RETURN(Least<Solution> least, LeastOver(&*best.set));
  least.is_least = is_least && best.is_best;
  return least;
}

template <typename Solution>
absl::StatusOr<Solution> LimitedPlanner<Solution>::Cheapest() const {
  const auto find = [&](const GroupSet* allowed, int64_t bound_ns = INT64_MAX) {
    return CheapestOver(allowed, /*within_memory=*/true, bound_ns);
  };
  if (!groups_.IsBounded()) return find(nullptr);
  const FoundGroups found =
      FindGroups(groups_, groups_.each_setup_ns(), Needs(),
                 [&](const GroupSet& allowed, int64_t bound_ns) -> std::optional<Priced> {
                   const absl::StatusOr<Solution> solution = find(&allowed, bound_ns);
                   if (!solution.ok()) return std::nullopt;
                   return Priced{CostOf(*solution), UsedBy(*solution)};
                 });
  if (found.set) return find(&*found.set);
  MESHIFT_ASSIGN_OR_RETURN(const GroupSet some, SomeGroups());
  // Only where the search ended early may these do.
  absl::StatusOr<Solution> solution = find(&some);
  if (solution.ok() || !options_.max_memory) return solution;
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory_.WorkspaceLimit(*options_.max_memory));
  MESHIFT_ASSIGN_OR_RETURN(Least<Solution> least, LeastWorkspace());
  if (least.workspace <= limit) return std::move(least.solution);
  return memory_.Refusal(*options_.max_memory, least.workspace, least.is_least);
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_LIMITED_PLANNER_H_
