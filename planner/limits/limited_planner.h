// Finds the cheapest solution within limits on memory and groups, and one with the least workspace.
// A base class for paths on one mesh and for plans onto another mesh.
//
//   class MeshPaths final : public LimitedPlanner<Path> { ... CheapestOver() ... LeastOver() ... };
//   MESHIFT_ASSIGN_OR_RETURN(const Path path, paths.Cheapest());
//   MESHIFT_ASSIGN_OR_RETURN(const Least<Path> least, paths.LeastWorkspace());
//
// The derived class solves for a given set of groups. This class chooses the set (by
// planner/limits/budget_search.h), or gives the error if there is none. As safe for concurrent use
// as the derived class. Internal to the planner.
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
  bool is_least = true;   // false: another may need less
};

template <typename Solution>
class LimitedPlanner {
 public:
  // Returns MakePlan's FAILED_PRECONDITION and RESOURCE_EXHAUSTED, INVALID_ARGUMENT for a negative
  // max_memory, and the errors of CheapestOver() and LeastOver(). Does not check a work budget: the
  // caller does. With a budget of groups, a cheaper solution may exist after kMaxSolutions calls of
  // CheapestOver() (budget_search.h).
  absl::StatusOr<Solution> Cheapest() const;
  // Within the budget of groups, without regard to options.max_memory. Fails in the same way, but
  // not because of max_memory.
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
  // The cheapest solution over groups of `allowed` (null: all) that takes at most `bound_ns`; any
  // error if there is none. `within_memory`: also within options.max_memory, if set. If only that
  // limit excludes all solutions, the error is TensorMemory::Refusal().
  virtual absl::StatusOr<Solution> CheapestOver(const GroupSet* allowed, bool within_memory,
                                                int64_t bound_ns) const = 0;
  virtual absl::StatusOr<Least<Solution>> LeastOver(const GroupSet* allowed) const = 0;
  virtual PathCost CostOf(const Solution& solution) const = 0;
  virtual GroupSet UsedBy(const Solution& solution) const = 0;
  virtual GroupNeeds Needs() const { return {}; }

  // Groups within the budget for which there is a solution, without regard to memory; or the error
  // that says why there are none.
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
    // Errors that do not concern groups come first.
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
  // The cost is bytes of workspace instead of time; groups need none.
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
  // A solution over these groups exists only if the search ended early.
  absl::StatusOr<Solution> solution = find(&some);
  if (solution.ok() || !options_.max_memory) return solution;
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory_.WorkspaceLimit(*options_.max_memory));
  MESHIFT_ASSIGN_OR_RETURN(Least<Solution> least, LeastWorkspace());
  if (least.workspace <= limit) return std::move(least.solution);
  return memory_.Refusal(*options_.max_memory, least.workspace, least.is_least);
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_LIMITS_LIMITED_PLANNER_H_
