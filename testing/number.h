// The test kit's own definition of every dtype: the number that its bits mean, and how numbers
// combine. Shares no code with the engines, so that both cannot have the same bug.
//
//   F16::Decode(0x3c00)                    // 1.0
//   F16::Encode(1.0 + 1.0 / 2048)          // 0x3c00: round to nearest, ties to even
//   Fold<F16>(ReduceOp::kMax, -0.0, 0.0)   // 0.0
//
// A type T has Bits (the memory representation) and Wide (the type of the oracle's arithmetic):
// double for floats, a pair of them for complex numbers, 128 bits for integers and bool. NaN is
// encoded as the positive quiet NaN without payload; e4m3 (OCP e4m3fn) has no infinity and
// overflows to NaN.
#ifndef MESHIFT_TESTING_NUMBER_H_
#define MESHIFT_TESTING_NUMBER_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "meshift/placement.h"

namespace meshift::testkit {

using Int128 = __int128;
using Uint128 = unsigned __int128;

enum class Family : uint8_t { kBool, kInteger, kFloat, kComplex };

// An IEEE-like float of 1 + kExpBits + kManBits bits.
template <typename BitsT, int kExpBits, int kManBits, bool kHasInf>
struct Float {
  using Bits = BitsT;
  using Wide = double;
  static constexpr Family kFamily = Family::kFloat;
  static constexpr bool kSigned = true;
  static constexpr int kMantissaBits = kManBits;
  static constexpr int kBias = (1 << (kExpBits - 1)) - 1;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (kExpBits + kManBits));
  static constexpr Bits kMantissaMask = static_cast<Bits>((Bits{1} << kManBits) - 1);
  static constexpr Bits kExpMask = static_cast<Bits>(((Bits{1} << kExpBits) - 1) << kManBits);
  // The largest finite magnitude.
  static constexpr Bits kMaxBits =
      kHasInf ? static_cast<Bits>(kExpMask - 1) : static_cast<Bits>(kExpMask | (kMantissaMask - 1));
  static constexpr Bits kInfinity = kHasInf ? kExpMask : kMaxBits;
  static constexpr Bits kNan = kHasInf ? static_cast<Bits>(kExpMask | (Bits{1} << (kManBits - 1)))
                                       : static_cast<Bits>(kExpMask | kMantissaMask);

  static double Decode(Bits bits) {
    if constexpr (sizeof(Bits) == 8) {
      return std::bit_cast<double>(bits);
    } else if constexpr (kExpBits == 8 && kHasInf) {  // f32, and bf16 as its upper half
      return std::bit_cast<float>(static_cast<uint32_t>(uint32_t{bits} << (23 - kManBits)));
    } else {
      const uint64_t sign = (bits & kSign) != 0 ? uint64_t{1} << 63 : 0;
      const Bits magnitude = static_cast<Bits>(bits & ~kSign);
      if (magnitude > kMaxBits) {
        const bool infinite = kHasInf && magnitude == kInfinity;
        const double value = infinite ? std::numeric_limits<double>::infinity()
                                      : std::numeric_limits<double>::quiet_NaN();
        return sign != 0 ? -value : value;
      }
      if ((magnitude & kExpMask) == 0) {
        const double value = magnitude * Tiny();
        return sign != 0 ? -value : value;
      }
      const uint64_t exponent = (magnitude >> kManBits) - kBias + 1023;
      const uint64_t mantissa = uint64_t{static_cast<Bits>(magnitude & kMantissaMask)}
                                << (52 - kManBits);
      return std::bit_cast<double>(sign | exponent << 52 | mantissa);
    }
  }

