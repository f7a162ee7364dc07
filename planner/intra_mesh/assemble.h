// Turns a path of states into a Plan: steps with bytes and times, totals, the lower bound, and the
// promise that the steps keep. It does not choose the path, and checks no option's limit.
//
//   Plan plan = Assemble(problem, model, path, options, choice, groups);   // on one mesh
//
//   PlanAssembly onto({from.mesh(), to.mesh()}, from, to, options, groups);
//   onto.AddPath(first.problem, first.model, first.path, choice, /*mesh=*/0);
//   onto.AddStep(crossing, /*send_piece_bytes=*/0, /*receive_piece_bytes=*/4096);
//   Plan plan = std::move(onto).Seal(bound, choice.why);
//
// REQUIRES: each path or step begins where the one before it ends; not checked. Not safe for
// concurrent use. Internal to the planner and the CLI.
#ifndef MESHIFT_PLANNER_INTRA_MESH_ASSEMBLE_H_
#define MESHIFT_PLANNER_INTRA_MESH_ASSEMBLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/groups/plan_groups.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/search/search.h"

namespace meshift {

// Builds a plan step by step.
class PlanAssembly {
 public:
  // A plan from the first mesh to the last. `groups`: of these meshes. Keeps references to
  // `options` and `groups`.
  PlanAssembly(std::vector<DeviceMesh> meshes, const Sharding& from, const Sharding& to,
               const PlannerOptions& options, const PlanGroups& groups);

  // Appends the steps of a path on meshes[mesh], and lowers the promise if they break it.
  void AddPath(const Problem& problem, const CostModel& model, const Path& path,
               const ReductionChoice& choice, int mesh);
  // Records the largest value of the path that breaks the value rule, if any, in the plan's inputs
  // (exceeded_max_value). A second call replaces the record of the first. Does nothing for
  // PlannerKind::kPerDim.
  void NoteValuesBeyond(const Problem& problem, const Path& path, const ReductionChoice& choice);
  // Appends a step, with the workspace bytes of its packed pieces (without the values before and
  // after it).
  void AddStep(Step step, int64_t send_piece_bytes, int64_t receive_piece_bytes);

  // Returns the plan. The assembly must not be used again. `why`: of ReductionChoice.
  Plan Seal(const LowerBound& bound, const std::string& why) &&;

 private:
  const PlannerOptions& options_;
  const PlanGroups& groups_;
  PlanFields fields_;
  struct Pieces {
    int64_t send;  // bytes
    int64_t receive;
  };
  absl::InlinedVector<Pieces, 4> pieces_;  // by step
};

// The plan of a path on one mesh.
Plan Assemble(const Problem& problem, const CostModel& model, const Path& path,
              const PlannerOptions& options, const ReductionChoice& choice,
              const PlanGroups& groups);

// The groups of a plan on `meshes`. RESOURCE_EXHAUSTED: `budget` does not allow the work of listing
// their ranks. Also returns the errors of PlanGroups::Create.
absl::StatusOr<PlanGroups> GroupsOf(absl::Span<const DeviceMesh> meshes,
                                    const PlannerOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_ASSEMBLE_H_
