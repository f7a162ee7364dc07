// Converts plans of f4e2m1 tensors to plans of bytes. A byte holds two elements, so programs see a
// u8 tensor whose last dim is half as long. No sharding cuts a byte, so the bytes of boxes and
// messages stay the same. Internal to comm/program. Pure functions.
//
//   PlanOfBytes(plan);                      // f4e2m1[8,6] -> u8[8,3], in every step
//   StridesOfBytes({8, 6}, {12, 1});        // {6, 1}
#ifndef MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_
#define MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// Keeps the fingerprint. INVALID_ARGUMENT if the source, the target or a step has another dtype.
absl::StatusOr<Plan> PlanOfBytes(const Plan& plan);

// Converts strides from elements to bytes; `shape` is in elements. A wrong number of strides stays
// as it is, for Lower() to refuse; an empty list means row-major. INVALID_ARGUMENT if the last dim
// is not contiguous or another stride is odd. Dims of size 1 and tensors without elements may have
// any strides.
absl::StatusOr<Shape> StridesOfBytes(const Shape& shape, const Shape& strides);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PACKED_PLAN_H_