  // Rounds to nearest, ties to even.
  static Bits Encode(double value) {
    if (std::isnan(value)) return kNan;
    const auto u = std::bit_cast<uint64_t>(value);
    if constexpr (sizeof(Bits) == 8) {
      return u;
    } else if constexpr (sizeof(Bits) == 4) {
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    } else {
      const Bits sign = (u >> 63) != 0 ? kSign : Bits{0};
      const int exponent = static_cast<int>(u >> 52 & 0x7ff) - 1023;
      // Bits of the 53-bit significand that are cut off; a subnormal result keeps fewer.
      const int subnormal = exponent < 1 - kBias ? 1 - kBias - exponent : 0;
      const int cut = 52 - kManBits + subnormal;
      if (cut > 53) return sign;  // less than half of the least magnitude, or zero
      if (exponent > kBias + 1) return Overflow(sign);
      const uint64_t significand = (u & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
      const uint64_t half = uint64_t{1} << (cut - 1);
      const uint64_t rest = significand & ((half << 1) - 1);
      uint64_t kept = significand >> cut;
      if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
      // `kept` includes the leading 1, which adds one to the exponent; so does a carry.
      uint64_t magnitude = kept;
      if (subnormal == 0) magnitude += static_cast<uint64_t>(exponent + kBias - 1) << kManBits;
      if (magnitude > kMaxBits) return Overflow(sign);
      return static_cast<Bits>(sign | static_cast<Bits>(magnitude));
    }
  }

  // The least positive value.
  static constexpr double Tiny() {
    if constexpr (kExpBits == 11) {
      return std::numeric_limits<double>::denorm_min();
    } else {
      double value = 1;
      for (int i = 0; i < kBias - 1 + kManBits; ++i) value /= 2;
      return value;
    }
  }

 private:
  static constexpr Bits Overflow(Bits sign) {
    return kHasInf ? static_cast<Bits>(sign | kInfinity) : kNan;
  }
};

using F64 = Float<uint64_t, 11, 52, true>;
using F32 = Float<uint32_t, 8, 23, true>;
using F16 = Float<uint16_t, 5, 10, true>;
using BF16 = Float<uint16_t, 8, 7, true>;
using F8E4M3 = Float<uint8_t, 4, 3, false>;
using F8E5M2 = Float<uint8_t, 5, 2, true>;

template <typename Int, typename BitsT, typename WideT = Int128, Family kFamilyT = Family::kInteger>
struct Integer {
  using Bits = BitsT;
  using Wide = WideT;
  static constexpr Family kFamily = kFamilyT;
  static constexpr bool kSigned = static_cast<Int>(-1) < static_cast<Int>(0);
  static constexpr Bits kMax = kFamily == Family::kBool
                                   ? Bits{1}
                                   : (kSigned ? static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1)
                                              : static_cast<Bits>(~Bits{0}));
  static constexpr Bits kMin = kSigned ? static_cast<Bits>(kMax + 1) : Bits{0};
  static constexpr Bits kAllOnes = kFamily == Family::kBool ? Bits{1} : static_cast<Bits>(~Bits{0});

  static Wide Decode(Bits bits) { return static_cast<Wide>(static_cast<Int>(bits)); }
  // Wraps.
  static Bits Encode(Wide value) { return static_cast<Bits>(value); }
};

// A bool is one byte. A byte other than 0 and 1 keeps its value, so that it is found wrong.
using Bool = Integer<uint8_t, uint8_t, Int128, Family::kBool>;
using I8 = Integer<int8_t, uint8_t>;
using I16 = Integer<int16_t, uint16_t>;
using I32 = Integer<int32_t, uint32_t>;
using I64 = Integer<int64_t, uint64_t>;
using U8 = Integer<uint8_t, uint8_t>;
using U16 = Integer<uint16_t, uint16_t>;
using U32 = Integer<uint32_t, uint32_t>;
using U64 = Integer<uint64_t, uint64_t>;
using U128 = Integer<Uint128, Uint128, Uint128>;  // 16 bytes that are moved but never computed with

