// The inputs of planning on one mesh, derived from the caller's options: the problem, the choice of
// reductions, and the limits. plan_on_mesh.cc implements it.
//
//   MESHIFT_ASSIGN_OR_RETURN(const MeshProblem on_mesh,
//                            MeshProblem::Create(from, to, options, budget));
//
// It finds no path. One thread at a time, because of the budget. Internal to planner/intra_mesh.
#ifndef MESHIFT_PLANNER_INTRA_MESH_MESH_PROBLEM_H_
#define MESHIFT_PLANNER_INTRA_MESH_MESH_PROBLEM_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/groups/plan_groups.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/plan/memory_limit.h"

namespace meshift {

struct MeshProblem {
  // `budget` must outlive it. Fails with those errors of MakePlan that do not depend on the path.
  static absl::StatusOr<MeshProblem> Create(const Sharding& from, const Sharding& to,
                                            const PlannerOptions& options, WorkBudget& budget);

  Problem problem;
  ReductionChoice choice;
  PlanGroups groups;
  TensorMemory memory;
  CostOptions cost;  // without a limit on workspace
  // Bytes: options.max_memory without source and target; below 0 if these alone exceed it.
  std::optional<int64_t> workspace_limit;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_MESH_PROBLEM_H_
