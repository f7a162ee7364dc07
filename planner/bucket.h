// Makes a plan whose workspace fits into a bucket (planner/together/rounds.h).
//
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to, options, budget));
//   MESHIFT_ASSIGN_OR_RETURN(plan, FitBucket(std::move(plan), options, 4 << 20, budget));
//
// Internal to the planner and the CLI.
#ifndef MESHIFT_PLANNER_BUCKET_H_
#define MESHIFT_PLANNER_BUCKET_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"

namespace meshift {

// `plan`, if its workspace has at most `bucket_bytes`. Else the cheapest plan with at most these: a
// plan with the max_memory of source, target and bucket. RESOURCE_EXHAUSTED: there is none; the
// message has the least workspace and the bucket; or the budget. Other errors are those of
// MakePlan. REQUIRES: MakePlan made `plan` with `options`.
absl::StatusOr<Plan> FitBucket(Plan plan, const PlannerOptions& options, int64_t bucket_bytes,
                               WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_BUCKET_H_
