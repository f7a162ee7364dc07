// Conversions of 16-bit and 8-bit floats to f32, and from f32 with round to nearest even.
//
//   float x = F16::ToFloat(0x3c00);          // 1.0
//   uint16_t y = BF16::FromFloat(1.00390625f);  // 0x3f80, the even one of two neighbours
//
// ToFloat is exact. In FromFloat NaN becomes the canonical (positive, quiet) NaN of the format, and
// a finite value that rounds beyond the largest becomes infinity. f8e4m3 is OCP's E4M3 and has no
// infinity: such values, and infinity, become NaN (the non-saturating mode). Subnormals are kept,
// if the thread is in the default floating-point mode (float_environment.h). The functions do not
// branch, so loops over them vectorise.
#ifndef MESHIFT_COMM_KERNELS_SMALL_FLOAT_H_
#define MESHIFT_COMM_KERNELS_SMALL_FLOAT_H_

#include <bit>
#include <cstdint>

#include "comm/kernels/host_device.h"
#include "comm/kernels/strict_math.h"

namespace meshift {

// A format with a sign bit, `kE` exponent bits and `kM` mantissa bits. `kHasInf`: infinity and NaN
// as in IEEE 754; else the largest exponent has finite values, and only a magnitude of all ones is
// NaN.
template <typename BitsT, int kE, int kM, bool kHasInf>
struct SmallFloat {
  using Bits = BitsT;
  static constexpr int kBias = (1 << (kE - 1)) - 1;
  static constexpr Bits kSignBit = static_cast<Bits>(1 << (kE + kM));
  static constexpr Bits kMagnitude = kSignBit - 1;
  // The smallest magnitude that is not finite: infinity, or NaN if the format has no infinity.
  static constexpr Bits kBeyond =
      kHasInf ? static_cast<Bits>(((1 << kE) - 1) << kM) : static_cast<Bits>(kMagnitude);
  static constexpr Bits kMaxFinite = kBeyond - 1;
  static constexpr Bits kNaN =
      kHasInf ? static_cast<Bits>(kBeyond | (1 << (kM - 1))) : static_cast<Bits>(kMagnitude);

  MESHIFT_HOST_DEVICE static float ToFloat(Bits bits) {
    const int32_t magnitude = bits & kMagnitude;
    const uint32_t sign = static_cast<uint32_t>(bits & kSignBit) << (31 - kE - kM);
    int32_t f = magnitude << (23 - kM);
    if constexpr (kE < 8) {
      // Subnormals: set the exponent of the smallest normal value, which adds an implicit leading
      // 1; the subtraction removes the 1 and normalises.
      constexpr int32_t kRebias = (127 - kBias) << 23;
      constexpr int32_t kOne = kRebias + (1 << 23);
      const float subnormal = std::bit_cast<float>(f + kOne) - std::bit_cast<float>(kOne);
      const int32_t special = f | 0x7f800000;
      const int32_t normal = f + kRebias;
      f = magnitude < (1 << kM) ? std::bit_cast<int32_t>(subnormal) : normal;
      f = magnitude > kMaxFinite ? special : f;
    }
    return std::bit_cast<float>(static_cast<uint32_t>(f) | sign);
  }

  MESHIFT_HOST_DEVICE static Bits FromFloat(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto f = static_cast<int32_t>(bits & 0x7fffffff);
    constexpr int kShift = 23 - kM;
    constexpr int32_t kRebias = (127 - kBias) << 23;
    // Round to nearest even: add half a unit minus one bit, plus that bit if the last bit is odd.
    const uint32_t round = (1U << (kShift - 1)) - 1 + ((bits >> kShift) & 1);
    auto magnitude = static_cast<int32_t>((static_cast<uint32_t>(f - kRebias) + round) >> kShift);
    if constexpr (kE < 8) {
      // Subnormals: the sum's unit in the last place is the format's smallest value, so the
      // addition rounds.
      constexpr int32_t kAdd = (127 + 24 - kBias - kM) << 23;
      const float sum = std::bit_cast<float>(f) + std::bit_cast<float>(kAdd);
      const int32_t subnormal = std::bit_cast<int32_t>(sum) - kAdd;
      magnitude = f < kRebias + (1 << 23) ? subnormal : magnitude;
    }
    magnitude = magnitude > kBeyond ? static_cast<int32_t>(kBeyond) : magnitude;
    const auto sign = static_cast<int32_t>((bits >> (31 - kE - kM)) & kSignBit);
    const bool is_nan = f > 0x7f800000 || (!kHasInf && magnitude == kBeyond);
    return static_cast<Bits>(is_nan ? static_cast<int32_t>(kNaN) : (magnitude | sign));
  }
};

using F16 = SmallFloat<uint16_t, 5, 10, true>;
using BF16 = SmallFloat<uint16_t, 8, 7, true>;
using F8E5M2 = SmallFloat<uint8_t, 5, 2, true>;
using F8E4M3 = SmallFloat<uint8_t, 4, 3, false>;

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_SMALL_FLOAT_H_
