// f4e2m1 as programs see it: two elements to a byte, which is moved as it is. A tensor of f4e2m1 is
// one of u8 whose last dim is half as long; no sharding cuts a byte, so that boxes, messages and
// counts of bytes stay the same.
//
//   PlanOfBytes(plan);                      // f4e2m1[8,6] -> u8[8,3], in every step
//   StridesOfBytes({8, 6}, {12, 1});        // {6, 1}
#ifndef MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_
#define MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// REQUIRES: the plan's source is f4e2m1. INVALID_ARGUMENT where a step has another dtype.
absl::StatusOr<Plan> PlanOfBytes(const Plan& plan);

// Strides in elements become strides in bytes; empty ones stay so. INVALID_ARGUMENT where an
// element is not beside its neighbour in the last dim, or another stride is odd.
absl::StatusOr<Shape> StridesOfBytes(const Shape& shape, const Shape& strides);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_
