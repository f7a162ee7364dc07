// Casts arrays of elements on the CPU. placement/cast.h defines the results: rounded once, whatever
// the two dtypes are.
//
//   MESHIFT_ASSIGN_OR_RETURN(CastFunction cast, CastFunctionOf(DType::kBF16, DType::kF32));
//   cast(in, out, 4096);                   // 4096 contiguous elements
//
// In a cast to another float dtype NaN becomes the positive quiet NaN without payload (f8e4m3: its
// positive NaN), in each component of a complex number. A cast to the same dtype copies the bytes
// (for f4e2m1 the count must be even). Counts are in elements. A CastFunction checks nothing.
#ifndef MESHIFT_COMM_KERNELS_CAST_H_
#define MESHIFT_COMM_KERNELS_CAST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "meshift/dtype.h"

namespace meshift {

// Casts `count` elements at `src` to `dst`, which need no alignment and must not overlap. Threads
// may cast parts of an array at the same time.
using CastFunction = void (*)(const void* src, void* dst, int64_t count);

// INVALID_ARGUMENT if CheckCast fails.
absl::StatusOr<CastFunction> CastFunctionOf(DType from, DType to);
// The same, for a call of an engine. INVALID_ARGUMENT also for a negative count, a null address of
// elements, and f4e2m1, whose only cast is a copy.
absl::StatusOr<CastFunction> CheckedCast(const void* src, DType from, const void* dst, DType to,
                                         int64_t count);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_CAST_H_
