#include "placement/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "base/status.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

// All values of a small float, NaN left out.
std::set<double> FloatValues(int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::set<double> values;
  for (int e = 0; e < 1 << exponent_bits; ++e) {
    for (int m = 0; m < 1 << mantissa_bits; ++m) {
      const bool top = e == (1 << exponent_bits) - 1;
      double value =
          std::ldexp(m + (e > 0 ? 1 << mantissa_bits : 0), (e > 0 ? e : 1) - bias - mantissa_bits);
      if (has_infinity && top) value = std::numeric_limits<double>::infinity();
      if (has_infinity ? top && m > 0 : top && m == (1 << mantissa_bits) - 1) continue;
      values.insert(value);
      values.insert(-value);
    }
  }
  return values;
}

template <typename T>
std::set<double> IntegerValues() {
  std::set<double> values;
  constexpr auto kMin = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kMax = static_cast<double>(std::numeric_limits<T>::max());
  for (int i = 0; i <= static_cast<int>(kMax - kMin); ++i) values.insert(kMin + i);
  return values;
}

// The values of a dtype of at most 16 bits; empty for the others.
std::set<double> ValuesOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {0, 1};
    case DType::kI8:
      return IntegerValues<int8_t>();
    case DType::kU8:
      return IntegerValues<uint8_t>();
    case DType::kI16:
      return IntegerValues<int16_t>();
    case DType::kU16:
      return IntegerValues<uint16_t>();
    case DType::kF16:
      return FloatValues(5, 10, true);
    case DType::kBF16:
      return FloatValues(8, 7, true);
    case DType::kF8E5M2:
      return FloatValues(5, 2, true);
    case DType::kF8E4M3:
      return FloatValues(4, 3, false);
    default:
      return {};
  }
}

bool Holds(DType dtype, const std::set<double>& values, double value) {
  const auto in = [value](double least, double end) {
    return value == std::trunc(value) && value >= least && value < end;
  };
  switch (dtype) {
    case DType::kI32:
      return in(-0x1p31, 0x1p31);
    case DType::kI64:
      return in(-0x1p63, 0x1p63);
    case DType::kU32:
      return in(0, 0x1p32);
    case DType::kU64:
      return in(0, 0x1p64);
    case DType::kF32:
    case DType::kC64:
      return static_cast<double>(static_cast<float>(value)) == value;
    case DType::kF64:
    case DType::kC128:
      return true;
    default:
      return values.contains(value);
  }
}

TEST(Cast, IsExactWhereEveryValueIsHeld) {
  int exact = 0;
  for (int a = 0; a < kNumDTypes; ++a) {
    const auto from = static_cast<DType>(a);
    const std::set<double> values = ValuesOf(from);
    if (values.empty()) continue;
    for (int b = 0; b < kNumDTypes; ++b) {
      const auto to = static_cast<DType>(b);
      if (!CheckCast(from, to).ok()) continue;
      const std::set<double> targets = ValuesOf(to);
      bool all = true;
      for (const double value : values) all = all && Holds(to, targets, value);
      EXPECT_EQ(IsExactCast(from, to), all) << Name(from) << " " << Name(to);
      exact += all ? 1 : 0;
    }
  }
  EXPECT_GT(exact, 50);
}

TEST(Cast, OfWideDTypes) {
  EXPECT_TRUE(IsExactCast(DType::kI32, DType::kF64));
  EXPECT_TRUE(IsExactCast(DType::kU32, DType::kI64));
  EXPECT_TRUE(IsExactCast(DType::kF32, DType::kC64));
  EXPECT_TRUE(IsExactCast(DType::kC64, DType::kC128));
  EXPECT_FALSE(IsExactCast(DType::kI32, DType::kF32));
  EXPECT_FALSE(IsExactCast(DType::kI64, DType::kF64));
  EXPECT_FALSE(IsExactCast(DType::kF64, DType::kC64));
  EXPECT_FALSE(IsExactCast(DType::kI64, DType::kU64));
  EXPECT_FALSE(IsExactCast(DType::kU64, DType::kI64));
}

TEST(Cast, RefusalsNameBothDTypes) {
  EXPECT_EQ(Message(CheckCast(DType::kC64, DType::kF32)),
            "a cast from c64 to f32 is refused: it would drop the imaginary part");
  EXPECT_EQ(Message(CheckCast(DType::kF4E2M1, DType::kF32)),
            "a cast from f4e2m1 to f32 is refused: f4e2m1 has no value without its block scales");
  EXPECT_FALSE(CheckCast(DType::kBF16, DType::kF4E2M1).ok());
  EXPECT_TRUE(CheckCast(DType::kF4E2M1, DType::kF4E2M1).ok());
  EXPECT_TRUE(CheckCast(DType::kF64, DType::kC64).ok());
}

TEST(Cast, DefaultReduceDTypeNeverRoundsTwice) {
  EXPECT_EQ(DefaultReduceDType(DType::kBF16, DType::kBF16), DType::kBF16);
  EXPECT_EQ(DefaultReduceDType(DType::kBF16, DType::kF32), DType::kBF16);
  EXPECT_EQ(DefaultReduceDType(DType::kF32, DType::kBF16), DType::kF32);
  EXPECT_EQ(DefaultReduceDType(DType::kF16, DType::kBF16), DType::kF32);
  EXPECT_EQ(DefaultReduceDType(DType::kBF16, DType::kF8E4M3), DType::kF32);
  EXPECT_EQ(DefaultReduceDType(DType::kI32, DType::kF32), DType::kI32);
}

}  // namespace
}  // namespace meshift
