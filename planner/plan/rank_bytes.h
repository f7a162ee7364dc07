// Computes the bytes that one rank sends in one step of a plan.
//
//   BytesSent(plan, 0, 3);               // by rank 3 in step 0; at most steps()[0].bytes_sent
//
// The rules are those of docs/plan_format.md, "What each step does". The executor counts the same
// bytes from the calls that it makes. Pure functions, without errors.
#ifndef MESHIFT_PLANNER_PLAN_RANK_BYTES_H_
#define MESHIFT_PLANNER_PLAN_RANK_BYTES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "meshift/plan.h"

namespace meshift {

// 0 for a local step, and for a rank that is not in the mesh of the step; for a crossing, in
// neither mesh. O(members of the step's group) time; for a crossing O(all its messages), so use
// Crossing (planner/plan/crossing.h) for many ranks. REQUIRES: the verifier accepts `plan`, and
// `plan` has the step.
int64_t BytesSent(const Plan& plan, int step, int64_t rank);

// Calls fn for each non-empty message that `rank` sends. REQUIRES: as BytesSent, and the step is an
// all_to_all, a permute or an exchange on one mesh.
void ForEachMessage(const Plan& plan, int step, int64_t rank,
                    absl::FunctionRef<void(int64_t to, int64_t bytes)> fn);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_RANK_BYTES_H_
