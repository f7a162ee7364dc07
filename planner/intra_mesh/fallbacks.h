// Two fallbacks on one mesh, if limits allow no path within the value rule
// (planner/search/value_rule.h): a path with larger values, and a plan through R,..,R.
//
//   path = FindBeyondRule(on_mesh, model, options, /*refusal=*/path.status());
//   return PlanThroughReplicas(from, to, on_mesh, options, budget, /*refusal=*/path.status());
//
// The results keep the limits on groups and memory. The caller checks the work budget, which is for
// one thread at a time. Internal to planner/intra_mesh.
#ifndef MESHIFT_PLANNER_INTRA_MESH_FALLBACKS_H_
#define MESHIFT_PLANNER_INTRA_MESH_FALLBACKS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "planner/cost/cost.h"
#include "planner/intra_mesh/mesh_problem.h"
#include "planner/search/search.h"

namespace meshift {

// The cheapest path whose intermediate values may have any size (the value rule still limits their
// pieces); `refusal` if there is none. `model` has the workspace limit of options.max_memory, if
// set. If options.max_value is set, it stays a limit: FAILED_PRECONDITION instead of the path. The
// message names max_value and the value of that path that exceeds it.
absl::StatusOr<Path> FindBeyondRule(const MeshProblem& on_mesh, const CostModel& model,
                                    const PlannerOptions& options, const absl::Status& refusal);

// A plan through R,..,R: unlike other plans it may reduce mesh dims that are partial in source and
// target, and mask them again. It joins the cheapest path to R,..,R and the cheapest one from
// there. `refusal` if there are none, if both together break a limit, or if options.max_value is
// set.
absl::StatusOr<Plan> PlanThroughReplicas(const Sharding& from, const Sharding& to,
                                         const MeshProblem& on_mesh, const PlannerOptions& options,
                                         WorkBudget& budget, const absl::Status& refusal);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_INTRA_MESH_FALLBACKS_H_
