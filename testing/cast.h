// The test kit's own casts: loads a value of any dtype as a Number, and stores a Number as a value
// of any dtype, rounded once. Shares no code with placement/cast.cc and comm/kernels, so that both
// cannot have the same bug.
//
//   const NumberOps& bf16 = NumberOpsOf(DType::kBF16);
//   bf16.store(f32.load(in, i), out, i);              // one cast
//   IsExact(DType::kF16, DType::kF32);                // true
//
// To a float: round to nearest even; values beyond the largest become infinity (e4m3: NaN). Float
// to integer: toward zero, saturated, NaN gives 0. Integer to integer: modulo 2^bits. To bool:
// whether it is not zero. Real to complex: imaginary part +0. NaN: canonical.
#ifndef MESHIFT_TESTING_CAST_H_
#define MESHIFT_TESTING_CAST_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "meshift/dtype.h"
#include "testing/number.h"

namespace meshift::testkit {

// Holds any value of any dtype except f4e2m1 exactly. Drops NaN's bits.
struct Number {
  bool is_integer = true;  // or bool; else a float or complex number
  Int128 integer = 0;
  double re = 0, im = 0;
};

// Equal values. NaN equals NaN, and the signs of zeros do not matter.
bool SameNumber(const Number& a, const Number& b);

// Rounds `value` to a double such that rounding that to at most 51 bits gives the same as rounding
// `value` directly: bits that do not fit set the lowest bit ("round to odd").
inline double OddDouble(Int128 value) {
  const bool negative = value < 0;
  Uint128 magnitude = negative ? -static_cast<Uint128>(value) : static_cast<Uint128>(value);
  int shift = 0;
  while (magnitude >> shift >= static_cast<Uint128>(1) << 53) ++shift;
  auto kept = static_cast<uint64_t>(magnitude >> shift);
  if (kept != 0 && static_cast<Uint128>(kept) << shift != magnitude) kept |= 1;
  const double result = std::ldexp(static_cast<double>(kept), shift);
  return negative ? -result : result;
}

template <typename T>
Number ToNumber(typename T::Bits bits) {
  if constexpr (T::kFamily == Family::kComplex) {
    const typename T::Wide wide = T::Decode(bits);
    return {.is_integer = false, .re = wide.re, .im = wide.im};
  } else if constexpr (T::kFamily == Family::kFloat) {
    return {.is_integer = false, .re = T::Decode(bits)};
  } else {
    return {.integer = static_cast<Int128>(T::Decode(bits))};
  }
}

template <typename T>
typename T::Bits FromNumber(const Number& number) {
  using Bits = typename T::Bits;
  if constexpr (T::kFamily == Family::kComplex) {
    using Part = typename T::Part;
    Number re = number;
    re.im = 0;
    return {FromNumber<Part>(re), FromNumber<Part>({.is_integer = false, .re = number.im})};
  } else if constexpr (T::kFamily == Family::kFloat) {
    if (!number.is_integer) return T::Encode(number.re);
    if constexpr (sizeof(Bits) == 8) return T::Encode(static_cast<double>(number.integer));
    return T::Encode(OddDouble(number.integer));
  } else if constexpr (T::kFamily == Family::kBool) {
    const bool zero = number.is_integer ? number.integer == 0 : number.re == 0;
    return zero ? 0 : 1;
  } else {
    if (number.is_integer) return static_cast<Bits>(number.integer);
    if (std::isnan(number.re)) return 0;
    const auto least = static_cast<Int128>(T::Decode(T::kMin));
    const auto most = static_cast<Int128>(T::Decode(T::kMax));
    // Below 2^64 in magnitude, the truncated double fits an Int128.
    if (number.re >= 0x1p64) return T::kMax;
    if (number.re <= -0x1p64) return T::kMin;
    const auto value = static_cast<Int128>(number.re);
    return value > most ? T::kMax : value < least ? T::kMin : static_cast<Bits>(value);
  }
}

// The operations of one dtype, as function pointers. `index` counts its elements.
struct NumberOps {
  DType dtype;
  int bytes;
  bool is_signed;
  bool is_integer;  // or bool
  int digits;       // precision in bits, without the sign
  double largest;   // finite magnitude
  Number (*load)(const std::byte* from, int64_t index);
  void (*store)(const Number& number, std::byte* to, int64_t index);
  Number (*round)(const Number& number);  // the value that store() writes
  // The largest k such that 0, divisor, ..., k * divisor are all values of the dtype.
  uint64_t (*multiples)(int64_t divisor);
  // A finite value, chosen by a hash.
  Number (*any)(uint64_t w);
  // A number at which a cast to this dtype has an edge case: a value, the middle of two values, an
  // end of the range, a least magnitude.
  Number (*landmark)(uint64_t w);
  // Writes a value near `landmark`, or any other value; with `special` also NaN with payloads and
  // infinities.
  void (*store_probe)(const Number& landmark, bool special, uint64_t w, std::byte* to,
                      int64_t index);
  // Writes a value other than `number` that `back` rounds to `number`, if `w` leads to one; else
  // writes `number`.
  void (*store_disturbed)(const Number& number, const NumberOps& back, uint64_t w, std::byte* to,
                          int64_t index);
};

// REQUIRES: not f4e2m1.
const NumberOps& NumberOpsOf(DType dtype);

// INVALID_ARGUMENT for casts that do not exist: those of f4e2m1, and complex to real.
absl::Status CheckCastOf(DType from, DType to);

// Whether every value of `from` is a value of `to`. Tries the ends of the range of `from`, its
// least magnitude and its longest mantissa. REQUIRES: CheckCastOf is OK.
bool IsExact(DType from, DType to);

// The default reduce dtype: `from` if its cast to `to` is exact, else f32 for floats of 16 and 8
// bits, and `from` for others.
DType ReduceDTypeOf(DType from, DType to);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CAST_H_
