#include "planner/bucket.h"

#include <fmt/format.h>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "meshift/planner.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<Plan> FitBucket(Plan plan, const PlannerOptions& options, int64_t bucket_bytes,
                               WorkBudget& budget) {
  const PlanTotals& total = plan.total();
  if (total.workspace_bytes <= bucket_bytes) return plan;
  const int64_t tensors = total.peak_bytes - total.workspace_bytes;
  PlannerOptions tighter = options;
  // A limit among the options is at least the plan's peak, which is above this.
  tighter.max_memory = SaturatingAdd(tensors, bucket_bytes);
  absl::StatusOr<Plan> fits = MakePlan(plan.from(), plan.to(), tighter, budget);
  if (budget.exhausted() || fits.status().code() != absl::StatusCode::kResourceExhausted) {
    return fits;
  }
  MESHIFT_ASSIGN_OR_RETURN(const int64_t least, LeastMemory(plan.from(), plan.to(), options));
  return absl::ResourceExhaustedError(
      fmt::format("the least workspace of a plan has {} bytes; a bucket has {}", least - tensors,
                  bucket_bytes));
}

}  // namespace meshift