template <typename PartT>
struct Complex {
  using Part = PartT;
  struct Bits {
    typename Part::Bits re, im;
    friend bool operator==(const Bits&, const Bits&) = default;
  };
  struct Wide {
    double re, im;
  };
  static constexpr Family kFamily = Family::kComplex;
  static constexpr bool kSigned = true;
  static constexpr int kMantissaBits = Part::kMantissaBits;

  static Wide Decode(Bits bits) { return {Part::Decode(bits.re), Part::Decode(bits.im)}; }
  static Bits Encode(Wide value) { return {Part::Encode(value.re), Part::Encode(value.im)}; }
  static constexpr double Tiny() { return Part::Tiny(); }
};
using C64 = Complex<F32>;
using C128 = Complex<F64>;

// `a` op `b` in Wide; avg adds. Integers wrap at 128 bits. min and max: -0 < +0, and a NaN wins.
// REQUIRES: T has the op.
template <typename T>
typename T::Wide Fold(ReduceOp op, typename T::Wide a, typename T::Wide b) {
  using Wide = typename T::Wide;
  const bool sum = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  if constexpr (T::kFamily == Family::kComplex) {
    if (sum) return {a.re + b.re, a.im + b.im};
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  } else if constexpr (T::kFamily == Family::kFloat) {
    if (sum) return a + b;
    if (op == ReduceOp::kProduct) return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
    const bool a_is_less = a < b || (a == b && std::signbit(a));
    return a_is_less == (op == ReduceOp::kMin) ? a : b;
  } else {
    if (sum) return static_cast<Wide>(static_cast<Uint128>(a) + static_cast<Uint128>(b));
    switch (op) {
      case ReduceOp::kProduct:
        return static_cast<Wide>(static_cast<Uint128>(a) * static_cast<Uint128>(b));
      case ReduceOp::kMin:
        return b < a ? b : a;
      case ReduceOp::kMax:
        return a < b ? b : a;
      case ReduceOp::kAnd:
        return a & b;
      case ReduceOp::kOr:
        return a | b;
      default:
        return a ^ b;
    }
  }
}

// The identity of an op: sum -0.0 (integers 0), product 1, min and max the largest and the smallest
// value, and all ones, or and xor 0. REQUIRES: T has the op.
template <typename T>
typename T::Bits Identity(ReduceOp op) {
  using Bits = typename T::Bits;
  if constexpr (T::kFamily == Family::kComplex) {
    if (op == ReduceOp::kProduct) return {T::Part::Encode(1), T::Part::Encode(0)};
    return {T::Part::kSign, T::Part::kSign};
  } else if constexpr (T::kFamily == Family::kFloat) {
    switch (op) {
      case ReduceOp::kProduct:
        return T::Encode(1);
      case ReduceOp::kMin:
        return T::kInfinity;
      case ReduceOp::kMax:
        return static_cast<Bits>(T::kSign | T::kInfinity);
      default:
        return T::kSign;
    }
  } else {
    switch (op) {
      case ReduceOp::kProduct:
        return Bits{1};
      case ReduceOp::kMin:
        return T::kMax;
      case ReduceOp::kMax:
        return T::kMin;
      case ReduceOp::kAnd:
        return T::kAllOnes;
      default:
        return Bits{0};
    }
  }
}

// value / divisor; integers truncate toward zero.
template <typename T>
typename T::Wide Quotient(typename T::Wide value, int64_t divisor) {
  if (divisor == 1) return value;
  if constexpr (T::kFamily == Family::kComplex) {
    const auto d = static_cast<double>(divisor);
    return {value.re / d, value.im / d};
  } else if constexpr (T::kFamily == Family::kFloat) {
    return value / static_cast<double>(divisor);
  } else {
    const auto v = static_cast<Int128>(value);
    if (v >= INT32_MIN && v <= INT32_MAX) return static_cast<int64_t>(v) / divisor;
    return static_cast<typename T::Wide>(v / divisor);
  }
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_NUMBER_H_
