// The right value of one element computed from its contributions, and the bound for an engine's
// result. Private to //testing.
//
//   const Expected sum = ExpectedSum<F32>({1, 2, 3}, /*divisor=*/1, /*operations=*/3);
//   IsWithin(sum, 6);              // and nothing else: small integers are exact in any order
#ifndef MESHIFT_TESTING_GIVEN_VALUE_H_
#define MESHIFT_TESTING_GIVEN_VALUE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "testing/number.h"

namespace meshift::testkit {

// Wider than every dtype, so that the reference's own error is negligible.
using Real = long double;

// The value, and the largest error of any order of evaluation.
struct Expected {
  Real value = 0;
  Real bound = 0;
  bool may_overflow = false;  // some order has an infinite or NaN intermediate
};

// x = m * 2^exponent with an odd m of `bits` bits; bits is 0 for zero, infinities and NaN.
struct Significand {
  int bits = 0;
  int exponent = 0;
};
inline Significand SignificandOf(double x) {
  if (x == 0 || !std::isfinite(x)) return {};
  int exponent = 0;
  const auto m = static_cast<uint64_t>(std::ldexp(std::abs(std::frexp(x, &exponent)), 53));
  const int zeros = std::countr_zero(m);
  return {53 - zeros, exponent - 53 + zeros};
}

template <typename T>
Real LargestOf() {
  return T::Decode(T::kMaxBits);
}

// The relative error of `operations` consecutive roundings, each by at most half an ulp.
template <typename T>
Real RelativeError(int64_t operations) {
  const Real half_ulp = std::ldexp(Real{1}, -T::kMantissaBits - 1);
  return std::expm1(static_cast<Real>(operations) * std::log1p(half_ulp)) +
         static_cast<Real>(operations) * std::numeric_limits<Real>::epsilon();
}

// The expected sum, divided by `divisor`.
template <typename T>
Expected ExpectedSum(absl::Span<const double> terms, int64_t divisor, int64_t operations) {
  const auto d = static_cast<Real>(divisor);
  Real sum = 0;
  Real magnitude = 0;  // sum over the finite terms
  int least = std::numeric_limits<int>::max();
  bool divides = true;  // every term is a whole multiple of the divisor, times a power of two
  for (const double term : terms) {
    sum += term;
    if (!std::isfinite(term) || term == 0) continue;
    magnitude += std::abs(static_cast<Real>(term));
    least = std::min(least, SignificandOf(term).exponent);
    divides = divides && std::fma(term / d, d, -static_cast<Real>(term)) == 0;
  }
  Expected expected{.value = sum / d};
  const Real relative = RelativeError<T>(operations);
  const Real largest = LargestOf<T>();
  expected.may_overflow = magnitude * (1 + relative) > largest;
  // All partial sums are multiples of the least bit, and fit. A quotient fits too, unless it falls
  // below the least value of the dtype.
  const bool fits =
      magnitude == 0 || magnitude <= std::ldexp(Real{1}, least + T::kMantissaBits + 1);
  const bool stays = magnitude == 0 || std::ldexp(Real{1}, least) / d >= T::Tiny();
  if (fits && magnitude <= largest && (divisor == 1 || (divides && stays))) return expected;
  expected.bound = relative * magnitude / d + static_cast<Real>(operations) * T::Tiny();
  return expected;
}

template <typename T>
Expected ExpectedProduct(absl::Span<const double> factors, int64_t operations) {
  Real product = 1;
  // The largest and smallest products of some of the finite factors.
  Real most = 1;
  Real least = 1;
  int bits = 0;
  int exponents = 0;  // sum of the exponents of least bits below 1
  bool finite = true;
  for (const double factor : factors) {
    product *= factor;
    finite = finite && std::isfinite(factor);
    if (!std::isfinite(factor) || factor == 0) continue;
    const Real magnitude = std::abs(static_cast<Real>(factor));
    most *= std::max(magnitude, Real{1});
    least *= std::min(magnitude, Real{1});
    const Significand significand = SignificandOf(factor);
    if (significand.bits > 1) bits += significand.bits;
    exponents += std::min(significand.exponent, 0);
  }
  Expected expected{.value = product};
  const Real relative = RelativeError<T>(operations);
  expected.may_overflow = !(most * (1 + relative) <= LargestOf<T>());
  if (finite && (!std::isfinite(most) || least < std::numeric_limits<Real>::min())) {
    // The reference cannot follow this range: any result may be right.
    return {.value = 0, .bound = std::numeric_limits<Real>::infinity(), .may_overflow = true};
  }
  const bool fits = bits <= T::kMantissaBits + 1 && std::ldexp(Real{1}, exponents) >= T::Tiny();
  if (fits && !expected.may_overflow) return expected;
  // A product below the normal numbers loses up to Tiny(), times the factors after it.
  expected.bound = relative * std::abs(product) + static_cast<Real>(operations) * T::Tiny() * most;
  return expected;
}

inline bool IsWithin(const Expected& expected, Real got) {
  if (expected.may_overflow && !std::isfinite(got)) return true;
  if (std::isnan(expected.value)) return std::isnan(got);
  if (std::isinf(expected.value)) return got == expected.value;
  return std::abs(got - expected.value) <= expected.bound;
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_VALUE_H_
