#include "comm/kernels/float_environment.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "comm/kernels/cast.h"
#include "comm/kernels/reduce.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

// Sums, quotients, products and casts of numbers of all magnitudes, including subnormals.
std::vector<uint32_t> Results() {
  constexpr int64_t kCount = 1000;
  std::mt19937 random(7);
  std::vector<std::vector<float>> in(5, std::vector<float>(kCount));
  for (std::vector<float>& input : in) {
    for (float& x : input) {
      uint32_t bits = static_cast<uint32_t>(random());
      // No NaN or infinity; a third of them near the subnormals.
      if ((bits >> 23 & 0xff) == 0xff || bits % 3 == 0) bits &= 0x80ffffff;
      x = std::bit_cast<float>(bits);
    }
  }
  std::vector<const void*> inputs;
  for (const std::vector<float>& input : in) inputs.push_back(input.data());
  std::vector<uint32_t> results;
  std::vector<uint32_t> out(kCount);
  const auto add = [&] { results.insert(results.end(), out.begin(), out.end()); };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMax}) {
    const Reduction reduction{.op = op, .divisor = op == ReduceOp::kAvg ? 3 : 1};
    for (const DType dtype : {DType::kF32, DType::kC64}) {
      if (op == ReduceOp::kMax && dtype == DType::kC64) continue;
      const int64_t count = dtype == DType::kC64 ? kCount / 2 : kCount;
      ReduceSpec spec;
      spec.dtype = dtype;
      spec.reduction = reduction;
      Reduce(spec, inputs, 0, count, out.data());
      add();
    }
  }
  for (const DType to : {DType::kBF16, DType::kF16, DType::kF8E5M2}) {
    std::fill(out.begin(), out.end(), 0);
    (*CastFunctionOf(DType::kF32, to))(in[0].data(), out.data(), kCount);
    add();
  }
  std::vector<uint32_t> complex(2 * kCount);
  (*CastFunctionOf(DType::kF32, DType::kC64))(in[0].data(), complex.data(), kCount);
  results.insert(results.end(), complex.begin(), complex.end());
  return results;
}

void ExpectEqual(const std::vector<uint32_t>& results, const std::vector<uint32_t>& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) ASSERT_EQ(results[i], expected[i]) << i;
}

TEST(DefaultFloatMode, ResultsDoNotDependOnTheThreads) {
  const std::vector<uint32_t> expected = Results();
  int modes = 0;
  std::thread([&] {
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
      std::fesetround(rounding);
      ExpectEqual(Results(), expected);
      EXPECT_EQ(std::fegetround(), rounding);
      ++modes;
    }
#ifdef __SSE2__
    const uint32_t before = _mm_getcsr();
    for (const uint32_t flush : {0x8000u, 0x0040u, 0x8040u}) {
      _mm_setcsr(before | flush);
      volatile float tiny = 0x1p-126F;
      EXPECT_TRUE(tiny * 0.5F == 0);  // flushed to zero
      ExpectEqual(Results(), expected);
      EXPECT_EQ(_mm_getcsr() & 0x8040u, flush);
      EXPECT_TRUE(CheckArithmetic().ok());
      ++modes;
    }
    _mm_setcsr(before);
#endif
  }).join();
  EXPECT_GE(modes, 4);
}

TEST(CheckArithmetic, HoldsInThisBuild) { EXPECT_EQ(CheckArithmetic(), absl::OkStatus()); }

}  // namespace
}  // namespace meshift
