// Right plans, which the verifier accepts.
#include "meshift/verifier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"
#include "testing/internal/valid_plans.h"

namespace meshift {
namespace {

void ExpectRight(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(c), "") << c.tensor << " on " << c.mesh << ": " << c.from << " -> " << c.to;
  }
}

TEST(VerifierTest, PlansByHand) { ExpectRight(ValidPlans()); }

TEST(VerifierTest, Casts) {
  using enum DType;
  ExpectRight({
      {"a=2", "f32[4]", "R", "R", {Cast(kBF16, "R", 16, 8)}, 0, kBF16},
      // FSDP's weights: cast, then gathered.
      {"a=4",
       "f32[8,2]",
       "S(0)",
       "R",
       {Cast(kBF16, "S(0)", 16, 8), {kAllGather, "a", "R", 8, 32, 24}},
       16,
       kBF16},
      {"a=4",
       "bf16[8,2]",
       "S(0)",
       "R",
       {{kAllGather, "a", "R", 8, 32, 24}, Cast(kF32, "R", 32, 64)},
       32,
       kF32},
      // Gradients in bf16, reduced in f32.
      {"a=2",
       "bf16[8]",
       "P",
       "S(0)",
       {Cast(kF32, "P", 16, 32),
        {kReduceScatter, "a", "S(0)", 32, 16, 16},
        Cast(kBF16, "S(0)", 16, 8)},
       48,
       {},
       kF32},
      {"a=2",
       "bf16[8]",
       "P",
       "R",
       {{kAllReduce, "a", "R", 16, 16, 16}, Cast(kF32, "R", 16, 32)},
       16,
       kF32},
      // The option reduce_dtype does not matter without reductions.
      {"a=2", "bf16[8]", "R", "R", {Cast(kF64, "R", 16, 64)}, 0, kF64, kF32},
      // Several exact casts are allowed, also of a value that stays partial.
      {"a=2", "f8e4m3[8]", "P", "P", {Cast(kF16, "P", 8, 16), Cast(kF32, "P", 16, 32)}, 16, kF32},
      {"a=2",
       "f8e4m3[8]",
       "R",
       "R",
       {Cast(kF16, "R", 8, 16), Cast(kF32, "R", 16, 32), Cast(kI8, "R", 32, 8)},
       48,
       kI8},
      {"a=2", "i8[8]", "R", "R", {Cast(kI32, "R", 8, 32), Cast(kU16, "R", 32, 16)}, 32, kU16},
      {"a=2", "i8[8]", "R", "R", {Cast(kF16, "R", 8, 16), Cast(kC64, "R", 16, 64)}, 16, kC64},
      // Rounded once before the reduction and once after it.
      {"a=2",
       "f32[8]",
       "P",
       "R",
       {Cast(kBF16, "P", 32, 16), {kAllReduce, "a", "R", 16, 16, 16}, Cast(kF16, "R", 16, 16)},
       32,
       kF16,
       kBF16},
      // A mask after the casts, or before them with a reduction in between.
      {"a=2",
       "i8[4]",
       "R",
       "P(min)",
       {Cast(kI32, "R", 4, 16), {kMask, "a", "P(min)", 16, 16, 0}},
       16,
       kI32},
      {"a=2,b=2",
       "f32[]",
       "P,R",
       "R,R",
       {{kMask, "b", "P,P", 4, 4, 0},
        {kAllReduce, "a,b", "R,R", 4, 4, 6},
        Cast(kBF16, "R,R", 4, 2)},
       32,
       kBF16},
      // An average of integers is formed in the reduce dtype.
      {"a=2,b=2",
       "i32[4]",
       "P(avg),P",
       "S(0),R",
       {Cast(kF32, "P(avg),P", 16, 16),
        {kReduceScatter, "a", "S(0),P", 16, 8, 8, StepSizes::kEven, ReduceOp::kAvg, 2},
        {kAllReduce, "b", "S(0),R", 8, 8, 8}},
       32,
       kF32,
       kF32},
  });
  EXPECT_EQ(Judge(Case{"a=2,b=2",
                       "f32[4]",
                       "P(avg),P",
                       "R,R",
                       {Cast(kI32, "P(avg),P", 16, 16),
                        {kAllReduce, "a", "R,P", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2},
                        {kAllReduce, "b", "R,R", 16, 16, 16}},
                       32,
                       kI32,
                       kI32}),
            "1 data: an average of i32 must be the last reduction, but step 2 reduces after it");
}

