#include "comm/kernels/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "comm/kernels/small_float.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

ReduceSpec Spec(DType dtype, ReduceOp op, int64_t divisor = 1) {
  ReduceSpec spec;
  spec.dtype = dtype;
  spec.reduction = {op, divisor};
  return spec;
}

// Reduces single values, one per contribution.
template <typename T>
T Of(const ReduceSpec& spec, const std::vector<T>& values) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T result;
  Reduce(spec, inputs, 0, 1, &result);
  return result;
}

template <typename T>
T Of(DType dtype, ReduceOp op, const std::vector<T>& values, int64_t divisor = 1) {
  return Of(Spec(dtype, op, divisor), values);
}

uint16_t Bf(float x) { return BF16::FromFloat(x); }

TEST(Reduce, AddsSmallFloatsInF32AndRoundsOnce) {
  // In bf16 arithmetic 256 + 1 is 256, four times over.
  const std::vector<uint16_t> values = {Bf(256), Bf(1), Bf(1), Bf(1), Bf(1)};
  EXPECT_EQ(Of(DType::kBF16, ReduceOp::kSum, values), Bf(260));
  EXPECT_EQ(Of<uint16_t>(DType::kF16, ReduceOp::kSum, {0x6800, 0x3c00, 0x3c00, 0x3c00}),
            F16::FromFloat(2048 + 3));
  // 448 + 448 - 448 does not overflow in the accumulator.
  EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kSum, {0x7e, 0x7e, 0xfe}), 0x7e);
  EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kSum, {0x7e, 0x7e}), 0x7f);  // overflow: NaN
  EXPECT_EQ(Of<uint8_t>(DType::kF8E5M2, ReduceOp::kSum, {0x7b, 0x7b}), 0x7c);  // infinity
}

TEST(Reduce, AddsWideFloatsInTheirOwnPrecisionAndInOrder) {
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kSum, {1e8F, 1, -1e8F}), 0.0F);
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kSum, {1e8F, -1e8F, 1}), 1.0F);
  EXPECT_EQ(Of<double>(DType::kF64, ReduceOp::kSum, {1e8, 1, -1e8}), 1.0);
  EXPECT_TRUE(std::signbit(Of<float>(DType::kF32, ReduceOp::kSum, {-0.0F, -0.0F})));
}

TEST(Reduce, DividesAveragesOnceBeforeRounding) {
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kAvg, {1, 1, 1}, 3), 1.0F);
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kAvg, {1, 0, 0}, 3), 1.0F / 3);
  // bf16 cannot represent the sum, 257; if it were rounded first, the average would be 128.
  EXPECT_EQ(Of<uint16_t>(DType::kBF16, ReduceOp::kAvg, {Bf(256), Bf(1)}, 2), Bf(128.5F));
  EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kAvg, {0x7e, 0x7e}, 2), 0x7e);
  // The divisor need not be the number of contributions.
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kAvg, {6, 6}, 4), 3.0F);
}

TEST(Reduce, WrapsAndTruncatesIntegers) {
  EXPECT_EQ(Of<int8_t>(DType::kI8, ReduceOp::kSum, {127, 1}), -128);
  EXPECT_EQ(Of<uint16_t>(DType::kU16, ReduceOp::kProduct, {65535, 65535}), 1);
  EXPECT_EQ(Of<int32_t>(DType::kI32, ReduceOp::kProduct, {1 << 20, 1 << 12}), 0);
  EXPECT_EQ(Of<int64_t>(DType::kI64, ReduceOp::kSum, {INT64_MAX, 1}), INT64_MIN);
  EXPECT_EQ(Of<int32_t>(DType::kI32, ReduceOp::kAvg, {-7, 0}, 2), -3);
  EXPECT_EQ(Of<uint8_t>(DType::kU8, ReduceOp::kAvg, {200, 50}, 3), 83);
  EXPECT_EQ(Of<int8_t>(DType::kI8, ReduceOp::kAvg, {100, 27}, 1000), 0);
  EXPECT_EQ(Of<uint64_t>(DType::kU64, ReduceOp::kAvg, {UINT64_MAX, 0}, 2), UINT64_MAX / 2);
}

