#include "comm/nccl/native_reduction.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <set>
#include <string>

#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

// The dtypes for which `op` is a valid reduction and NCCL can do it.
std::set<std::string> NativeDTypes(ReduceOp op) {
  std::set<std::string> names;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!CheckReduce(op, dtype).ok() || !NativeReductionOf(dtype, {op, 3})) continue;
    names.insert(std::string(Name(dtype)));
  }
  return names;
}

using Names = std::set<std::string>;

TEST(NativeReductionTest, OnlyWhereTheArithmeticAgrees) {
  const Names integers = {"i8", "i32", "i64", "u8", "u32", "u64"};
  Names sums = integers;
  sums.insert({"f16", "bf16", "f32", "f64", "c64", "c128"});
  EXPECT_EQ(NativeDTypes(ReduceOp::kSum), sums);
  Names products = integers;
  products.insert({"f16", "bf16", "f32", "f64"});
  EXPECT_EQ(NativeDTypes(ReduceOp::kProduct), products);
  Names averages = integers;
  averages.insert({"f32", "f64", "c64", "c128"});
  EXPECT_EQ(NativeDTypes(ReduceOp::kAvg), averages);
  Names bounds = integers;
  bounds.insert("bool");
  EXPECT_EQ(NativeDTypes(ReduceOp::kMin), bounds);
  EXPECT_EQ(NativeDTypes(ReduceOp::kMax), bounds);
  for (const ReduceOp op : {ReduceOp::kAnd, ReduceOp::kOr, ReduceOp::kXor}) {
    EXPECT_EQ(NativeDTypes(op), Names());
  }
}

TEST(NativeReductionTest, AveragesAreSumsThatAreDividedOnce) {
  const auto average = NativeReductionOf(DType::kF32, {ReduceOp::kAvg, 3});
  ASSERT_TRUE(average);
  EXPECT_EQ(average->op, ncclSum);
  EXPECT_TRUE(average->divide);
  EXPECT_FALSE(NativeReductionOf(DType::kF32, {ReduceOp::kAvg, 1})->divide);
  EXPECT_FALSE(NativeReductionOf(DType::kF32, {ReduceOp::kSum, 3})->divide);
}

TEST(NativeReductionTest, ComplexNumbersAreTwoFloats) {
  const auto sum = NativeReductionOf(DType::kC128, {ReduceOp::kSum, 1});
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->type, ncclFloat64);
  EXPECT_EQ(sum->dtype, DType::kF64);
  EXPECT_EQ(sum->parts, 2);
}

}  // namespace
}  // namespace meshift
