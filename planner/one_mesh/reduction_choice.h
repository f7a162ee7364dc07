// How a problem's reductions are done, which its promise about bits decides before the search does
// the rest.
//
//   MESHIFT_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReductions(problem, options));
//   choice.ordered;     // contributions are combined in ascending order of coordinates
//   choice.why;         // what keeps the promise
//
// Above `replicas` everything that is reduced is reduced by one step over exactly its mesh dims, so
// that what is rounded when is a matter of the placements alone.
#ifndef MESHIFT_PLANNER_ONE_MESH_REDUCTION_CHOICE_H_
#define MESHIFT_PLANNER_ONE_MESH_REDUCTION_CHOICE_H_

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
  bool reduces = false;  // at all
  bool exact = false;    // in any order
  bool ordered = false;  // reduce_order is ascending
  TransitionRules rules;
  std::string why;  // of promises above kReplicas
  // Where nothing is reduced, of plans that add identities to what they mask; as `why`.
  std::string why_masked;
};

// INVALID_ARGUMENT where blocks are asked for without kOrdered, or of a negative size;
// UNIMPLEMENTED where the engine cannot do a reduction that the problem needs;
// FAILED_PRECONDITION where the promise needs an order and the options forbid it.
absl::StatusOr<ReductionChoice> ChooseReductions(const Problem& problem,
                                                 const PlannerOptions& options);

// How the model prices what is planned so.
CostOptions CostOptionsOf(const PlannerOptions& options, const ReductionChoice& choice);

// Whether all groups over `mesh_dims` lie alike on the topology: members with equal coordinates
// have equal numbers among their group's ranks, and share domains alike. Of more than 4,096 ranks
// only what a closed form shows: a row-major mesh, and domains of each level that consist of whole
// inner mesh dims and a factor of the next one, or are no longer than the members are apart.
bool GroupsLieAlike(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                    const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_ONE_MESH_REDUCTION_CHOICE_H_
