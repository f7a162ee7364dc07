// Chooses how a problem's reductions are done, from the promise about bits. The search then finds
// the path.
//
//   MESHIFT_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReductions(problem, options));
//   choice.ordered;     // contributions are combined in ascending order of coordinates
//   choice.why;         // what keeps the promise
//
// For promises above `replicas`, one step reduces over exactly the mesh dims to be reduced, so that
// rounding does not depend on the rest of the path; except if the reduction is exact in any order,
// and with the per-dim planner, which ignores the promise. Pure functions. Internal to the planner.
#ifndef MESHIFT_PLANNER_INTRA_MESH_REDUCTION_CHOICE_H_
#define MESHIFT_PLANNER_INTRA_MESH_REDUCTION_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/planner_options.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"

namespace meshift {

struct ReductionChoice {
  bool reduces = false;  // the problem has a reduction
  bool exact = false;    // reductions are exact in any order; also if no plan has one
  bool ordered = false;  // reduce_order is ascending
  TransitionRules rules;
  std::string why;  // the reason why a promise above kReplicas is kept; empty: it is not
  // As `why`, if the problem has no reduction, for plans that mask and reduce (adding identities).
  std::string why_masked;
};

// INVALID_ARGUMENT: reduce_block without kOrdered, a negative reduce_block or max_value.
// UNIMPLEMENTED: the engine or the per-dim planner cannot do a reduction of the problem. Ordered
// reductions do not need the engine's.
// FAILED_PRECONDITION: the promise needs ordered reductions, which the options forbid.
absl::StatusOr<ReductionChoice> ChooseReductions(const Problem& problem,
                                                 const PlannerOptions& options);

// The options of the cost model for this choice.
CostOptions CostOptionsOf(const PlannerOptions& options, const ReductionChoice& choice);

// Whether all groups over `mesh_dims` are equivalent on the topology: members with equal
// coordinates have equal indices among their group's ranks, and share domains with the same other
// members. On meshes of more than 4,096 ranks, several groups are tested by a closed form, which
// may miss some: true if the mesh is row-major, and the domains of each level hold all ranks,
// consist of whole inner mesh dims and a factor of the next one, or are not longer than the
// distance between members.
bool GroupsAreEquivalent(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                         const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_REDUCTION_CHOICE_H_
