#include "testing/number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "meshift/placement.h"

namespace meshift::testkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

// The value of a small float by the standard's formula.
struct Format {
  int exp_bits;
  int man_bits;
  bool has_inf;
};

double ByFormula(uint32_t bits, const Format& f) {
  const int bias = (1 << (f.exp_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1U << f.man_bits) - 1);
  const auto exponent = static_cast<int>(bits >> f.man_bits & ((1U << f.exp_bits) - 1));
  const double sign = (bits >> (f.man_bits + f.exp_bits)) != 0 ? -1 : 1;
  const bool top = exponent == (1 << f.exp_bits) - 1;
  if (top && f.has_inf) return mantissa == 0 ? sign * kInf : kNan;
  if (top && mantissa == (1U << f.man_bits) - 1) return kNan;
  if (exponent == 0) return sign * mantissa * std::pow(2.0, 1 - bias - f.man_bits);
  return sign * (1 + mantissa * std::pow(2.0, -f.man_bits)) * std::pow(2.0, exponent - bias);
}

template <typename T>
void ExpectDecodesByFormula(const Format& format) {
  const uint32_t count = 1U << (1 + format.exp_bits + format.man_bits);
  for (uint32_t bits = 0; bits < count; ++bits) {
    const double want = ByFormula(bits, format);
    const double got = T::Decode(static_cast<typename T::Bits>(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_EQ(T::Encode(got), T::kNan) << bits;
    } else {
      ASSERT_EQ(got, want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
      ASSERT_EQ(T::Encode(want), bits);
    }
  }
}

// Between neighbours, the nearer one wins, and the even one in the middle.
template <typename T>
void ExpectRoundsToNearestEven(const Format& format) {
  using Bits = typename T::Bits;
  for (uint32_t bits = 0; bits < T::kMaxBits; ++bits) {
    const double low = ByFormula(bits, format);
    const double high = ByFormula(bits + 1, format);
    const double middle = (low + high) / 2;  // exact
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(T::Encode(middle), even) << middle;
    ASSERT_EQ(T::Encode(std::nextafter(middle, 0)), bits) << middle;
    ASSERT_EQ(T::Encode(std::nextafter(middle, kInf)), bits + 1) << middle;
    ASSERT_EQ(T::Encode(std::nextafter(low, kInf)), bits) << low;
    ASSERT_EQ(T::Encode(std::nextafter(high, 0)), bits + 1) << high;
    ASSERT_EQ(T::Encode(-middle), static_cast<Bits>(even | T::kSign)) << middle;
  }
  // Beyond the largest value, half a step still rounds down if the value below is even.
  const double largest = ByFormula(T::kMaxBits, format);
  const double step = largest - ByFormula(T::kMaxBits - 1U, format);
  const Bits overflow = format.has_inf ? T::kInfinity : T::kNan;
  const Bits halfway = T::kMaxBits % 2 == 0 ? T::kMaxBits : overflow;
  EXPECT_EQ(T::Encode(std::nextafter(largest + step / 2, 0)), T::kMaxBits);
  EXPECT_EQ(T::Encode(largest + step / 2), halfway);
  EXPECT_EQ(T::Encode(largest + step), overflow);
  EXPECT_EQ(T::Encode(1e300), overflow);
  // NaN has no sign.
  EXPECT_EQ(T::Encode(-kInf), format.has_inf ? static_cast<Bits>(overflow | T::kSign) : overflow);
  EXPECT_EQ(T::Encode(-1e300), T::Encode(-kInf));
  EXPECT_EQ(T::Encode(1e-300), 0);
  EXPECT_EQ(T::Encode(-1e-310), T::kSign);
}

TEST(NumberTest, SmallFloatsDecodeByFormula) {
  ExpectDecodesByFormula<F16>({5, 10, true});
  ExpectDecodesByFormula<BF16>({8, 7, true});
  ExpectDecodesByFormula<F8E4M3>({4, 3, false});
  ExpectDecodesByFormula<F8E5M2>({5, 2, true});
}

TEST(NumberTest, SmallFloatsRoundToNearestEven) {
  ExpectRoundsToNearestEven<F16>({5, 10, true});
  ExpectRoundsToNearestEven<BF16>({8, 7, true});
  ExpectRoundsToNearestEven<F8E4M3>({4, 3, false});
  ExpectRoundsToNearestEven<F8E5M2>({5, 2, true});
}

TEST(NumberTest, KnownValues) {
  EXPECT_EQ(F16::Encode(1), 0x3c00);
  EXPECT_EQ(F16::Decode(0x7bff), 65504);
  EXPECT_EQ(F16::Decode(0x0001), 0x1p-24);
  EXPECT_EQ(F16::kNan, 0x7e00);
  EXPECT_EQ(BF16::Encode(1), 0x3f80);
  EXPECT_EQ(BF16::Encode(3.14159265), 0x4049);
  EXPECT_EQ(BF16::kNan, 0x7fc0);
  EXPECT_EQ(F8E4M3::Decode(0x7e), 448);
  EXPECT_EQ(F8E4M3::Decode(0x01), 0x1p-9);
  EXPECT_EQ(F8E4M3::Encode(464), 0x7e);
  EXPECT_EQ(F8E4M3::Encode(465), 0x7f);
  EXPECT_EQ(F8E4M3::kInfinity, 0x7e);
  EXPECT_EQ(F8E5M2::Decode(0x7b), 57344);
  EXPECT_EQ(F8E5M2::kInfinity, 0x7c);
  EXPECT_EQ(F32::Encode(1 + 0x1p-24), 0x3f800000);
  EXPECT_EQ(F32::Encode(1 + 0x3p-24), 0x3f800002);
  EXPECT_EQ(F32::Encode(kNan), 0x7fc00000);
  EXPECT_EQ(F32::Encode(1e300), 0x7f800000);
  EXPECT_EQ(F32::Decode(0x00000001), 0x1p-149);
  EXPECT_EQ(F32::Tiny(), 0x1p-149);
  EXPECT_EQ(F64::Encode(-0.0), uint64_t{1} << 63);
  EXPECT_EQ(C64::Decode({0x3f800000, 0xc0000000}).im, -2);
}

TEST(NumberTest, IntegersWrap) {
  EXPECT_EQ(I8::Decode(0x80), -128);
  EXPECT_EQ(I8::Encode(128), 0x80);
  EXPECT_EQ(U8::Encode(-1), 0xff);
  EXPECT_EQ(U64::Decode(~uint64_t{0}) > 0, true);
  EXPECT_EQ(I64::Decode(~uint64_t{0}) == -1, true);
  EXPECT_EQ(I16::kMax, 0x7fff);
  EXPECT_EQ(I16::kMin, 0x8000);
  EXPECT_EQ(Bool::kAllOnes, 1);
}

TEST(NumberTest, Fold) {
  using enum ReduceOp;
  EXPECT_EQ(Fold<F32>(kSum, 1, 2), 3);
  EXPECT_EQ(Fold<F32>(kAvg, 1, 2), 3);
  EXPECT_EQ(Fold<F32>(kProduct, 3, 2), 6);
  EXPECT_EQ(Fold<F32>(kMin, 3, 2), 2);
  EXPECT_EQ(Fold<F32>(kMax, 3, 2), 3);
  EXPECT_FALSE(std::signbit(Fold<F32>(kSum, -0.0, 0.0)));
  EXPECT_TRUE(std::signbit(Fold<F32>(kSum, -0.0, -0.0)));
  EXPECT_TRUE(std::signbit(Fold<F32>(kMin, 0.0, -0.0)));
  EXPECT_TRUE(std::signbit(Fold<F32>(kMin, -0.0, 0.0)));
  EXPECT_FALSE(std::signbit(Fold<F32>(kMax, 0.0, -0.0)));
  EXPECT_FALSE(std::signbit(Fold<F32>(kMax, -0.0, 0.0)));
  EXPECT_TRUE(std::isnan(Fold<F32>(kMax, kNan, kInf)));
  EXPECT_TRUE(std::isnan(Fold<F32>(kMin, -kInf, kNan)));
  EXPECT_EQ(Fold<I8>(kMin, -3, 2) == -3, true);
  EXPECT_EQ(Fold<U8>(kMax, 200, 2) == 200, true);
  EXPECT_EQ(Fold<I8>(kAnd, 6, 3) == 2, true);
  EXPECT_EQ(Fold<I8>(kOr, 6, 3) == 7, true);
  EXPECT_EQ(Fold<I8>(kXor, 6, 3) == 5, true);
  EXPECT_EQ(Fold<C64>(kProduct, {1, 2}, {3, 4}).re, -5);
  EXPECT_EQ(Fold<C64>(kProduct, {1, 2}, {3, 4}).im, 10);
}

TEST(NumberTest, IdentityChangesNothing) {
  using enum ReduceOp;
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto b = static_cast<uint8_t>(bits);
    for (const ReduceOp op : {kSum, kProduct, kMin, kMax}) {
      const auto with = [&]<typename T>(T /*type*/) {
        return T::Encode(Fold<T>(op, T::Decode(b), T::Decode(Identity<T>(op))));
      };
      EXPECT_EQ(with(I8()), b);
      EXPECT_EQ(with(U8()), b);
      if (b != F8E4M3::kNan && b != (F8E4M3::kNan | F8E4M3::kSign)) {
        EXPECT_EQ(with(F8E4M3()), b);
      }
      if ((b & 0x7f) <= F8E5M2::kInfinity) {
        EXPECT_EQ(with(F8E5M2()), b);
      }
    }
    for (const ReduceOp op : {kAnd, kOr, kXor}) {
      EXPECT_EQ(I8::Encode(Fold<I8>(op, I8::Decode(b), I8::Decode(Identity<I8>(op)))), b);
      EXPECT_EQ(Fold<Bool>(op, b & 1, Identity<Bool>(op)) == (b & 1), true);
    }
  }
}

TEST(NumberTest, QuotientsTruncateTowardZero) {
  EXPECT_EQ(Quotient<I32>(-7, 2) == -3, true);
  EXPECT_EQ(Quotient<I32>(7, 2) == 3, true);
  EXPECT_EQ(Quotient<I64>(-(Int128{1} << 62), 3) == -(Int128{1} << 62) / 3, true);
  EXPECT_EQ(Quotient<F32>(7, 2), 3.5);
  EXPECT_EQ(Quotient<C64>({7, 1}, 2).im, 0.5);
}

}  // namespace
}  // namespace meshift::testkit
