// Casts of elements in memory, as placement/cast.h says: rounded once, whatever the two dtypes are.
//
//   MESHIFT_ASSIGN_OR_RETURN(CastFunction cast, CastFunctionOf(DType::kBF16, DType::kF32));
//   cast(in, out, 4096);                   // elements, one behind the other
//
// NaN becomes the positive quiet NaN without payload; of complex numbers each component by itself.
// From a dtype to itself the bytes are copied (f4e2m1: counts are even).
#ifndef MESHIFT_COMM_KERNELS_CAST_H_
#define MESHIFT_COMM_KERNELS_CAST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "meshift/dtype.h"

namespace meshift {

// Casts `count` elements at `src` to `dst`; the two need no alignment and do not overlap. Calls on
// parts of an array may run at once.
using CastFunction = void (*)(const void* src, void* dst, int64_t count);

// INVALID_ARGUMENT where CheckCast refuses.
absl::StatusOr<CastFunction> CastFunctionOf(DType from, DType to);
// The same for a call of an engine, whose arguments it checks too: no negative count, no null
// memory of elements, no f4e2m1, whose only cast is a copy.
absl::StatusOr<CastFunction> CheckedCast(const void* src, DType from, const void* dst, DType to,
                                         int64_t count);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_CAST_H_
