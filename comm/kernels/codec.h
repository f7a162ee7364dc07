// Codecs: for each real dtype the stored type, Decode to the type in which values are computed, and
// Encode from any such type. Casts and reductions use them, on the CPU and in CUDA kernels.
//
//   using Codec = decltype(CodecFor<kCodeBF16>());
//   float x = Codec::Decode(uint16_t{0x3f80});   // 1.0
//   uint16_t y = Codec::Encode(1.00390625);      // 0x3f80; rounded once from any type
//
// The codec of a complex dtype only names that of its components (Component); f4e2m1 has none.
// Decode accepts any bits; nothing returns an error. The thread must be in the default
// floating-point mode (float_environment.h). Compile with -ffp-contract=off (nvcc: --fmad=false).
#ifndef MESHIFT_COMM_KERNELS_CODEC_H_
#define MESHIFT_COMM_KERNELS_CODEC_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/kernels/codes.h"
#include "comm/kernels/host_device.h"
#include "comm/kernels/small_float.h"
#include "comm/kernels/strict_math.h"

namespace meshift {

template <typename T>
MESHIFT_HOST_DEVICE constexpr bool IsNan(T value) {
  return value != value;  // NOLINT(misc-redundant-expression)
}

// `value` as f32, rounded to odd: toward zero, with the last bit set if the result is inexact. Then
// rounding the result to a format of at most 22 digits gives the same as rounding `value` (Boldo
// and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
MESHIFT_HOST_DEVICE inline float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  bits -= std::fabs(back) > std::fabs(value) ? 1 : 0;
  bits |= back != value ? 1 : 0;  // NaN stays one
  return std::bit_cast<float>(bits);
}

// An integer as f64, rounded to odd: exact below 2^53, else to a multiple of 2^11.
MESHIFT_HOST_DEVICE inline double RoundToOdd(uint64_t value) {
  constexpr uint64_t kDropped = (1 << 11) - 1;
  if (value >> 53 != 0 && (value & kDropped) != 0) value = (value & ~kDropped) | (kDropped + 1);
  return static_cast<double>(value);
}
MESHIFT_HOST_DEVICE inline double RoundToOdd(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  return value < 0 ? -RoundToOdd(-bits) : RoundToOdd(bits);
}

struct BoolCodec {
  using Stored = uint8_t;
  MESHIFT_HOST_DEVICE static bool Decode(Stored bits) { return bits != 0; }
  template <typename V>
  MESHIFT_HOST_DEVICE static Stored Encode(V value) {
    return value != V{0} ? 1 : 0;
  }
};

template <typename Int>
struct IntCodec {
  using Stored = Int;
  MESHIFT_HOST_DEVICE static Int Decode(Stored bits) { return bits; }
  template <typename V>
  MESHIFT_HOST_DEVICE static Stored Encode(V value) {
    if constexpr (std::is_floating_point_v<V>) {
      // Compare with the largest value plus 1, a power of two: unlike the largest value, it is
      // always exact as a float.
      constexpr int kDigits = std::numeric_limits<Int>::digits;
      constexpr V kEnd = 2 * static_cast<V>(uint64_t{1} << (kDigits - 1));
      if (value >= kEnd) return std::numeric_limits<Int>::max();
      if (std::is_signed_v<Int> && value < -kEnd) return std::numeric_limits<Int>::min();
      if (!std::is_signed_v<Int> && value < 0) return 0;
      return IsNan(value) ? 0 : static_cast<Int>(value);
    } else {
      return static_cast<Int>(value);
    }
  }
};

