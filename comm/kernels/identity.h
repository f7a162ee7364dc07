// The identity element of each reduction, and functions that fill memory with it.
//
//   FillIdentity(DType::kF32, ReduceOp::kSum, data, 100);  // 100 times -0.0
//
// sum: -0.0 (integers 0). product: 1. min and max: +inf and -inf; for integers the largest and
// smallest value; for bool true and false; for f8e4m3, which has no infinity, the largest and
// smallest finite value. and: all ones (bool: true). or, xor: 0. avg has none: P(avg) keeps its
// value on every coordinate. f4e2m1 has no reductions.
// Counts are in elements; addresses need no alignment.
#ifndef MESHIFT_COMM_KERNELS_IDENTITY_H_
#define MESHIFT_COMM_KERNELS_IDENTITY_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {

// The bytes of one element, padded with 0 to 16. INVALID_ARGUMENT if `op` has no identity or is not
// defined for `dtype`.
absl::StatusOr<std::array<uint8_t, 16>> IdentityOf(DType dtype, ReduceOp op);

// Writes the first `bytes` bytes of `element` (1, 2, 4, 8 or 16) to `data`, `count` times. Checks
// nothing; does nothing if count <= 0.
void FillElements(const std::array<uint8_t, 16>& element, int64_t bytes, void* data, int64_t count);

// Fills `count` elements at `data` with the identity. Errors as those of IdentityOf;
// INVALID_ARGUMENT also for a negative count, and for a null pointer if count > 0.
absl::Status FillIdentity(DType dtype, ReduceOp op, void* data, int64_t count);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_IDENTITY_H_
