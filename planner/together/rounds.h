// Cuts an update of many tensors into rounds whose workspaces fit into a bucket.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<Round> rounds,
//                            CutIntoRounds(plans, /*counts=*/{58, 61}, /*bucket_bytes=*/4 << 20));
//   CountRounds(loads, &rounds);      // sets their busiest_ns
//
// Tensors are taken in order, those of one plan after another. A round is closed when the next
// tensor would exceed the bucket. Sums saturate. Pure functions; internal to the planner and the
// CLI.
#ifndef MESHIFT_PLANNER_TOGETHER_ROUNDS_H_
#define MESHIFT_PLANNER_TOGETHER_ROUNDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "planner/together/plan_loads.h"

namespace meshift {

// INVALID_ARGUMENT: the bucket is below 1 byte.
absl::Status CheckBucket(int64_t bucket_bytes);

// Takes O(plans), whatever the counts. No round equals the next one. INVALID_ARGUMENT: the bucket
// (CheckBucket), or a plan alone needs more. REQUIRES: as many counts as plans, each 1 or more.
absl::StatusOr<std::vector<Round>> CutIntoRounds(absl::Span<const Plan> plans,
                                                 absl::Span<const int64_t> counts,
                                                 int64_t bucket_bytes);

// The workspace of all tensors of a round together. REQUIRES: its moves are indices of plans.
int64_t WorkspaceOf(const Round& round, absl::Span<const Plan> plans);

// Sets busiest_ns of each round. `loads`: of the plans, without any that are added.
void CountRounds(PlanLoads& loads, std::vector<Round>* rounds);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_ROUNDS_H_
