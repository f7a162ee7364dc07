#include "comm/kernels/cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/dtype.h"
#include "placement/cast.h"

namespace meshift {
namespace {

// A reference implementation. Values are long doubles, which represent every value of a real dtype
// exactly; bisection over bit patterns finds the nearest value of a format.
using Real = long double;
static_assert(std::numeric_limits<Real>::digits >= 64);

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity = true;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {5, 10};
    case DType::kBF16:
      return {8, 7};
    case DType::kF8E5M2:
      return {5, 2};
    case DType::kF8E4M3:
      return {4, 3, false};
    case DType::kF32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

uint64_t LowBits(int n) { return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }
uint64_t InfinityOf(const Format& f) { return LowBits(f.exponent_bits) << f.mantissa_bits; }
// The smallest magnitude that is not finite.
uint64_t BeyondOf(const Format& f) {
  return f.has_infinity ? InfinityOf(f) : LowBits(f.exponent_bits + f.mantissa_bits);
}

// The value of a magnitude, as if the exponents beyond the finite values were ordinary ones.
Real MagnitudeOf(const Format& f, uint64_t bits) {
  const auto exponent = static_cast<int>(bits >> f.mantissa_bits);
  const uint64_t mantissa = bits & LowBits(f.mantissa_bits);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const uint64_t digits = exponent > 0 ? mantissa | uint64_t{1} << f.mantissa_bits : mantissa;
  return std::ldexp(static_cast<Real>(digits), std::max(exponent, 1) - bias - f.mantissa_bits);
}

bool IsSignedInteger(DType dtype) { return DType::kI8 <= dtype && dtype <= DType::kI64; }

Real ValueOf(DType dtype, uint64_t bits) {
  if (dtype == DType::kBool) return bits != 0 ? 1 : 0;
  const int width = BitWidth(dtype);
  const bool negative = bits >> (width - 1) != 0;
  if (IsInteger(dtype)) {
    if (!IsSignedInteger(dtype) || !negative) return static_cast<Real>(bits);
    return static_cast<Real>(bits) - std::ldexp(Real{1}, width);
  }
  const Format f = FormatOf(dtype);
  const uint64_t magnitude = bits & LowBits(width - 1);
  Real value = 0;
  if (magnitude < BeyondOf(f)) {
    value = MagnitudeOf(f, magnitude);
  } else if (f.has_infinity && magnitude == BeyondOf(f)) {
    value = std::numeric_limits<Real>::infinity();
  } else {
    return std::numeric_limits<Real>::quiet_NaN();
  }
  return negative ? -value : value;
}

uint64_t NearestFloat(DType dtype, Real value) {
  const Format f = FormatOf(dtype);
  const uint64_t nan = f.has_infinity ? InfinityOf(f) | uint64_t{1} << (f.mantissa_bits - 1)
                                      : LowBits(f.exponent_bits + f.mantissa_bits);
  if (std::isnan(value)) return nan;
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (BitWidth(dtype) - 1) : 0;
  const Real magnitude = std::fabs(value);
  uint64_t low = 0;
  uint64_t high = BeyondOf(f);
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (MagnitudeOf(f, middle) <= magnitude ? low : high) = middle;
  }
  const Real half = (MagnitudeOf(f, low) + MagnitudeOf(f, low + 1)) / 2;  // exact
  if (magnitude > half || (magnitude == half && low % 2 == 1)) ++low;
  return low == BeyondOf(f) && !f.has_infinity ? nan : low | sign;
}

uint64_t NearestInteger(DType dtype, Real value) {
  const int width = BitWidth(dtype);
  const Real end = std::ldexp(Real{1}, IsSignedInteger(dtype) ? width - 1 : width);
  const Real least = IsSignedInteger(dtype) ? -end : 0;
  if (std::isnan(value)) return 0;
  if (value >= end) return LowBits(IsSignedInteger(dtype) ? width - 1 : width);
  if (value <= least) return IsSignedInteger(dtype) ? uint64_t{1} << (width - 1) : 0;
  return static_cast<uint64_t>(static_cast<__int128>(std::trunc(value))) & LowBits(width);
}

// The cast of `bits` from the real dtype `from` to the real dtype `to`.
uint64_t Expected(DType from, uint64_t bits, DType to) {
  const Real value = ValueOf(from, bits);
  if (to == DType::kBool) return value != 0 ? 1 : 0;
  if (IsFloat(to)) return NearestFloat(to, value);
  if (IsFloat(from)) return NearestInteger(to, value);
  return static_cast<uint64_t>(static_cast<__int128>(value)) & LowBits(BitWidth(to));
}

DType ComponentOf(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  return dtype == DType::kC128 ? DType::kF64 : dtype;
}

void StoreBits(uint64_t bits, DType dtype, std::vector<char>* out) {
  const size_t bytes = BitWidth(dtype) / 8;
  out->resize(out->size() + bytes);
  std::memcpy(out->data() + out->size() - bytes, &bits, bytes);
}

uint64_t LoadBits(const char* in, DType dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, in, BitWidth(dtype) / 8);
  return bits;
}