// Elements of 4 bits.
TEST(VerifierTest, PackedElements) {
  ExpectRight({
      {"a=2", "f4e2m1[8]", "S(0)", "R", {{kAllGather, "a", "R", 2, 4, 2}}, 0},
      {"a=2", "f4e2m1[4,4]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 4, 4, 2}}, 16},
      {"a=3", "f4e2m1[8,6]", "S(0)", "R", {{kAllGather, "a", "R", 9, 24, 18, kPadded}}, 48},
      {"a=2", "f4e2m1[8]", "R", "S(0)", {{kSlice, "a", "S(0)", 4, 2, 0}}, 0},
  });
}

TEST(VerifierTest, FingerprintIsTheLastRule) {
  const PlanFields fields =
      MakeFields({"a=2", "f32[4]", "P", "R", {{kAllReduce, "a", "R", 16, 16, 16}}, 0});
  const Plan plan = Plan::FromParts(fields, Fingerprint{1, 2});
  const Verdict verdict = Verify(plan);
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.fault->rule, "fingerprint");
  EXPECT_EQ(verdict.fault->step, std::nullopt);
  EXPECT_EQ(verdict.fault->message,
            fmt::format("fingerprint is 00000000000000010000000000000002; it should be {}",
                        Plan::Seal(fields).fingerprint().ToString()));
  EXPECT_TRUE(Verify(plan, {.check_fingerprint = false}).ok());
  EXPECT_TRUE(Verify(Plan::Seal(fields)).ok());
}

// Numbers above 2^63 - 1 are stated as 2^63 - 1.
TEST(VerifierTest, LargeTensors) {
  const int64_t bytes = INT64_MAX - 3;
  PlanFields plan = MakeFields({"a=4",
                                "f32[2305843009213693951]",
                                "P",
                                "R",
                                {{kAllReduce, "a", "R", bytes, bytes, INT64_MAX}},
                                0});
  EXPECT_EQ(Judge(plan), "");
  plan.steps[0].bytes_sent = INT64_MAX - 1;
  EXPECT_EQ(Judge(plan),
            "0 bytes: bytes_sent is 9223372036854775806; it should be 9223372036854775807");
}

// The time depends on the step's group and the sizes of its parents, not on the mesh.
TEST(VerifierTest, LargeMeshes) {
  ExpectRight({
      {"a=1024,b=1024",
       "f32[4096,4096]",
       "P,P",
       "R,R",
       {{kAllReduce, "a,b", "R,R", 67108864, 67108864, 134217600}},
       0},
      {"a=1024,b=1024",
       "f32[1048576]",
       "S(0),S(0)",
       "R,R",
       {{kAllGather, "a,b", "R,R", 4, 4194304, 4194300}},
       0},
      {"a=1024,b=1024",
       "f32[1048576]",
       "S(0),S(0)",
       "S(0)[1],S(0)[0]",
       {{kExchange, "a,b", "S(0)[1],S(0)[0]", 4, 4, 4}},
       0},
      {"a=1024,b=1024",
       "f32[1024,1024]",
       "S(0),S(1)",
       "S(1),S(0)",
       {{kAllToAll, "a,b", "S(1),S(0)", 4, 4, 4}},
       0},
      {"a=65536,b=16384",
       "f32[16384,16384]",
       "S(0),R",
       "S(0),S(1)",
       {{kSlice, "b", "S(0),S(1)", 65536, 4, 0}},
       0},
  });
}

}  // namespace
}  // namespace meshift
