#include "meshift/placement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "base/status.h"
#include "meshift/dtype.h"

namespace meshift {
namespace {

TEST(ReduceOp, NamesParse) {
  const char* const kNames[] = {"sum", "avg", "min", "max", "product", "and", "or", "xor"};
  for (int i = 0; i < kNumReduceOps; ++i) {
    EXPECT_EQ(std::string(Name(static_cast<ReduceOp>(i))), kNames[i]);
    ASSERT_TRUE(ParseReduceOp(kNames[i]).ok());
    EXPECT_EQ(*ParseReduceOp(kNames[i]), static_cast<ReduceOp>(i));
  }
  EXPECT_EQ(Message(ParseReduceOp("mean").status()),
            "unknown reduce op 'mean'; expected one of: sum, avg, min, max, product, and, or, xor");
}

TEST(ReduceOp, ExactInAnyOrder) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const bool rounds = IsFloat(dtype) || IsComplex(dtype);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
      EXPECT_EQ(IsExact(op, dtype), !rounds) << Name(op) << " " << Name(dtype);
    }
    for (ReduceOp op :
         {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAnd, ReduceOp::kOr, ReduceOp::kXor}) {
      EXPECT_TRUE(IsExact(op, dtype)) << Name(op) << " " << Name(dtype);
    }
  }
}

TEST(Placement, Prints) {
  EXPECT_EQ(Placement::Replicate().ToString(), "R");
  EXPECT_EQ(Placement::Shard(3).ToString(), "S(3)");
  EXPECT_EQ(Placement::RaggedShard(0, {3, 0, 5}).ToString(), "S(0){3,0,5}");
  EXPECT_EQ(Placement::Partial().ToString(), "P");
  EXPECT_EQ(Placement::Partial(ReduceOp::kMax).ToString(), "P(max)");
}

TEST(Placement, ComparesAndHashes) {
  const std::vector<Placement> different = {
      Placement::Replicate(),
      Placement::Shard(0),
      Placement::Shard(1),
      Placement::RaggedShard(0, {1, 2}),
      Placement::RaggedShard(0, {2, 1}),
      Placement::Partial(),
      Placement::Partial(ReduceOp::kAvg),
  };
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < different.size(); ++j) {
      EXPECT_EQ(different[i] == different[j], i == j);
    }
  }
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(different));
}

}  // namespace
}  // namespace meshift