// Casts elements (for complex dtypes, components) with these bit patterns, and compares the
// results. Buffers begin at odd addresses.
void Check(DType from, const std::vector<uint64_t>& patterns, DType to) {
  const DType in = ComponentOf(from);
  const DType out = ComponentOf(to);
  std::vector<char> source(1);
  for (const uint64_t bits : patterns) StoreBits(bits, in, &source);
  const auto count = static_cast<int64_t>(patterns.size()) / (IsComplex(from) ? 2 : 1);
  const int64_t to_bytes = Bytes(to, 1);
  std::vector<char> target(1 + count * to_bytes + 1, 0x5a);
  const auto cast = CastFunctionOf(from, to);
  ASSERT_TRUE(cast.ok()) << cast.status();
  (*cast)(source.data() + 1, target.data() + 1, count);
  const int64_t out_bytes = Bytes(out, 1);
  int wrong = 0;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const bool pads = IsComplex(to) && !IsComplex(from);
    const char* at = target.data() + 1 + static_cast<int64_t>(i) * out_bytes * (pads ? 2 : 1);
    const uint64_t got = LoadBits(at, out);
    const uint64_t want = Expected(in, patterns[i], out);
    const bool imaginary_is_zero = !pads || LoadBits(at + out_bytes, out) == 0;
    if (got == want && imaginary_is_zero) continue;
    if (++wrong > 3) break;
    ADD_FAILURE() << Name(from) << " " << std::hex << patterns[i] << " became " << Name(to) << " "
                  << got << ", not " << want << std::dec << " (value "
                  << static_cast<double>(ValueOf(in, patterns[i])) << ")";
  }
  EXPECT_EQ(target.back(), 0x5a);
}

std::vector<DType> TargetsOf(DType from) {
  std::vector<DType> targets;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto to = static_cast<DType>(i);
    if (to != from && CheckCast(from, to).ok()) targets.push_back(to);
  }
  return targets;
}

class CastKernelTest : public testing::TestWithParam<DType> {};

std::vector<DType> CastSources() {
  std::vector<DType> sources;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (static_cast<DType>(i) != DType::kF4E2M1) sources.push_back(static_cast<DType>(i));
  }
  return sources;
}

