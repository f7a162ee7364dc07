#include "comm/kernels/small_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace meshift {
namespace {

// The reference: the value from sign, exponent and mantissa by ldexp, in double.
template <typename BitsT, int kE, int kM, bool kHasInf>
double Value(SmallFloat<BitsT, kE, kM, kHasInf> /*format*/, uint32_t bits) {
  const int bias = (1 << (kE - 1)) - 1;
  const uint32_t mantissa = bits & ((1U << kM) - 1);
  const int exponent = static_cast<int>(bits >> kM) & ((1 << kE) - 1);
  const double sign = (bits >> (kE + kM)) != 0 ? -1 : 1;
  const bool top = exponent == (1 << kE) - 1;
  if (kHasInf && top) return mantissa == 0 ? sign * INFINITY : NAN;
  if (!kHasInf && top && mantissa == (1U << kM) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - kM);
  return sign * std::ldexp(mantissa + (1 << kM), exponent - bias - kM);
}

template <typename Format>
class SmallFloatTest : public testing::Test {
 public:
  static constexpr uint32_t kNumBits = uint32_t{1} << (8 * sizeof(typename Format::Bits));
};

using Formats = testing::Types<F16, BF16, F8E5M2, F8E4M3>;
TYPED_TEST_SUITE(SmallFloatTest, Formats);

TYPED_TEST(SmallFloatTest, EveryValueIsWhatTheFormatDefines) {
  for (uint32_t bits = 0; bits < this->kNumBits; ++bits) {
    const double expected = Value(TypeParam(), bits);
    const float actual = TypeParam::ToFloat(static_cast<typename TypeParam::Bits>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(SmallFloatTest, EveryValueComesBackAndNaNIsCanonical) {
  for (uint32_t bits = 0; bits < this->kNumBits; ++bits) {
    const bool is_nan = std::isnan(Value(TypeParam(), bits));
    const auto back =
        TypeParam::FromFloat(TypeParam::ToFloat(static_cast<typename TypeParam::Bits>(bits)));
    ASSERT_EQ(back, is_nan ? uint32_t{TypeParam::kNaN} : bits);
  }
  EXPECT_EQ(TypeParam::FromFloat(-std::numeric_limits<float>::quiet_NaN()), TypeParam::kNaN);
  EXPECT_EQ(TypeParam::FromFloat(std::bit_cast<float>(0xffffffffU)), TypeParam::kNaN);
  EXPECT_EQ(TypeParam::FromFloat(std::bit_cast<float>(0x7f800001U)), TypeParam::kNaN);
}

// Values between two neighbours round down below the middle, up above it, and to even at the
// middle.
TYPED_TEST(SmallFloatTest, RoundsToNearestEven) {
  using Bits = typename TypeParam::Bits;
  for (uint32_t bits = 0; bits < TypeParam::kMaxFinite; ++bits) {
    const double low = Value(TypeParam(), bits);
    const double high = Value(TypeParam(), bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const Bits even = (bits & 1) == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam::FromFloat(middle), even) << bits;
    ASSERT_EQ(TypeParam::FromFloat(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(TypeParam::FromFloat(std::nextafter(middle, INFINITY)), bits + 1);
    ASSERT_EQ(TypeParam::FromFloat(-middle), even | TypeParam::kSignBit);
  }
}

TYPED_TEST(SmallFloatTest, OverflowsBeyondTheLargest) {
  using Format = TypeParam;
  const double largest = Value(Format(), Format::kMaxFinite);
  const double step = largest - Value(Format(), Format::kMaxFinite - 1);
  const auto middle = static_cast<float>(largest + step / 2);
  // The largest f8e4m3 is even, so the middle rounds down; in other formats it rounds up, to
  // infinity.
  const bool down = Format::kMaxFinite % 2 == 0;
  EXPECT_EQ(Format::FromFloat(middle), down ? Format::kMaxFinite : Format::kBeyond);
  EXPECT_EQ(Format::FromFloat(std::nextafter(middle, 0.0F)), Format::kMaxFinite);
  EXPECT_EQ(Format::FromFloat(std::nextafter(middle, INFINITY)), Format::kBeyond);
  EXPECT_EQ(Format::FromFloat(INFINITY), Format::kBeyond);
  const bool has_inf = Format::kBeyond != Format::kNaN;
  const auto minus_inf = static_cast<typename Format::Bits>(Format::kBeyond | Format::kSignBit);
  EXPECT_EQ(Format::FromFloat(-INFINITY), has_inf ? minus_inf : Format::kNaN);
  EXPECT_EQ(Format::FromFloat(-std::numeric_limits<float>::max()),
            has_inf ? minus_inf : Format::kNaN);
}

TEST(SmallFloat, HasTheKnownValues) {
  EXPECT_EQ(F16::ToFloat(0x7bff), 65504.0F);
  EXPECT_EQ(F16::ToFloat(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(BF16::FromFloat(1.0F), 0x3f80);
  EXPECT_EQ(F8E4M3::ToFloat(0x7e), 448.0F);
  EXPECT_EQ(F8E4M3::FromFloat(464.0F), 0x7e);
  EXPECT_EQ(F8E4M3::FromFloat(465.0F), 0x7f);
  EXPECT_EQ(F8E5M2::ToFloat(0x7b), 57344.0F);
  EXPECT_EQ(F8E5M2::kNaN, 0x7e);
  EXPECT_EQ(F16::FromFloat(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(F16::FromFloat(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

}  // namespace
}  // namespace meshift