template <typename FormatT>
struct SmallCodec {
  using Format = FormatT;
  using Stored = typename Format::Bits;
  using Acc = float;
  static constexpr Stored kSignBit = Format::kSignBit;
  // The largest magnitude that is not NaN: infinity if the format has it.
  static constexpr Stored kLargest = Format::kNaN == Format::kMagnitude
                                         ? static_cast<Stored>(Format::kMaxFinite)
                                         : static_cast<Stored>(Format::kBeyond);
  static constexpr Stored kMaxFinite = Format::kMaxFinite;
  static constexpr Stored kNaN = Format::kNaN;
  MESHIFT_HOST_DEVICE static float Decode(Stored bits) { return Format::ToFloat(bits); }
  template <typename V>
  MESHIFT_HOST_DEVICE static Stored Encode(V value) {
    if constexpr (std::is_same_v<V, double>) {
      return Format::FromFloat(RoundToOdd(value));
    } else if constexpr (std::is_integral_v<V> && sizeof(V) == 8) {
      return Format::FromFloat(RoundToOdd(RoundToOdd(value)));
    } else if constexpr (std::is_integral_v<V> && sizeof(V) == 4) {
      return Format::FromFloat(RoundToOdd(static_cast<double>(value)));
    } else {
      return Format::FromFloat(static_cast<float>(value));  // exact
    }
  }
};

template <typename T, typename BitsT, BitsT kInfinity>
struct WideCodec {
  using Stored = BitsT;
  using Acc = T;
  static constexpr Stored kSignBit = static_cast<Stored>(1) << (8 * sizeof(Stored) - 1);
  static constexpr Stored kLargest = kInfinity;
  static constexpr Stored kMaxFinite = kInfinity - 1;
  // Infinity plus the quiet bit, the highest bit of the mantissa: half of the lowest exponent bit.
  static constexpr Stored kNaN = kInfinity | ((kInfinity & (~kInfinity + 1)) >> 1);
  MESHIFT_HOST_DEVICE static T Decode(Stored bits) { return std::bit_cast<T>(bits); }
  template <typename V>
  MESHIFT_HOST_DEVICE static Stored Encode(V value) {
    const auto result = static_cast<T>(value);
    const auto bits = std::bit_cast<BitsT>(result);
    return IsNan(result) ? kNaN : bits;
  }
};

template <typename Part>
struct ComplexCodec {
  using Component = Part;
};

using F32Codec = WideCodec<float, uint32_t, 0x7f800000>;
using F64Codec = WideCodec<double, uint64_t, 0x7ff0000000000000>;

// The codec of a dtype; none for f4e2m1.
template <int kDType>
constexpr auto CodecFor() {
  // clang-format off
  if constexpr (kDType == kCodeBool) { return BoolCodec(); }
  else if constexpr (kDType == kCodeI8) { return IntCodec<int8_t>(); }
  else if constexpr (kDType == kCodeI16) { return IntCodec<int16_t>(); }
  else if constexpr (kDType == kCodeI32) { return IntCodec<int32_t>(); }
  else if constexpr (kDType == kCodeI64) { return IntCodec<int64_t>(); }
  else if constexpr (kDType == kCodeU8) { return IntCodec<uint8_t>(); }
  else if constexpr (kDType == kCodeU16) { return IntCodec<uint16_t>(); }
  else if constexpr (kDType == kCodeU32) { return IntCodec<uint32_t>(); }
  else if constexpr (kDType == kCodeU64) { return IntCodec<uint64_t>(); }
  else if constexpr (kDType == kCodeF16) { return SmallCodec<F16>(); }
  else if constexpr (kDType == kCodeBF16) { return SmallCodec<BF16>(); }
  else if constexpr (kDType == kCodeF32) { return F32Codec(); }
  else if constexpr (kDType == kCodeF64) { return F64Codec(); }
  else if constexpr (kDType == kCodeF8E4M3) { return SmallCodec<F8E4M3>(); }
  else if constexpr (kDType == kCodeF8E5M2) { return SmallCodec<F8E5M2>(); }
  else if constexpr (kDType == kCodeC64) { return ComplexCodec<F32Codec>(); }
  else if constexpr (kDType == kCodeC128) { return ComplexCodec<F64Codec>(); }
  // clang-format on
}

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_CODEC_H_
