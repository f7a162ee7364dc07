#include "testing/fake_gpu/reduction.h"

#include <nccl.h>

#include <cmath>
#include <cstring>

#include "gmock/gmock.h"

namespace meshift::fake {
namespace {

using ::testing::ElementsAre;

template <typename T>
Payload Of(const std::vector<T>& values) {
  auto payload = std::make_shared<std::vector<char>>(values.size() * sizeof(T));
  std::memcpy(payload->data(), values.data(), payload->size());
  return payload;
}

template <typename T>
std::vector<T> From(const Payload& payload) {
  std::vector<T> values(payload->size() / sizeof(T));
  std::memcpy(values.data(), payload->data(), payload->size());
  return values;
}

// One element of an all-reduce, with the ranks' contributions in ring order.
template <typename T>
T Reduced(int dtype, int op, const std::vector<T>& contributions) {
  const int ranks = static_cast<int>(contributions.size());
  std::vector<Payload> inputs;
  // A reduction to the last rank: the sum begins at rank 0.
  for (const T& value : contributions) inputs.push_back(Of<T>({value}));
  const OpDescription description = {
      .kind = OpKind::kReduce, .dtype = dtype, .op = op, .root = ranks - 1, .count = 1};
  std::vector<int> ring;
  for (int rank = 0; rank < ranks; ++rank) ring.push_back(rank);
  const auto results = RunCollective(description, inputs, ring);
  EXPECT_EQ(results[0], ranks == 1 ? results[0] : nullptr);
  return From<T>(results.back())[0];
}

TEST(ReductionTest, Bfloat16AddsInItsOwnType) {
  // 256 + 1 is 256 in bf16, at each hop.
  EXPECT_EQ(Reduced<uint16_t>(ncclBfloat16, ncclSum, {0x4380, 0x3f80, 0x3f80}), 0x4380);
  EXPECT_EQ(Reduced<uint16_t>(ncclBfloat16, ncclSum, {0x3f80, 0x3f80, 0x4380}), 0x4381);
}

TEST(ReductionTest, Float16Overflows) {
  EXPECT_EQ(Reduced<uint16_t>(ncclFloat16, ncclSum, {0x7bff, 0x7bff}), 0x7c00);
}

TEST(ReductionTest, Fp8Saturates) {
  EXPECT_EQ(Reduced<uint8_t>(ncclFloat8e4m3, ncclSum, {0x7e, 0x7e}), 0x7e);   // 448 + 448
  EXPECT_EQ(Reduced<uint8_t>(ncclFloat8e4m3, ncclSum, {0x38, 0x38}), 0x40);   // 1 + 1
  EXPECT_EQ(Reduced<uint8_t>(ncclFloat8e5m2, ncclProd, {0x3c, 0x40}), 0x40);  // 1 * 2
}

TEST(ReductionTest, AverageRoundsTheInverse) {
  EXPECT_EQ(Reduced<float>(ncclFloat32, ncclAvg, {1, 2, 3}), 2.0F);
  EXPECT_EQ(Reduced<int32_t>(ncclInt32, ncclAvg, {-1, -1, -3}), -1);  // -5 / 3
  // In bf16 a third is 0.333984375 (0x3eab): three thirds of 3 are 3.
  EXPECT_EQ(Reduced<uint16_t>(ncclBfloat16, ncclAvg, {0x3f80, 0x3f80, 0x3f80}), 0x3f80);
}

TEST(ReductionTest, IntegersWrap) {
  EXPECT_EQ(Reduced<int8_t>(ncclInt8, ncclSum, {127, 1}), -128);
  EXPECT_EQ(Reduced<uint8_t>(ncclUint8, ncclProd, {16, 17}), 16);
  EXPECT_EQ(Reduced<int64_t>(ncclInt64, ncclMin, {3, -4}), -4);
}

TEST(ReductionTest, MinAndMaxDropNaN) {
  EXPECT_EQ(Reduced<float>(ncclFloat32, ncclMax, {NAN, 1.0F}), 1.0F);
  EXPECT_TRUE(std::signbit(Reduced<float>(ncclFloat32, ncclMin, {0.0F, -0.0F})));
  EXPECT_FALSE(std::signbit(Reduced<float>(ncclFloat32, ncclMax, {-0.0F, 0.0F})));
}

TEST(ReductionTest, TheRingStartsElsewhereForEachPart) {
  // 2^24 + 1 + 1 depends on the order of additions.
  const float big = 16777216.0F;
  const std::vector<float> row[] = {{big, big, big}, {1, 1, 1}, {1, 1, 1}};
  const std::vector<Payload> inputs = {Of(row[0]), Of(row[1]), Of(row[2])};
  const OpDescription description = {
      .kind = OpKind::kAllReduce, .dtype = ncclFloat32, .op = ncclSum, .root = 0, .count = 3};
  const auto results = RunCollective(description, inputs, {0, 1, 2});
  EXPECT_THAT(From<float>(results[2]), ElementsAre(big + 2, big, big));
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace meshift::fake
