// Paths on one mesh within what the options allow: memory, and groups. Internal.
//
//   const MeshPaths paths(problem, model, options, rules, groups);
//   MESHIFT_ASSIGN_OR_RETURN(const Path path, paths.Cheapest());
//   MESHIFT_ASSIGN_OR_RETURN(const LeastPath least, paths.LeastWorkspace());
#ifndef MESHIFT_PLANNER_MESH_PATHS_H_
#define MESHIFT_PLANNER_MESH_PATHS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/budget_search.h"
#include "planner/cost.h"
#include "planner/memory_search.h"
#include "planner/plan_groups.h"
#include "planner/planner.h"
#include "planner/search.h"
#include "planner/state.h"
#include "planner/transitions.h"

namespace meshift {

class MeshPaths {
 public:
  // Keeps references to all of them. `model` has the limit that options.max_memory leaves, and no
  // groups; `groups` are those of the problem's mesh.
  MeshPaths(const Problem& problem, const CostModel& model, const PlannerOptions& options,
            const TransitionRules& rules, const PlanGroups& groups)
      : problem_(problem), model_(model), options_(options), rules_(rules), groups_(groups) {}

  // The path of the plan. MakePlan's FAILED_PRECONDITION and RESOURCE_EXHAUSTED; INTERNAL: no path
  // keeps the rules, which no problem is known to cause.
  absl::StatusOr<Path> Cheapest() const;
  // A path over the groups that needs the least workspace (FindLeastWorkspace); the model's limit
  // is not looked at. Fails as Cheapest().
  absl::StatusOr<LeastPath> LeastWorkspace() const;

 private:
  absl::Status NoPlan() const;
  absl::Status RefuseMemory(int64_t least_workspace, bool is_least) const;
  // Groups that keep to the budget, and over which there is a path, memory left aside; else why
  // there are none.
  absl::StatusOr<GroupSet> SomeGroups() const;
  std::optional<Path> CheapestOver(const CostModel& model, const GroupSet& allowed,
                                   int64_t bound_ns = INT64_MAX) const;
  GroupSet UsedBy(const Path& path) const;
  // What mesh dims must be gone across, as groups.
  GroupNeeds Needs() const;
  absl::StatusOr<Path> CheapestWithinGroups() const;

  const Problem& problem_;
  const CostModel& model_;
  const PlannerOptions& options_;
  const TransitionRules& rules_;
  const PlanGroups& groups_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_MESH_PATHS_H_
