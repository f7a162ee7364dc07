#include "planner/mesh_paths.h"

#include <utility>

#include "base/status.h"
#include "base/status_macros.h"
#include "planner/budget_search.h"
#include "planner/memory_limit.h"
#include "planner/memory_search.h"
#include "planner/path_cost.h"

namespace meshift {

absl::Status MeshPaths::NoPlan() const {
  return Internal("no plan from {} to {}", problem_.from().ToString(), problem_.to().ToString());
}

GroupSet MeshPaths::UsedBy(const Path& path) const {
  GroupSet used(groups_.size(), false);
  State before = problem_.source();
  for (const Move& move : path.moves) {
    if (IsCollective(move.op)) {
      used[groups_.NumberOf(0, StepDims(problem_, move.op, before, move.after))] = true;
    }
    before = move.after;
  }
  return used;
}

GroupNeeds MeshPaths::Needs() const {
  GroupNeeds needs;
  const DimMask across = LeastAcross(problem_, model_, rules_);
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if ((across >> d & 1) == 0) continue;
    GroupSet& need = needs.emplace_back(groups_.size(), false);
    for (DimMask dims = 1; dims >> problem_.num_dims() == 0; ++dims) {
      if ((dims >> d & 1) != 0) need[groups_.NumberOf(0, dims)] = true;
    }
  }
  return needs;
}

std::optional<Path> MeshPaths::CheapestOver(const CostModel& model, const GroupSet& allowed,
                                            int64_t bound_ns) const {
  std::optional<LimitedPath> found =
      FindWithin(problem_, model.WithGroups(groups_.DimsOf(0, allowed)), rules_, bound_ns);
  return found ? std::move(found->path) : std::nullopt;
}

absl::StatusOr<GroupSet> MeshPaths::SomeGroups() const {
  const CostModel free = model_.WithMaxWorkspace(std::nullopt);
  if (!CheapestOver(free, groups_.Allowed())) {
    const std::optional<Path> cheapest = FindCheapest(problem_, free, rules_);
    if (!cheapest) return NoPlan();
    return groups_.RefuseNewGroups(UsedBy(*cheapest), options_.reproducibility);
  }
  if (!groups_.max_communicators()) return groups_.Allowed();
  const std::optional<FewestGroups> fewest = LeastCommunicators(
      groups_, Needs(), [&](const GroupSet& allowed, int64_t bound_ns) -> std::optional<Priced> {
        const std::optional<Path> path = CheapestOver(free, allowed, bound_ns);
        if (!path) return std::nullopt;
        return Priced{{}, UsedBy(*path)};
      });
  if (!fewest) return NoPlan();
  if (fewest->communicators <= *groups_.max_communicators()) return fewest->set;
  return groups_.RefuseCommunicators(fewest->communicators, fewest->is_least);
}

absl::StatusOr<Path> MeshPaths::CheapestWithinGroups() const {
  const FoundGroups found =
      FindGroups(groups_, groups_.each_setup_ns(), Needs(),
                 [&](const GroupSet& allowed, int64_t bound_ns) -> std::optional<Priced> {
                   const std::optional<Path> path = CheapestOver(model_, allowed, bound_ns);
                   if (!path) return std::nullopt;
                   return Priced{CostOf(problem_, model_, *path), UsedBy(*path)};
                 });
  if (found.set) return *CheapestOver(model_, *found.set);
  MESHIFT_ASSIGN_OR_RETURN(const GroupSet some, SomeGroups());
  // Only where the search ended early may these do.
  if (std::optional<Path> path = CheapestOver(model_, some)) return *std::move(path);
  if (!options_.max_memory) return NoPlan();
  MESHIFT_ASSIGN_OR_RETURN(LeastPath least, LeastWorkspace());
  if (least.workspace <= *model_.max_workspace()) return std::move(least.path);
  return RefuseMemory(least.workspace, least.is_least);
}

absl::StatusOr<Path> MeshPaths::Cheapest() const {
  if (groups_.IsBounded()) return CheapestWithinGroups();
  if (!options_.max_memory) {
    std::optional<Path> path = FindCheapest(problem_, model_, rules_);
    if (!path) return NoPlan();
    return *std::move(path);
  }
  std::optional<LimitedPath> found = FindWithin(problem_, model_, rules_);
  if (!found) return NoPlan();
  if (!found->path) {
    return RefuseMemory(found->least_workspace, found->is_least);
  }
  return *std::move(found->path);
}

absl::Status MeshPaths::RefuseMemory(int64_t least_workspace, bool is_least) const {
  return TensorMemory(problem_.from(), problem_.to(), options_.buffers)
      .Refusal(*options_.max_memory, least_workspace, is_least);
}

absl::StatusOr<LeastPath> MeshPaths::LeastWorkspace() const {
  if (!groups_.IsBounded()) {
    std::optional<LeastPath> least = FindLeastWorkspace(problem_, model_, rules_);
    if (!least) return NoPlan();
    return *std::move(least);
  }
  const auto least_over = [&](const GroupSet& allowed) {
    return FindLeastWorkspace(problem_, model_.WithGroups(groups_.DimsOf(0, allowed)), rules_);
  };
  bool is_least = true;
  // Bytes of memory in place of time: groups cost none.
  FoundGroups best =
      FindGroups(groups_, /*each_setup_ns=*/0, Needs(),
                 [&](const GroupSet& allowed, int64_t /*bound*/) -> std::optional<Priced> {
                   const std::optional<LeastPath> least = least_over(allowed);
                   if (!least) return std::nullopt;
                   is_least &= least->is_least;
                   return Priced{{.ns = least->workspace}, UsedBy(least->path)};
                 });
  if (!best.set) {
    MESHIFT_ASSIGN_OR_RETURN(best.set, SomeGroups());
  }
  LeastPath least = *least_over(*best.set);
  least.is_least = is_least && best.is_best;
  return least;
}

}  // namespace meshift
