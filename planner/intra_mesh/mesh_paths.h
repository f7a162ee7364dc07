// Finds paths on one mesh within the limits of the options on memory and groups.
//
//   const MeshPaths paths(problem, model, options, rules, groups, memory);
//   MESHIFT_ASSIGN_OR_RETURN(const Path path, paths.Cheapest());
//   MESHIFT_ASSIGN_OR_RETURN(const Least<Path> least, paths.LeastWorkspace());
//
// planner/limits/limited_planner.h has these functions and their errors. The caller checks the
// problem's work budget after each call, also after one that fails. One thread at a time. Internal
// to planner/intra_mesh.
#ifndef MESHIFT_PLANNER_INTRA_MESH_MESH_PATHS_H_
#define MESHIFT_PLANNER_INTRA_MESH_MESH_PATHS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/planner_options.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/groups/plan_groups.h"
#include "planner/limits/budget_search.h"
#include "planner/limits/limited_planner.h"
#include "planner/plan/memory_limit.h"
#include "planner/search/search.h"

namespace meshift {

// Also fails with INTERNAL if no path keeps the rules (a small max_value can exclude all paths), or
// if the work budget is spent before one is found.
class MeshPaths final : public LimitedPlanner<Path> {
 public:
  // Keeps references to all arguments except `memory`. `model` has no groups. Cheapest() keeps to
  // the workspace limit that `model` has, if any; options.max_memory must then be set. `groups`: of
  // the problem's mesh. `memory`: of its source and target.
  MeshPaths(const Problem& problem, const CostModel& model, const PlannerOptions& options,
            const TransitionRules& rules, const PlanGroups& groups, const TensorMemory& memory)
      : LimitedPlanner(options, groups, memory), problem_(problem), model_(model), rules_(rules) {}

 private:
  absl::StatusOr<Path> CheapestOver(const GroupSet* allowed, bool within_memory,
                                    int64_t bound_ns) const override;
  absl::StatusOr<Least<Path>> LeastOver(const GroupSet* allowed) const override;
  PathCost CostOf(const Path& path) const override {
    return meshift::CostOf(problem_, model_, path);
  }
  GroupSet UsedBy(const Path& path) const override;
  // For each mesh dim that every path must cross (LeastAcross()), the groups that cross it.
  GroupNeeds Needs() const override;
  absl::Status NoPath() const;

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_MESH_PATHS_H_
