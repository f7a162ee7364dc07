#include "placement/cast.h"

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

// The values of a real dtype, or of each part of a complex one: integers of `digits` bits without
// the sign, or floats of `digits` significant bits with the exponent of the leading bit in [least,
// greatest]. `least` includes subnormals: it is the exponent of the smallest one.
struct Range {
  bool is_float = false;
  bool is_signed = true;
  int digits = 0;
  int least = 0;
  int greatest = 0;
};

Range RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {.is_signed = false, .digits = 1};
    case DType::kF16:
      return {.is_float = true, .digits = 11, .least = -24, .greatest = 15};
    case DType::kBF16:
      return {.is_float = true, .digits = 8, .least = -133, .greatest = 127};
    case DType::kF32:
    case DType::kC64:
      return {.is_float = true, .digits = 24, .least = -149, .greatest = 127};
    case DType::kF64:
    case DType::kC128:
      return {.is_float = true, .digits = 53, .least = -1074, .greatest = 1023};
    case DType::kF8E4M3:
      return {.is_float = true, .digits = 4, .least = -9, .greatest = 8};
    case DType::kF8E5M2:
      return {.is_float = true, .digits = 3, .least = -16, .greatest = 15};
    case DType::kF4E2M1:
      return {.is_float = true, .digits = 2, .least = -1, .greatest = 2};
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return {.is_signed = false, .digits = BitWidth(dtype)};
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return {.digits = BitWidth(dtype) - 1};
  }
  return {};
}

bool HasInfinity(DType dtype) {
  return dtype != DType::kF8E4M3 && dtype != DType::kF4E2M1 && RangeOf(dtype).is_float;
}

}  // namespace

absl::Status CheckCast(DType from, DType to) {
  if (from == to) return absl::OkStatus();
  for (const DType dtype : {from, to}) {
    if (dtype != DType::kF4E2M1) continue;
    return InvalidArgument(
        "a cast from {} to {} is refused: f4e2m1 has no value without its block scales", Name(from),
        Name(to));
  }
  if (IsComplex(from) && !IsComplex(to)) {
    return InvalidArgument("a cast from {} to {} is refused: it would drop the imaginary part",
                           Name(from), Name(to));
  }
  return absl::OkStatus();
}

bool IsExactCast(DType from, DType to) {
  if (from == to) return true;
  const Range a = RangeOf(from);
  const Range b = RangeOf(to);
  if (!a.is_float && !b.is_float) {
    if (to == DType::kBool) return false;
    return a.is_signed && !b.is_signed ? false : a.digits <= b.digits;
  }
  if (!b.is_float) return false;
  // The leading bit of an integer of n bits is at most bit n - 1, except for the lowest signed one,
  // -2^n: bit n.
  if (!a.is_float) {
    return a.digits <= b.digits && a.digits - (a.is_signed ? 0 : 1) <= b.greatest;
  }
  return a.digits <= b.digits && a.least >= b.least && a.greatest <= b.greatest &&
         (!HasInfinity(from) || HasInfinity(to));
}

DType AccumulateDType(DType wire) {
  switch (wire) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return DType::kF32;
    default:
      return wire;
  }
}

DType DefaultReduceDType(DType from, DType to) {
  return IsExactCast(from, to) ? from : AccumulateDType(from);
}

}  // namespace meshift
