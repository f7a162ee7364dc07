// The value that a reduction ignores, and filling memory with it.
//
//   FillIdentity(DType::kF32, ReduceOp::kSum, data, 100);  // 100 times -0.0
//
// sum: -0.0 (integers 0); product: 1; min and max: +inf and -inf, the limits of integers, and for
// f8e4m3, which has no infinity, the largest and the least finite value (so a min of NaN-free
// values is right); and: all ones (bool: true); or, xor: 0. avg has none: P(avg) keeps its value on
// every coordinate.
#ifndef MESHIFT_COMM_KERNELS_IDENTITY_H_
#define MESHIFT_COMM_KERNELS_IDENTITY_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {

// The bytes of one element; those behind the dtype's width are 0. INVALID_ARGUMENT where `op` has
// none or does not take `dtype`.
absl::StatusOr<std::array<uint8_t, 16>> IdentityOf(DType dtype, ReduceOp op);

// Writes `count` times the `bytes` first bytes of `element` to `data`.
void FillElements(const std::array<uint8_t, 16>& element, int64_t bytes, void* data, int64_t count);

// The two together.
absl::Status FillIdentity(DType dtype, ReduceOp op, void* data, int64_t count);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_IDENTITY_H_