TEST(Reduce, ComparesIntegersByTheirSign) {
  EXPECT_EQ(Of<int8_t>(DType::kI8, ReduceOp::kMin, {-1, 1}), -1);
  EXPECT_EQ(Of<uint8_t>(DType::kU8, ReduceOp::kMin, {255, 1}), 1);
  EXPECT_EQ(Of<int64_t>(DType::kI64, ReduceOp::kMax, {INT64_MIN, -1}), -1);
  EXPECT_EQ(Of<uint64_t>(DType::kU64, ReduceOp::kMax, {uint64_t{1} << 63, 1}), uint64_t{1} << 63);
}

TEST(Reduce, CombinesBits) {
  EXPECT_EQ(Of<uint8_t>(DType::kU8, ReduceOp::kAnd, {0x0f, 0x3c}), 0x0c);
  EXPECT_EQ(Of<int16_t>(DType::kI16, ReduceOp::kOr, {0x0f0f, 0x1000}), 0x1f0f);
  EXPECT_EQ(Of<int32_t>(DType::kI32, ReduceOp::kXor, {-1, 1}), -2);
  EXPECT_EQ(Of<uint8_t>(DType::kBool, ReduceOp::kAnd, {1, 0}), 0);
  EXPECT_EQ(Of<uint8_t>(DType::kBool, ReduceOp::kXor, {1, 1, 1}), 1);
  EXPECT_EQ(Of<uint8_t>(DType::kBool, ReduceOp::kMax, {0, 1}), 1);
}

TEST(Reduce, OrdersZerosAndLetsNaNWin) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const bool negative = op == ReduceOp::kMin;
    EXPECT_EQ(std::signbit(Of<float>(DType::kF32, op, {-0.0F, 0.0F})), negative);
    EXPECT_EQ(std::signbit(Of<float>(DType::kF32, op, {0.0F, -0.0F})), negative);
    const auto canonical = std::bit_cast<float>(0x7fc00000);
    for (const float nan : {kNaN, -kNaN, std::bit_cast<float>(0x7f800001)}) {
      for (const float other : {0.0F, kInf, -kInf, -1.0F}) {
        EXPECT_EQ(std::bit_cast<uint32_t>(Of<float>(DType::kF32, op, {nan, other})),
                  std::bit_cast<uint32_t>(canonical));
        EXPECT_EQ(std::bit_cast<uint32_t>(Of<float>(DType::kF32, op, {other, nan})),
                  std::bit_cast<uint32_t>(canonical));
      }
    }
    EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, op, {0xff, 0x00}), 0x7f);
    EXPECT_EQ(Of<uint8_t>(DType::kF8E5M2, op, {0x00, 0xfd}), 0x7e);
    EXPECT_EQ(Of<uint16_t>(DType::kF16, op, {0xffff, 0x7c00}), 0x7e00);
  }
  EXPECT_EQ(Of<float>(DType::kF32, ReduceOp::kMin, {kInf, 3, -kInf}), -kInf);
  EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kMax, {0xfe, 0x7e}), 0x7e);
  EXPECT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kMin, {0xfe, 0x7e}), 0xfe);
}

// The minimum of all pairs of f8e4m3 values, against a comparison as f32.
TEST(Reduce, ComparesAllPairsOfEightBitFloats) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const float x = F8E4M3::ToFloat(static_cast<uint8_t>(a));
      const float y = F8E4M3::ToFloat(static_cast<uint8_t>(b));
      int expected = x < y || (x == y && std::signbit(x)) ? a : b;
      if (std::isnan(x) || std::isnan(y)) expected = 0x7f;
      ASSERT_EQ(Of<uint8_t>(DType::kF8E4M3, ReduceOp::kMin,
                            {static_cast<uint8_t>(a), static_cast<uint8_t>(b)}),
                expected)
          << a << " " << b;
    }
  }
}

TEST(Reduce, MakesEveryNaNCanonical) {
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  EXPECT_EQ(bits(Of<float>(DType::kF32, ReduceOp::kSum, {kInf, -kInf})), 0x7fc00000);
  EXPECT_EQ(bits(Of<float>(DType::kF32, ReduceOp::kSum, {-kNaN, 1})), 0x7fc00000);
  EXPECT_EQ(bits(Of<float>(DType::kF32, ReduceOp::kProduct, {0, kInf})), 0x7fc00000);
  EXPECT_EQ(Of<uint16_t>(DType::kBF16, ReduceOp::kSum, {0xffff, 0}), 0x7fc0);
  EXPECT_EQ(std::bit_cast<uint64_t>(Of<double>(DType::kF64, ReduceOp::kSum, {-NAN, 1})),
            0x7ff8000000000000);
}

