#include "comm/cuda/element_launches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "testing/internal/cuda/emulator.h"

namespace meshift::cuda {
namespace {

using Random = std::mt19937_64;
using Memory = std::vector<uint8_t>;

// Offsets of the first element from a multiple of 16 bytes: for vectors, elements, and bytes.
constexpr int64_t kOffsets[] = {0, 8, 3};

uint8_t* Aligned(Memory& memory) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (16 - address % 16) % 16;
}

// Random bits, and some floats that are hard cases for arithmetic.
Memory RandomElements(Random& random, DType dtype, int64_t count) {
  const int64_t bytes = BitWidth(dtype) / 8;
  Memory memory(count * bytes);
  for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random());
  if (dtype == DType::kBool) {
    for (uint8_t& byte : memory) byte &= 1;
  }
  const auto put = [&](auto x) {
    const int64_t slots = count * bytes / static_cast<int64_t>(sizeof(x));
    std::memcpy(memory.data() + random() % slots * sizeof(x), &x, sizeof(x));
  };
  if (count < 64) return memory;
  for (int i = 0; i < count / 8; ++i) {
    // Numbers in a limited range of exponents, so that sums and casts round.
    const double x = std::ldexp(static_cast<double>(static_cast<int64_t>(random() >> 11)) - 4e15,
                                static_cast<int>(random() % 80) - 90);
    switch (dtype) {
      case DType::kF32:
      case DType::kC64:
        put(static_cast<float>(x));
        break;
      case DType::kF64:
      case DType::kC128:
        put(x);
        break;
      default:
        break;
    }
  }
  return memory;
}

std::vector<int64_t> Counts(Random& random) {
  return {1, 15, 1024, 4096 + static_cast<int64_t>(random() % 3000)};
}

TEST(CastLaunch, EveryPairAsOnTheCpu) {
  Random random(1);
  int pairs = 0;
  for (int f = 0; f < kNumDTypes; ++f) {
    for (int t = 0; t < kNumDTypes; ++t) {
      const auto from = static_cast<DType>(f);
      const auto to = static_cast<DType>(t);
      CastParams params;
      if (f == t || !CheckCast(from, to).ok()) {
        EXPECT_FALSE(MakeCast(&params, from, &params, to, 1, &params).ok());
        continue;
      }
      ++pairs;
      const CastFunction twin = CastFunctionOf(from, to).value();
      for (const int64_t offset : kOffsets) {
        for (const int64_t count : Counts(random)) {
          const Memory elements = RandomElements(random, from, count);
          Memory source(elements.size() + 32);
          std::copy(elements.begin(), elements.end(), Aligned(source) + offset);
          const int64_t bytes = count * BitWidth(to) / 8;
          Memory expected(bytes);
          twin(elements.data(), expected.data(), count);
          Memory actual(bytes + 64, 0xee);
          uint8_t* dst = Aligned(actual) + 16 + offset;
          ASSERT_TRUE(MakeCast(Aligned(source) + offset, from, dst, to, count, &params).ok());
          EXPECT_EQ(params.access, offset == 0                                ? kAccessVectors
                                   : offset == 8                              ? kAccessElements
                                   : BitWidth(from) == 8 && BitWidth(to) == 8 ? kAccessElements
                                                                              : kAccessBytes);
          const int64_t blocks = CastBlocks(params);
          ASSERT_GE(blocks, 1);
          const auto used = static_cast<uint32_t>(1 + random() % blocks);
          ASSERT_TRUE(EmulateLaunch(kCastEntries[f], used, &params).ok());
          ASSERT_EQ(std::memcmp(dst, expected.data(), bytes), 0)
              << Name(from) << " to " << Name(to) << ", offset " << offset << ", count " << count;
          ASSERT_EQ(dst[-1], 0xee);
          ASSERT_EQ(dst[bytes], 0xee);
        }
      }
    }
  }
  EXPECT_EQ(pairs, 15 * 14 + 15 * 2 + 2);
}

// All reductions of one dtype, with `num_inputs` inputs at equal distances or not.
void CheckReductions(Random& random, DType dtype, int num_inputs, bool strided, int64_t offset) {
  const int64_t bytes = BitWidth(dtype) / 8;
  const int64_t count = Counts(random)[random() % 4];
  const int64_t distance = (count * bytes + 15) / 16 * 16;
  Memory memory(num_inputs * (distance + 16) + 64);
  std::vector<const void*> inputs;
  for (int k = 0; k < num_inputs; ++k) {
    const Memory elements = RandomElements(random, dtype, count);
    // Unequal distances: every second input is 16 bytes further on.
    uint8_t* input =
        Aligned(memory) + offset + k * distance + (strided ? 0 : (k + 1) / 2 % 2 * 16 + k / 2 * 16);
    std::copy(elements.begin(), elements.end(), input);
    inputs.push_back(input);
  }
  for (int o = 0; o < kNumReduceOps; ++o) {
    const Reduction reduction{.op = static_cast<ReduceOp>(o), .divisor = num_inputs + 2};
    if (!CheckReduce(reduction.op, dtype).ok()) continue;
    Memory expected(count * bytes);
    Reduce({.dtype = dtype, .reduction = reduction, .runs = {}}, inputs, 0, count, expected.data());
    Memory actual(count * bytes + 64, 0xee);
    uint8_t* out = Aligned(actual) + offset;
    ReduceParams params;
    const absl::Status made = MakeReduce(inputs, out, count, dtype, reduction, &params);
    ASSERT_TRUE(made.ok()) << made;
    const auto blocks = static_cast<uint32_t>(1 + random() % ReduceBlocks(params));
    ASSERT_TRUE(EmulateLaunch(kReduceEntries[static_cast<int>(dtype)], blocks, &params).ok());
    ASSERT_EQ(std::memcmp(out, expected.data(), expected.size()), 0)
        << Name(reduction.op) << " of " << num_inputs << " " << Name(dtype) << ", offset "
        << offset;
    ASSERT_EQ(out[count * bytes], 0xee);
  }
}

