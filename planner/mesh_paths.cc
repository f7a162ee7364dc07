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

std::optional<Path> MeshPaths::CheapestOver(const CostModel& model, const GroupSet& allowed) const {
  std::optional<LimitedPath> found =
      FindWithin(problem_, model.WithGroups(groups_.DimsOf(0, allowed)), rules_);
  return found ? std::move(found->path) : std::nullopt;
}

absl::Status MeshPaths::RefuseGroups() const {
  const CostModel free = model_.WithMaxWorkspace(std::nullopt);
  if (!CheapestOver(free, groups_.Allowed())) {
    const std::optional<Path> cheapest = FindCheapest(problem_, free, rules_);
    if (!cheapest) return NoPlan();
    return groups_.RefuseNewGroups(UsedBy(*cheapest), options_.reproducibility);
  }
  if (!groups_.max_communicators()) return absl::OkStatus();
  const std::optional<int64_t> least =
      LeastCommunicators(groups_, [&](const GroupSet& allowed) -> std::optional<Priced> {
        const std::optional<Path> path = CheapestOver(free, allowed);
        if (!path) return std::nullopt;
        return Priced{{}, UsedBy(*path)};
      });
  if (!least) return NoPlan();
  return *least > *groups_.max_communicators() ? groups_.RefuseCommunicators(*least)
                                               : absl::OkStatus();
}

absl::StatusOr<Path> MeshPaths::CheapestWithinGroups() const {
  const std::optional<GroupSet> best = FindGroups(
      groups_, groups_.each_setup_ns(), [&](const GroupSet& allowed) -> std::optional<Priced> {
        const std::optional<Path> path = CheapestOver(model_, allowed);
        if (!path) return std::nullopt;
        return Priced{CostOf(problem_, model_, *path), UsedBy(*path)};
      });
  if (best) return *CheapestOver(model_, *best);
  MESHIFT_RETURN_IF_ERROR(RefuseGroups());
  if (!options_.max_memory) return NoPlan();
  MESHIFT_ASSIGN_OR_RETURN(const LeastPath least, LeastWorkspace());
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
  const std::optional<GroupSet> best = FindGroups(
      groups_, /*each_setup_ns=*/0, [&](const GroupSet& allowed) -> std::optional<Priced> {
        const std::optional<LeastPath> least = least_over(allowed);
        if (!least) return std::nullopt;
        is_least &= least->is_least;
        return Priced{{.ns = least->workspace}, UsedBy(least->path)};
      });
  if (best) {
    LeastPath least = *least_over(*best);
    least.is_least = is_least;
    return least;
  }
  MESHIFT_RETURN_IF_ERROR(RefuseGroups());
  return NoPlan();
}

}  // namespace meshift
