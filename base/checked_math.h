// Arithmetic on int64_t that detects overflow or saturates at INT64_MAX, and rounding of quotients.
//
//   if (!CheckedMul(rows, row_bytes, &bytes)) return InvalidArgument("...");
//
// REQUIRES is not checked: a result is meaningless if its condition does not hold.
#ifndef MESHIFT_BASE_CHECKED_MATH_H_
#define MESHIFT_BASE_CHECKED_MATH_H_

#include <cstdint>

namespace meshift {

// *out = a * b; returns false (and *out is unspecified) on overflow.
inline bool CheckedMul(int64_t a, int64_t b, int64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// *out = a + b; returns false (and *out is unspecified) on overflow.
inline bool CheckedAdd(int64_t a, int64_t b, int64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

// ceil(a / b). REQUIRES: a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The smallest multiple of b that is >= a. REQUIRES: a >= 0, b > 0, no overflow.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// a * b / c, rounded up, without overflow in between; saturates at INT64_MAX.
// REQUIRES: a, b >= 0, c > 0.
inline int64_t MulDivCeil(int64_t a, int64_t b, int64_t c) {
  int64_t small = 0;
  if (CheckedMul(a, b, &small)) return CeilDiv(small, c);
  const auto product = static_cast<__int128>(a) * b;
  const __int128 quotient = product / c + (product % c != 0 ? 1 : 0);
  return quotient > INT64_MAX ? INT64_MAX : static_cast<int64_t>(quotient);
}

// a * b / c rounded down, saturating at INT64_MAX. REQUIRES: a, b >= 0, c > 0.
inline int64_t MulDivFloor(int64_t a, int64_t b, int64_t c) {
  int64_t small = 0;
  if (CheckedMul(a, b, &small)) return small / c;
  const __int128 quotient = static_cast<__int128>(a) * b / c;
  return quotient > INT64_MAX ? INT64_MAX : static_cast<int64_t>(quotient);
}

// a + b, saturating at INT64_MAX. REQUIRES: a, b >= 0.
inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : INT64_MAX;
}

// a * b, saturating at INT64_MAX. REQUIRES: a, b >= 0.
inline int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t product = 0;
  return CheckedMul(a, b, &product) ? product : INT64_MAX;
}

}  // namespace meshift

#endif  // MESHIFT_BASE_CHECKED_MATH_H_
