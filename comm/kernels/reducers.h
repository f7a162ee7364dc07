// The arithmetic of reductions on one element: Decode a contribution into the accumulator's type,
// Combine two of these, and Encode the result. For the CPU (reduce.cc) and for CUDA kernels.
//
//   const auto reducer = FloatReducer<SmallCodec<BF16>, Add>();
//   auto total = reducer.Decode(a);
//   total = reducer.Combine(total, reducer.Decode(b));
//   uint16_t result = reducer.Encode(total);
//
// comm/kernels/reduce.h defines the results. Nothing is checked: divisors must be positive, and the
// thread must be in the default floating-point mode (float_environment.h). Compile with
// -ffp-contract=off (nvcc: --fmad=false), and without the options that strict_math.h refuses.
#ifndef MESHIFT_COMM_KERNELS_REDUCERS_H_
#define MESHIFT_COMM_KERNELS_REDUCERS_H_

#include <cstdint>
#include <type_traits>

#include "comm/kernels/codec.h"
#include "comm/kernels/codes.h"
#include "comm/kernels/host_device.h"
#include "comm/kernels/strict_math.h"

namespace meshift {

struct Add {
  template <typename T>
  MESHIFT_HOST_DEVICE static T Combine(T a, T b) {
    return a + b;
  }
};

struct Multiply {
  template <typename T>
  MESHIFT_HOST_DEVICE static T Combine(T a, T b) {
    return a * b;
  }
};

template <typename C, typename Op>
struct FloatReducer {
  using Stored = typename C::Stored;
  using Acc = typename C::Acc;
  MESHIFT_HOST_DEVICE Acc Decode(Stored bits) const { return C::Decode(bits); }
  MESHIFT_HOST_DEVICE Acc Combine(Acc a, Acc b) const { return Op::Combine(a, b); }
  MESHIFT_HOST_DEVICE Stored Encode(Acc value) const { return C::Encode(value); }
};

template <typename C>
struct FloatAverager : FloatReducer<C, Add> {
  using Stored = typename C::Stored;
  using Acc = typename C::Acc;
  MESHIFT_HOST_DEVICE explicit FloatAverager(int64_t by) : divisor(static_cast<Acc>(by)) {}
  MESHIFT_HOST_DEVICE Stored Encode(Acc value) const { return C::Encode(value / divisor); }
  Acc divisor;
};

// Averages with a divisor that is a power of two: multiplying by its inverse gives the same bits.
template <typename C>
struct FloatScaler : FloatReducer<C, Add> {
  using Stored = typename C::Stored;
  using Acc = typename C::Acc;
  MESHIFT_HOST_DEVICE explicit FloatScaler(int64_t by) : factor(1 / static_cast<Acc>(by)) {}
  MESHIFT_HOST_DEVICE Stored Encode(Acc value) const { return C::Encode(value * factor); }
  Acc factor;
};

// Minimum and maximum of floats. Compares integer keys in the order of the floats; the key of NaN
// wins.
template <typename C, bool kMin>
struct FloatExtreme {
  using Stored = typename C::Stored;
  using Acc = std::make_signed_t<Stored>;
  static constexpr Stored kMagnitude = C::kSignBit - 1;
  static constexpr Stored kNaN = C::kNaN;
  // A magnitude of all ones is NaN in every format, so no other value has these keys.
  static constexpr Acc kWinner = static_cast<Acc>(kMin ? C::kSignBit : kMagnitude);
  static constexpr Acc kLargest = static_cast<Acc>(C::kLargest);

  MESHIFT_HOST_DEVICE Acc Decode(Stored bits) const {
    const auto sign_mask = static_cast<Stored>(static_cast<Acc>(bits) >> (8 * sizeof(Acc) - 1));
    const auto key = static_cast<Acc>(bits ^ (sign_mask & kMagnitude));
    const auto magnitude = static_cast<Acc>(bits & kMagnitude);
    return magnitude > kLargest ? kWinner : key;
  }
  MESHIFT_HOST_DEVICE Acc Combine(Acc a, Acc b) const {
    return kMin ? (b < a ? b : a) : (a < b ? b : a);
  }
  MESHIFT_HOST_DEVICE Stored Encode(Acc key) const {
    const auto sign_mask = static_cast<Stored>(key >> (8 * sizeof(Acc) - 1));
    const auto bits = static_cast<Stored>(static_cast<Stored>(key) ^ (sign_mask & kMagnitude));
    return key == kWinner ? kNaN : bits;
  }
};

// Operations on integers; bool is a u8.
template <typename T, OpCode kOp>
struct IntReducer {
  using Stored = T;
  using Acc = T;
  MESHIFT_HOST_DEVICE T Decode(T x) const { return x; }
  MESHIFT_HOST_DEVICE T Combine(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    // Wide enough that small unsigned types are not promoted to int, which would overflow.
    using W = std::conditional_t<sizeof(U) < 4, uint32_t, U>;
    if constexpr (kOp == kCodeProduct) {
      return static_cast<T>(W{static_cast<U>(a)} * static_cast<U>(b));
    } else if constexpr (kOp == kCodeMin) {
      return b < a ? b : a;
    } else if constexpr (kOp == kCodeMax) {
      return a < b ? b : a;
    } else if constexpr (kOp == kCodeAnd) {
      return static_cast<T>(a & b);
    } else if constexpr (kOp == kCodeOr) {
      return static_cast<T>(a | b);
    } else if constexpr (kOp == kCodeXor) {
      return static_cast<T>(a ^ b);
    } else {
      return static_cast<T>(W{static_cast<U>(a)} + static_cast<U>(b));
    }
  }
  MESHIFT_HOST_DEVICE T Encode(T x) const { return x; }
};

template <typename T>
struct IntAverager : IntReducer<T, kCodeSum> {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  MESHIFT_HOST_DEVICE explicit IntAverager(int64_t by) : divisor(static_cast<Wide>(by)) {}
  MESHIFT_HOST_DEVICE T Encode(T x) const { return static_cast<T>(Wide{x} / divisor); }
  Wide divisor;
};

template <typename T>
struct ComplexNumber {
  T re;
  T im;
};

// Products of complex numbers: ac - bd, ad + bc.
template <typename C>
struct ComplexMultiplier {
  using Stored = ComplexNumber<typename C::Stored>;
  using Acc = ComplexNumber<typename C::Acc>;
  MESHIFT_HOST_DEVICE Acc Decode(Stored bits) const {
    return {C::Decode(bits.re), C::Decode(bits.im)};
  }
  MESHIFT_HOST_DEVICE Acc Combine(Acc a, Acc b) const {
    return {Rounded(a.re * b.re) - Rounded(a.im * b.im),
            Rounded(a.re * b.im) + Rounded(a.im * b.re)};
  }
  MESHIFT_HOST_DEVICE Stored Encode(Acc value) const {
    return {C::Encode(value.re), C::Encode(value.im)};
  }
};

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_REDUCERS_H_
