#include "testing/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "meshift/dtype.h"
#include "placement/cast.h"
#include "testing/number.h"

namespace meshift::testkit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Number Real(double re) { return {.is_integer = false, .re = re}; }
Number Whole(Int128 integer) { return {.integer = integer}; }

// The bits of `number` as a value of `dtype`.
uint64_t BitsOf(DType dtype, const Number& number) {
  std::byte bytes[16] = {};
  NumberOpsOf(dtype).store(number, bytes, 0);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

TEST(CastTest, FloatsToIntegersTruncateAndSaturate) {
  EXPECT_EQ(BitsOf(DType::kI8, Real(-1.9)), 0xffu);
  EXPECT_EQ(BitsOf(DType::kI8, Real(127.9)), 127u);
  EXPECT_EQ(BitsOf(DType::kI8, Real(128)), 127u);
  EXPECT_EQ(BitsOf(DType::kI8, Real(-129)), 0x80u);
  EXPECT_EQ(BitsOf(DType::kU8, Real(-1)), 0u);
  EXPECT_EQ(BitsOf(DType::kU16, Real(kInf)), 0xffffu);
  EXPECT_EQ(BitsOf(DType::kI32, Real(kNan)), 0u);
  EXPECT_EQ(BitsOf(DType::kI64, Real(0x1p63)), 0x7fffffffffffffffu);
  EXPECT_EQ(BitsOf(DType::kI64, Real(-kInf)), 0x8000000000000000u);
  EXPECT_EQ(BitsOf(DType::kU64, Real(0x1p64)), ~uint64_t{0});
  EXPECT_EQ(BitsOf(DType::kU64, Real(0x1p63)), uint64_t{1} << 63);
}

TEST(CastTest, IntegersToIntegersKeepLowBits) {
  EXPECT_EQ(BitsOf(DType::kI8, Whole(300)), 44u);
  EXPECT_EQ(BitsOf(DType::kU16, Whole(-1)), 0xffffu);
  EXPECT_EQ(BitsOf(DType::kI64, Whole((Int128{1} << 64) - 1)), ~uint64_t{0});
}

TEST(CastTest, ToBoolIsWhetherItIsNotZero) {
  EXPECT_EQ(BitsOf(DType::kBool, Real(-0.0)), 0u);
  EXPECT_EQ(BitsOf(DType::kBool, Real(0x1p-1074)), 1u);
  EXPECT_EQ(BitsOf(DType::kBool, Real(kNan)), 1u);
  EXPECT_EQ(BitsOf(DType::kBool, Whole(256)), 1u);
  EXPECT_EQ(BitsOf(DType::kBool, Whole(0)), 0u);
}

TEST(CastTest, ToFloatsRoundsOnce) {
  EXPECT_EQ(BitsOf(DType::kF8E4M3, Real(-500)), 0x7fu);  // NaN has no sign
  EXPECT_EQ(BitsOf(DType::kF8E4M3, Real(464)), 0x7eu);
  EXPECT_EQ(BitsOf(DType::kF8E5M2, Real(-1e6)), 0xfcu);
  EXPECT_EQ(BitsOf(DType::kF16, Real(kNan)), 0x7e00u);
  EXPECT_EQ(BitsOf(DType::kF32, Real(-0.0)), 0x80000000u);
  // Just above the middle: a detour through f32 or f64 would make it a tie, which rounds down.
  EXPECT_EQ(BitsOf(DType::kBF16, Whole((Int128{0x101} << 54) + 1)), 0x5e81u);
  EXPECT_EQ(BitsOf(DType::kBF16, Whole(Int128{0x101} << 54)), 0x5e80u);
  EXPECT_EQ(BitsOf(DType::kF32, Whole((Int128{0x1000001} << 38) + 1)), 0x5e800001u);
  EXPECT_EQ(BitsOf(DType::kF32, Whole(-(Int128{0x1000001} << 38) - 1)), 0xde800001u);
  EXPECT_EQ(BitsOf(DType::kF16, Whole(-65520)), 0xfc00u);
  EXPECT_EQ(BitsOf(DType::kF64, Whole((Int128{1} << 53) + 1)), 0x4340000000000000u);
}

TEST(CastTest, ToComplexHasNoImaginaryPart) {
  std::byte bytes[8];
  NumberOpsOf(DType::kC64).store(Real(-1), bytes, 0);
  const Number number = NumberOpsOf(DType::kC64).load(bytes, 0);
  EXPECT_EQ(number.re, -1);
  EXPECT_EQ(number.im, 0);
  EXPECT_FALSE(std::signbit(number.im));
}

TEST(CastTest, OddDoublesKeepWhatIsCutOff) {
  EXPECT_EQ(OddDouble(-5), -5);
  EXPECT_EQ(OddDouble((Int128{1} << 53) + 1), 0x1p53 + 2);  // 53 bits, with the last one set
  EXPECT_EQ(OddDouble((Int128{1} << 60) + 1), 0x1p60 + 0x1p8);
  EXPECT_EQ(OddDouble(Int128{3} << 60), 0x3p60);
}

// Compares with the library's table of exact casts, by values.
TEST(CastTest, ExactCastsAreThoseOfTheLibrary) {
  int exact = 0;
  for (int f = 0; f < kNumDTypes; ++f) {
    for (int t = 0; t < kNumDTypes; ++t) {
      const auto from = static_cast<DType>(f);
      const auto to = static_cast<DType>(t);
      ASSERT_EQ(CheckCastOf(from, to).ok(), CheckCast(from, to).ok())
          << Name(from) << " to " << Name(to);
      if (!CheckCast(from, to).ok()) continue;
      EXPECT_EQ(IsExact(from, to), IsExactCast(from, to)) << Name(from) << " to " << Name(to);
      EXPECT_EQ(ReduceDTypeOf(from, to), DefaultReduceDType(from, to))
          << Name(from) << " to " << Name(to);
      exact += IsExact(from, to) ? 1 : 0;
    }
  }
  EXPECT_GT(exact, 60);
}

// Sources of casts without reductions: values that round, ties, overflows, the least magnitudes;
// NaN on request.
TEST(CastTest, ProbesMeetWhatCastsDecide) {
  const NumberOps& f32 = NumberOpsOf(DType::kF32);
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2, DType::kF16, DType::kBF16}) {
    const NumberOps& to = NumberOpsOf(dtype);
    const double infinite = dtype == DType::kF8E4M3 ? kNan : kInf;
    int kept = 0, rounded = 0, overflowed = 0, subnormal = 0, nan = 0;
    std::set<double> results;
    for (uint64_t w = 0; w < 4000; ++w) {
      std::byte bytes[4];
      const uint64_t hash = w * 0x9e3779b97f4a7c15;
      f32.store_probe(to.landmark(hash >> 9), w % 2 == 0, hash >> 32, bytes, 0);
      const double x = f32.load(bytes, 0).re;
      const double y = to.round(Real(x)).re;
      nan += std::isnan(x) ? 1 : 0;
      ASSERT_TRUE(w % 2 == 0 || std::isfinite(x));
      if (!std::isfinite(x)) continue;
      results.insert(y);
      kept += x == y ? 1 : 0;
      rounded += x != y && std::isfinite(y) && y != 0 ? 1 : 0;
      overflowed += SameNumber(Real(std::abs(y)), Real(infinite)) ? 1 : 0;
      subnormal += y != 0 && std::abs(y) < (dtype == DType::kBF16     ? 0x1p-126
                                            : dtype == DType::kF8E4M3 ? 0x1p-6
                                                                      : 0x1p-14)
                       ? 1
                       : 0;
    }
    EXPECT_GT(kept, 100) << Name(dtype);
    EXPECT_GT(rounded, 300) << Name(dtype);
    EXPECT_GT(overflowed, 30) << Name(dtype);
    EXPECT_GT(subnormal, 20) << Name(dtype);
    EXPECT_GT(nan, 100) << Name(dtype);
    EXPECT_GT(results.size(), 100u) << Name(dtype);
  }
}

TEST(CastTest, DisturbedValuesRoundBack) {
  int disturbed = 0;
  for (const DType held : {DType::kF32, DType::kF16, DType::kI32, DType::kF64}) {
    for (const DType back : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
      const NumberOps& ops = NumberOpsOf(held);
      for (int i = -4; i <= 4; ++i) {
        std::byte bytes[8];
        ops.store_disturbed(Whole(i), NumberOpsOf(back), 0x9e3779b97f4a7c15 * (i + 100), bytes, 0);
        const Number value = ops.load(bytes, 0);
        EXPECT_TRUE(SameNumber(NumberOpsOf(back).round(value), Whole(i)))
            << Name(held) << " " << Name(back) << " " << i;
        disturbed += SameNumber(value, Whole(i)) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(disturbed, 60);
}

}  // namespace
}  // namespace meshift::testkit