TEST(ReduceLaunch, EveryOpOfEveryDTypeAsOnTheCpu) {
  Random random(2);
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (dtype == DType::kF4E2M1) continue;
    for (const int num_inputs : {1, 2, 3, 5, 6, 9}) {
      for (const bool strided : {true, false}) {
        for (const int64_t offset : kOffsets) {
          CheckReductions(random, dtype, num_inputs, strided, offset);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ReduceLaunch, TakesManyInputsAtEqualDistances) {
  Random random(3);
  CheckReductions(random, DType::kBF16, 700, true, 0);
  CheckReductions(random, DType::kF32, kMaxReduceInputs, false, 0);
  float x[1000] = {};
  std::vector<const void*> inputs(kMaxReduceInputs + 1, x);
  inputs[7] = x + 1;
  ReduceParams params;
  EXPECT_EQ(Message(MakeReduce(inputs, x, 1, DType::kF32, {}, &params)),
            "cannot reduce 481 inputs that are not at equal distances; at most 480 are supported");
}

TEST(ReduceLaunch, InPlace) {
  Random random(4);
  for (const DType dtype : {DType::kBF16, DType::kF64, DType::kC64, DType::kI8}) {
    constexpr int64_t kCount = 3000;
    Memory first = RandomElements(random, dtype, kCount);
    const Memory second = RandomElements(random, dtype, kCount);
    Memory expected(first.size());
    Reduce({.dtype = dtype, .reduction = {}, .runs = {}}, {first.data(), second.data()}, 0, kCount,
           expected.data());
    ReduceParams params;
    ASSERT_TRUE(
        MakeReduce({first.data(), second.data()}, first.data(), kCount, dtype, {}, &params).ok());
    ASSERT_TRUE(EmulateLaunch(kReduceEntries[static_cast<int>(dtype)], 2, &params).ok());
    EXPECT_EQ(first, expected) << Name(dtype);
  }
}

TEST(FillLaunch, EveryIdentityAsOnTheCpu) {
  Random random(5);
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      FillParams params;
      if (op == ReduceOp::kAvg || !CheckReduce(op, dtype).ok()) {
        EXPECT_FALSE(MakeFillIdentity(&params, 1, dtype, op, &params).ok());
        continue;
      }
      for (int64_t offset = 0; offset < 16; ++offset) {
        for (const int64_t count : Counts(random)) {
          Memory expected(count * BitWidth(dtype) / 8 + 64, 0xee);
          Memory actual(expected);
          const int64_t begin = Aligned(actual) - actual.data() + offset;
          ASSERT_TRUE(FillIdentity(dtype, op, expected.data() + begin, count).ok());
          ASSERT_TRUE(MakeFillIdentity(actual.data() + begin, count, dtype, op, &params).ok());
          const auto blocks = static_cast<uint32_t>(1 + random() % FillBlocks(params));
          ASSERT_TRUE(EmulateLaunch(kFillEntry, blocks, &params).ok());
          ASSERT_EQ(actual, expected) << Name(op) << " of " << Name(dtype) << ", offset " << offset;
        }
      }
    }
  }
}

TEST(ElementLaunches, RefuseBadArguments) {
  float x[4] = {};
  FillParams fill;
  EXPECT_EQ(Message(MakeFillIdentity(x, -1, DType::kF32, ReduceOp::kSum, &fill)),
            "a count of -1 is negative");
  EXPECT_EQ(Message(MakeFillIdentity(nullptr, 4, DType::kF32, ReduceOp::kSum, &fill)),
            "the target of 4 elements is null");
  CastParams cast;
  EXPECT_EQ(Message(MakeCast(nullptr, DType::kF32, x, DType::kBF16, 4, &cast)),
            "the source of 4 elements is null");
  EXPECT_TRUE(MakeCast(nullptr, DType::kF32, nullptr, DType::kBF16, 0, &cast).ok());
  ReduceParams reduce;
  EXPECT_EQ(Message(MakeReduce({}, x, 4, DType::kF32, {}, &reduce)), "a reduction has no inputs");
  EXPECT_EQ(Message(MakeReduce({x, nullptr}, x, 4, DType::kF32, {}, &reduce)),
            "an input of 4 elements is null");
  EXPECT_EQ(Message(MakeReduce({x}, x, 4, DType::kF32, {ReduceOp::kAvg, 0}, &reduce)),
            "divisor 0 of an average is not positive");
  EXPECT_EQ(Message(EmulateLaunch("meshift_reduce_f4e2m1", 1, &reduce)),
            "no kernel meshift_reduce_f4e2m1");
}

}  // namespace
}  // namespace meshift::cuda
