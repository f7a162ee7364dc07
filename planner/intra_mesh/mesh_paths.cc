#include "planner/intra_mesh/mesh_paths.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/status.h"
#include "planner/limits/memory_search.h"

namespace meshift {

absl::Status MeshPaths::NoPath() const {
  return Internal("no plan from {} to {}", problem_.from().ToString(), problem_.to().ToString());
}

GroupSet MeshPaths::UsedBy(const Path& path) const {
  GroupSet used(groups().size(), false);
  State before = problem_.source();
  for (const Move& move : path.moves) {
    if (IsCollective(move.op)) {
      used[groups().NumberOf(0, StepDims(problem_, move.op, before, move.after))] = true;
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
    GroupSet& need = needs.emplace_back(groups().size(), false);
    for (DimMask dims = 1; dims >> problem_.num_dims() == 0; ++dims) {
      if ((dims >> d & 1) != 0) need[groups().NumberOf(0, dims)] = true;
    }
  }
  return needs;
}

absl::StatusOr<Path> MeshPaths::CheapestOver(const GroupSet* allowed, bool within_memory,
                                             int64_t bound_ns) const {
  const auto find = [&](const CostModel& model) {
    return allowed == nullptr ? FindWithin(problem_, model, rules_, bound_ns)
                              : FindWithin(problem_, model.WithGroups(groups().DimsOf(0, *allowed)),
                                           rules_, bound_ns);
  };
  std::optional<LimitedPath> found =
      within_memory ? find(model_) : find(model_.WithMaxWorkspace(std::nullopt));
  if (!found) return NoPath();
  if (found->path) return *std::move(found->path);
  return memory().Refusal(*options().max_memory, found->least_workspace, found->is_least);
}

absl::StatusOr<Least<Path>> MeshPaths::LeastOver(const GroupSet* allowed) const {
  std::optional<LeastPath> least =
      allowed == nullptr
          ? FindLeastWorkspace(problem_, model_, rules_)
          : FindLeastWorkspace(problem_, model_.WithGroups(groups().DimsOf(0, *allowed)), rules_);
  if (!least) return NoPath();
  return Least<Path>{std::move(least->path), least->workspace, least->is_least};
}

}  // namespace meshift
