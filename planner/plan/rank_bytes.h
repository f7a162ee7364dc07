// What one rank sends in a step of a plan.
//
//   BytesSent(plan, 0, 3);               // of rank 3 in step 0; at most steps()[0].bytes_sent
//
// By the boxes of the ranks, as docs/plan_format.md counts ("What each step does"). The executor
// counts the same from the calls that it makes.
#ifndef MESHIFT_PLANNER_PLAN_RANK_BYTES_H_
#define MESHIFT_PLANNER_PLAN_RANK_BYTES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "meshift/plan.h"

namespace meshift {

// 0 for a rank that is not in the mesh of the step, or of a crossing in neither. Takes time
// proportional to the members of the step's group; of a crossing, to all its messages, so that who
// asks for many ranks asks Crossing (planner/plan/crossing.h) instead. REQUIRES: `plan` is right
// (the verifier passes it), and has the step.
int64_t BytesSent(const Plan& plan, int step, int64_t rank);

// The messages that one rank sends in an all_to_all, a permute or an exchange on one mesh, empty
// ones left out. REQUIRES: as BytesSent.
void ForEachMessage(const Plan& plan, int step, int64_t rank,
                    absl::FunctionRef<void(int64_t to, int64_t bytes)> fn);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_RANK_BYTES_H_