// Bit patterns of the wide dtype `from` that are hard to cast to `to`.
std::vector<uint64_t> HardPatterns(DType from, DType to, std::mt19937_64& random) {
  const uint64_t mask = LowBits(BitWidth(from));
  std::vector<uint64_t> patterns;
  const auto add_around = [&](uint64_t bits) {
    for (const uint64_t distance : {0, 1, 2, 3}) {
      patterns.push_back((bits + distance) & mask);
      patterns.push_back((bits - distance) & mask);
    }
  };
  // Patterns around powers of two: edges of integers, and exponents and last bits of floats.
  for (int k = 0; k < BitWidth(from); ++k) {
    add_around(uint64_t{1} << k);
    add_around(~(uint64_t{1} << k));
    add_around(~uint64_t{0} << k);
  }
  // Adds the nearest values of `from`, of either sign.
  const auto add_value = [&](Real value) {
    for (const Real signed_value : {value, -value}) {
      add_around(IsFloat(from) ? NearestFloat(from, signed_value)
                               : NearestInteger(from, signed_value));
    }
  };
  for (int k = -160; k <= 130; ++k) add_value(std::ldexp(Real{1}, k));
  for (const Real value : {0.5L, 1.5L, 2.5L, 127.5L, 128.5L, 255.5L, 1e30L, 1e300L})
    add_value(value);
  if (IsFloat(to)) {
    // Values of the target and the points halfway between two of them.
    const Format f = FormatOf(to);
    const uint64_t beyond = BeyondOf(f);
    const bool all = beyond < 1 << 9;
    for (uint64_t i = 0; i < (all ? beyond : 3000); ++i) {
      const uint64_t bits = all       ? i
                            : i < 50  ? i
                            : i < 100 ? beyond - 1 - (i - 50)
                                      : random() % beyond;
      add_value(MagnitudeOf(f, bits));
      add_value((MagnitudeOf(f, bits) + MagnitudeOf(f, bits + 1)) / 2);
    }
  }
  for (int i = 0; i < 20000; ++i) {
    // Random patterns, and random ones with few significant bits.
    patterns.push_back(random() & mask);
    patterns.push_back((random() & mask) >> (random() % BitWidth(from)));
  }
  return patterns;
}

TEST_P(CastKernelTest, IsRightToEveryDType) {
  const DType from = GetParam();
  const DType in = ComponentOf(from);
  std::mt19937_64 random(5);
  for (const DType to : TargetsOf(from)) {
    std::vector<uint64_t> patterns;
    if (BitWidth(in) <= 16) {
      for (uint64_t bits = 0; bits <= LowBits(BitWidth(in)); ++bits) patterns.push_back(bits);
    } else {
      patterns = HardPatterns(in, ComponentOf(to), random);
    }
    if (patterns.size() % 2 == 1) patterns.push_back(0);
    Check(from, patterns, to);
  }
}

INSTANTIATE_TEST_SUITE_P(From, CastKernelTest, testing::ValuesIn(CastSources()),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(Name(info.param));
                         });

TEST(CastKernel, AnyCount) {
  for (const DType to : {DType::kBF16, DType::kF16, DType::kF64, DType::kI32}) {
    for (uint64_t count = 0; count < 40; ++count) {
      std::vector<uint64_t> patterns;
      for (uint64_t i = 0; i < count; ++i) patterns.push_back(0x3f800000 + (i << 14));
      Check(DType::kF32, patterns, to);
    }
  }
}

// A cast through f32 would round twice.
TEST(CastKernel, RoundsOnce) {
  // 1 + 2^-8 + 2^-30 is just above halfway between two bf16; as f32 it is halfway.
  const double above = 1 + 0x1p-8 + 0x1p-30;
  uint16_t half = 0;
  (*CastFunctionOf(DType::kF64, DType::kBF16))(&above, &half, 1);
  EXPECT_EQ(half, 0x3f81);
  const int64_t large = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  (*CastFunctionOf(DType::kI64, DType::kBF16))(&large, &half, 1);
  EXPECT_EQ(half, 0x5e81);
}

TEST(CastKernel, ToItselfCopies) {
  const uint32_t nan_with_payload = 0xffc01234;
  uint32_t out = 0;
  (*CastFunctionOf(DType::kF32, DType::kF32))(&nan_with_payload, &out, 1);
  EXPECT_EQ(out, nan_with_payload);
  const uint8_t packed[2] = {0x12, 0x34};
  uint8_t to[2] = {};
  (*CastFunctionOf(DType::kF4E2M1, DType::kF4E2M1))(packed, to, 4);
  EXPECT_EQ(to[1], 0x34);
}

TEST(CastKernel, Refusals) {
  EXPECT_EQ(Message(CastFunctionOf(DType::kC64, DType::kF32).status()),
            "a cast from c64 to f32 is refused: it would drop the imaginary part");
  EXPECT_FALSE(CastFunctionOf(DType::kF4E2M1, DType::kBF16).ok());
  EXPECT_FALSE(CastFunctionOf(DType::kBool, DType::kF4E2M1).ok());
}

}  // namespace
}  // namespace meshift
