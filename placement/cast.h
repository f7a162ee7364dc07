// Which changes of dtype there are, and which of them lose nothing.
//
//   CheckCast(DType::kF32, DType::kBF16);        // OK; f4e2m1 and complex -> real are refused
//   IsExactCast(DType::kBF16, DType::kF32);      // true: every value is kept
//   DefaultReduceDType(DType::kBF16, DType::kF32);  // bf16
//
// What a cast does: to a float, round to nearest even (beyond the largest value: as
// comm/kernels/small_float.h says, infinity or the NaN of f8e4m3); NaN becomes the canonical NaN;
// a float to an integer truncates toward zero, saturates, and NaN gives 0; an integer to an integer
// is taken modulo 2^bits (it keeps its low bits, and its sign where it gets more of them);
// anything but zero to bool is true (NaN too); a real number to a complex one has imaginary part
// +0.
#ifndef MESHIFT_PLACEMENT_CAST_H_
#define MESHIFT_PLACEMENT_CAST_H_

#include "absl/status/status.h"
#include "meshift/dtype.h"

namespace meshift {

// OK where values of `from` may become values of `to`; else INVALID_ARGUMENT with the reason.
absl::Status CheckCast(DType from, DType to);

// Whether every value of `from` is a value of `to` (of NaN only that it is one). A cast that is not
// exact rounds. REQUIRES: CheckCast is OK.
bool IsExactCast(DType from, DType to);

// In which dtype sums of `wire` are formed: f32 for 16- and 8-bit floats, else `wire` itself.
DType AccumulateDType(DType wire);

// The dtype of the reductions on the way from `from` to `to` where the caller names none: `from`
// where the cast to `to` is exact, so that sums are rounded once; else AccumulateDType(from), so
// that only the cast that follows rounds to a narrower dtype than sums are formed in.
DType DefaultReduceDType(DType from, DType to);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_CAST_H_
