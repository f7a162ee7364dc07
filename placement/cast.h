// Rules of casts between dtypes: which are allowed, which are exact, and the dtype of sums.
//
//   CheckCast(DType::kF32, DType::kBF16);        // OK; see CheckCast for the refused ones
//   IsExactCast(DType::kBF16, DType::kF32);      // true: every value is kept
//   DefaultReduceDType(DType::kBF16, DType::kF32);  // bf16
//
// comm/kernels/cast.h does the casts. Internal to Meshift. Pure functions; safe for concurrent use.
//
// Meaning of a cast to another dtype. To a float: round to nearest even; values that round beyond
// the largest become infinity, or the NaN of f8e4m3 (comm/kernels/small_float.h); NaN becomes the
// canonical NaN. Float to integer: truncate toward zero, saturate, NaN gives 0. Integer to integer:
// modulo 2^bits, with sign extension. To bool: anything but zero is true, NaN too. From bool: 0 or
// 1. Real to complex: the imaginary part is +0. Complex to complex: each part by itself. A cast to
// the same dtype copies the bits.
#ifndef MESHIFT_PLACEMENT_CAST_H_
#define MESHIFT_PLACEMENT_CAST_H_

#include "absl/status/status.h"
#include "meshift/dtype.h"

namespace meshift {

// OK if the cast is allowed; else INVALID_ARGUMENT with the reason. A dtype may be cast to itself.
// Otherwise casts to and from f4e2m1, and from complex to real, are refused.
absl::Status CheckCast(DType from, DType to);

// Whether every value of `from` is a value of `to` (NaN payloads do not count). REQUIRES: CheckCast
// is OK.
bool IsExactCast(DType from, DType to);

// The dtype in which sums of `wire` values are accumulated: f32 for 16- and 8-bit floats, else
// `wire` itself.
DType AccumulateDType(DType wire);

// The default dtype of reductions between `from` and `to`. If the cast to `to` is exact: `from`,
// whose results the cast does not round again. Otherwise AccumulateDType(from), so that results are
// not rounded to a small float before the cast. REQUIRES: CheckCast is OK.
DType DefaultReduceDType(DType from, DType to);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_CAST_H_