TEST(Reduce, TreatsComplexNumbersByTheirRules) {
  using C = std::complex<float>;
  EXPECT_EQ(Of<C>(DType::kC64, ReduceOp::kSum, {C(1, 2), C(3, 5)}), C(4, 7));
  EXPECT_EQ(Of<C>(DType::kC64, ReduceOp::kAvg, {C(1, 2), C(3, 6)}, 2), C(2, 4));
  EXPECT_EQ(Of<C>(DType::kC64, ReduceOp::kProduct, {C(1, 2), C(3, 4), C(0, 1)}), C(-10, -5));
  using Z = std::complex<double>;
  EXPECT_EQ(Of<Z>(DType::kC128, ReduceOp::kProduct, {Z(1, 2), Z(3, 4)}), Z(-5, 10));
}

TEST(Reduce, RoundsTheResultOfEachRun) {
  const std::vector<uint16_t> values = {Bf(256), Bf(1), Bf(256), Bf(1)};
  ReduceSpec spec = Spec(DType::kBF16, ReduceOp::kSum);
  EXPECT_EQ(Of(spec, values), Bf(514));
  spec.runs = {2, 2};  // 257 rounds to 256, twice
  EXPECT_EQ(Of(spec, values), Bf(512));
  spec.runs = {1, 2, 1};  // 257 in the middle rounds to 256; 256 + 256 + 1 rounds to 512
  EXPECT_EQ(Of(spec, values), Bf(513));
  spec.reduction = {ReduceOp::kAvg, 2};
  spec.runs = {2, 2};
  EXPECT_EQ(Of(spec, values), Bf(256));
  const std::vector<float> floats = {1e8F, 4, 4, -1e8F};
  ReduceSpec wide = Spec(DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(Of(wide, floats), 0.0F);
  wide.runs = {1, 2, 1};
  EXPECT_EQ(Of(wide, floats), 8.0F);
  using C = std::complex<float>;
  ReduceSpec complex = Spec(DType::kC64, ReduceOp::kProduct);
  complex.runs = {1, 2};
  EXPECT_EQ(Of<C>(complex, {C(1, 2), C(3, 4), C(0, 1)}), C(-10, -5));
}

TEST(Reduce, CombinesBlocksFirst) {
  const auto of = [](DType dtype, int64_t block, const auto& values, int64_t divisor = 1) {
    ReduceSpec spec = Spec(dtype, divisor > 1 ? ReduceOp::kAvg : ReduceOp::kSum, divisor);
    spec.reduction.block = block;
    return Of(spec, values);
  };
  // 1e8 + 1 is 1e8 in f32.
  const std::vector<float> values = {1e8F, -1e8F, 1, 1e8F, 1, -1e8F};
  EXPECT_EQ(of(DType::kF32, 0, values), 0.0F);  // one after another
  EXPECT_EQ(of(DType::kF32, 1, values), 0.0F);  // one after another too
  EXPECT_EQ(of(DType::kF32, 2, values), 0.0F);  // 0 + 1e8 - 1e8
  EXPECT_EQ(of(DType::kF32, 3, values), 1.0F);  // 1 + 0
  EXPECT_EQ(of(DType::kF32, 4, values), 0.0F);  // 1e8 - 1e8, of the last two
  EXPECT_EQ(of(DType::kF32, 9, values), 0.0F);
  EXPECT_EQ(of(DType::kF32, 3, values, 2), 0.5F);
  // Blocks' sums are not rounded to bf16: 6 * 257 rounds to 1544; if 257 were rounded to 256, the
  // result would be 1536.
  std::vector<uint16_t> small;
  for (int i = 0; i < 6; ++i) small.insert(small.end(), {Bf(256), Bf(1)});
  EXPECT_EQ(of(DType::kBF16, 2, small), Bf(1544));
  EXPECT_EQ(of(DType::kI32, 2, std::vector<int32_t>{1, 2, 3}), 6);
}

TEST(Reduce, ShiftsByADistanceOfEachGroupsOwn) {
  for (const float value : {1.5F, -3.0F, 0.0F, -0.0F, std::numeric_limits<float>::max()}) {
    std::set<uint32_t> seen = {std::bit_cast<uint32_t>(value)};
    for (int group = 0; group < 64; ++group) {
      ReduceSpec spec = Spec(DType::kF32, ReduceOp::kSum);
      spec.shift = group + 1;
      const float result = Of<float>(spec, {value, -0.0F});
      EXPECT_TRUE(std::isfinite(result));
      EXPECT_TRUE(seen.insert(std::bit_cast<uint32_t>(result)).second);
    }
  }
  ReduceSpec spec = Spec(DType::kF32, ReduceOp::kSum);
  spec.shift = 3;
  EXPECT_EQ(Of<float>(spec, {kInf, 1}), kInf);
  EXPECT_TRUE(std::isnan(Of<float>(spec, {kNaN, 1})));
  spec.reduction.op = ReduceOp::kMax;
  EXPECT_EQ(Of<float>(spec, {2, 1}), 2.0F);  // exact in any order
  spec.dtype = DType::kI32;
  spec.reduction.op = ReduceOp::kSum;
  EXPECT_EQ(Of<int32_t>(spec, {2, 1}), 3);
}

TEST(Reduce, ShiftsWithinFormatsOfEightBits) {
  for (int bits = 0; bits < 256; ++bits) {
    std::set<uint8_t> seen;
    for (int group = 0; group < 30; ++group) {
      ReduceSpec spec = Spec(DType::kF8E4M3, ReduceOp::kSum);
      spec.shift = group + 1;
      const auto result = Of<uint8_t>(spec, {static_cast<uint8_t>(bits)});
      if ((bits & 0x7f) == 0x7f) {
        ASSERT_EQ(result, 0x7f);
      } else {
        ASSERT_NE(result & 0x7f, 0x7f);
        ASSERT_NE(result, bits);
        ASSERT_TRUE(seen.insert(result).second);
      }
    }
  }
}

// Adds `count` elements of n unaligned inputs, from element 7 on. The result is in the place of
// input `place`; if place is n, elsewhere.
void ExpectSums(int64_t count, int n, int place) {
  constexpr int64_t kFirst = 7;
  std::vector<std::vector<char>> memory(n + 1, std::vector<char>((kFirst + count) * 4 + 1));
  std::vector<const void*> inputs;
  for (int k = 0; k < n; ++k) {
    char* base = memory[k].data() + 1;
    for (int64_t i = 0; i < kFirst + count; ++i) {
      const auto value = static_cast<float>(i * 4 + k);
      std::memcpy(base + i * 4, &value, 4);
    }
    inputs.push_back(base);
  }
  char* out = memory[place].data() + 1 + kFirst * 4;
  Reduce(Spec(DType::kF32, ReduceOp::kSum), inputs, kFirst, count, out);
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, out + i * 4, 4);
    const int64_t sum = (i + kFirst) * 4 * n + n * (n - 1) / 2;
    ASSERT_EQ(value, static_cast<float>(sum)) << i;
  }
}

// Lengths around the block size.
TEST(Reduce, TreatsAllElementsAlike) {
  for (const int64_t count : {1, 5, 1025, 4095, 4096, 4097, 9000}) {
    for (int n = 1; n <= 4; ++n) {
      for (int place = 0; place <= n; ++place) {
        SCOPED_TRACE(testing::Message() << count << " elements, " << n << " inputs, " << place);
        ExpectSums(count, n, place);
      }
    }
  }
}

TEST(Reduce, ChecksReductions) {
  EXPECT_EQ(Message(CheckReduction(DType::kF32, {.op = ReduceOp::kSum, .block = -1})),
            "a block of -1 inputs is negative");
  EXPECT_EQ(Message(CheckReduction(DType::kF32, {ReduceOp::kAvg, 0})),
            "divisor 0 of an average is not positive");
  EXPECT_EQ(Message(CheckReduction(DType::kC64, {ReduceOp::kMax, 1})),
            "max of c64 is refused: complex numbers have no order");
  EXPECT_TRUE(CheckReduction(DType::kC64, {ReduceOp::kProduct, 1}).ok());
}

}  // namespace
}  // namespace meshift
