#include "comm/kernels/identity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/kernels/reduce.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

// The element's bytes, most significant first.
std::string Hex(DType dtype, ReduceOp op) {
  const auto element = IdentityOf(dtype, op);
  if (!element.ok()) return Message(element.status());
  std::string hex;
  for (int i = BitWidth(dtype) / 8 - 1; i >= 0; --i) hex += fmt::format("{:02x}", (*element)[i]);
  return hex;
}

TEST(Identity, OfSums) {
  EXPECT_EQ(Hex(DType::kF32, ReduceOp::kSum), "80000000");
  EXPECT_EQ(Hex(DType::kF64, ReduceOp::kSum), "8000000000000000");
  EXPECT_EQ(Hex(DType::kBF16, ReduceOp::kSum), "8000");
  EXPECT_EQ(Hex(DType::kF8E4M3, ReduceOp::kSum), "80");
  EXPECT_EQ(Hex(DType::kC64, ReduceOp::kSum), "8000000080000000");
  EXPECT_EQ(Hex(DType::kI32, ReduceOp::kSum), "00000000");
}

TEST(Identity, OfProducts) {
  EXPECT_EQ(Hex(DType::kF16, ReduceOp::kProduct), "3c00");
  EXPECT_EQ(Hex(DType::kF8E4M3, ReduceOp::kProduct), "38");
  EXPECT_EQ(Hex(DType::kF8E5M2, ReduceOp::kProduct), "3c");
  EXPECT_EQ(Hex(DType::kC64, ReduceOp::kProduct), "000000003f800000");
  EXPECT_EQ(Hex(DType::kU64, ReduceOp::kProduct), "0000000000000001");
}

TEST(Identity, OfMinAndMax) {
  EXPECT_EQ(Hex(DType::kF32, ReduceOp::kMin), "7f800000");
  EXPECT_EQ(Hex(DType::kF32, ReduceOp::kMax), "ff800000");
  EXPECT_EQ(Hex(DType::kF8E5M2, ReduceOp::kMin), "7c");
  EXPECT_EQ(Hex(DType::kF8E4M3, ReduceOp::kMin), "7e");  // 448: f8e4m3 has no infinity
  EXPECT_EQ(Hex(DType::kF8E4M3, ReduceOp::kMax), "fe");
  EXPECT_EQ(Hex(DType::kI8, ReduceOp::kMin), "7f");
  EXPECT_EQ(Hex(DType::kI16, ReduceOp::kMax), "8000");
  EXPECT_EQ(Hex(DType::kU32, ReduceOp::kMin), "ffffffff");
  EXPECT_EQ(Hex(DType::kU32, ReduceOp::kMax), "00000000");
  EXPECT_EQ(Hex(DType::kBool, ReduceOp::kMin), "01");
  EXPECT_EQ(Hex(DType::kBool, ReduceOp::kMax), "00");
}

TEST(Identity, OfBitOperations) {
  EXPECT_EQ(Hex(DType::kI16, ReduceOp::kAnd), "ffff");
  EXPECT_EQ(Hex(DType::kBool, ReduceOp::kAnd), "01");
  EXPECT_EQ(Hex(DType::kU8, ReduceOp::kOr), "00");
  EXPECT_EQ(Hex(DType::kU8, ReduceOp::kXor), "00");
}

TEST(Identity, RefusesWhatHasNone) {
  EXPECT_EQ(Hex(DType::kF32, ReduceOp::kAvg),
            "avg has no identity: P(avg) keeps its value on every coordinate");
  EXPECT_EQ(Hex(DType::kF4E2M1, ReduceOp::kSum),
            "sum of f4e2m1 is refused: f4e2m1 is a storage format and cannot be reduced");
  EXPECT_EQ(Message(FillIdentity(DType::kF32, ReduceOp::kSum, nullptr, 3)),
            "the buffer to fill is null, but the count is 3");
  EXPECT_EQ(Message(FillIdentity(DType::kF32, ReduceOp::kSum, nullptr, -3)),
            "a count of -3 is negative");
}

// Combining any value with the identity, on either side, gives the value, bit for bit.
TEST(Identity, IsNeutral) {
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (op == ReduceOp::kAvg || !CheckReduce(op, dtype).ok()) continue;
      // A complex infinity times 1 + 0i has NaN components.
      if (IsComplex(dtype) && op == ReduceOp::kProduct) continue;
      const int64_t bytes = BitWidth(dtype) / 8;
      constexpr int64_t kCount = 256;
      std::vector<uint8_t> values(kCount * bytes);
      for (int64_t i = 0; i < kCount * bytes; ++i) {
        const int64_t byte = i % bytes;
        values[i] = static_cast<uint8_t>(byte == bytes - 1 ? i / bytes : 5 * i);
      }
      if (dtype == DType::kBool) {
        for (uint8_t& value : values) value &= 1;
      }
      std::vector<uint8_t> identity(values.size());
      ASSERT_TRUE(FillIdentity(dtype, op, identity.data(), kCount).ok());
      ReduceSpec spec;
      spec.dtype = dtype;
      spec.reduction.op = op;
      // A reduction of one value makes its NaN canonical.
      std::vector<uint8_t> alone(values.size());
      Reduce(spec, {values.data()}, 0, kCount, alone.data());
      std::vector<uint8_t> first(values.size());
      Reduce(spec, {values.data(), identity.data()}, 0, kCount, first.data());
      std::vector<uint8_t> last(values.size());
      Reduce(spec, {identity.data(), values.data()}, 0, kCount, last.data());
      EXPECT_EQ(first, alone) << Name(dtype) << " " << Name(op);
      EXPECT_EQ(last, alone) << Name(dtype) << " " << Name(op);
    }
  }
}

}  // namespace
}  // namespace meshift
