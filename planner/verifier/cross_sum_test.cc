// Plans written by hand with a crossing that adds contributions: right ones, and wrong ones with
// the finding of the verifier.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

// The crossing that adds.
Row Add(std::string after, int64_t in, int64_t out, int64_t sent, ReduceOp op = ReduceOp::kSum,
        int64_t divisor = 0) {
  Row row = {kExchange, "->", std::move(after), in, out, sent, kExact, op, divisor};
  row.adds = true;
  return row;
}

TEST(VerifierCrossSumTest, EveryTakerGetsAllContributions) {
  for (const Case& c : std::vector<Case>{
           // Each of two ranks gets both contributions: 2 x 16 bytes of workspace.
           Cross("a=2", "b=2@2-3", "f32[4]", "P", "R", {Add("R", 16, 16, 32)}, 32),
           // A rank that holds a contribution keeps its part of it.
           Cross("a=2", "b=2", "f32[4]", "P", "S(0)", {Add("S(0)", 16, 8, 8)}, 16),
           Cross("a=2", "b=1", "f32[4]", "P", "R", {Add("R", 16, 16, 16)}, 32),
           // Each contribution has two holders, which take turns.
           Cross("a=2,b=2", "c=2@4-5", "f32[4]", "P,R", "R", {Add("R", 16, 16, 16)}, 32),
           Cross("a=2,b=2", "c=2@4-5", "f32[4]", "R,P", "R", {Add("R", 16, 16, 16)}, 32),
           // Three contributions, of 3 or 2 elements for a rank.
           Cross("a=3", "b=2@3-4", "f32[5]", "P", "S(0)", {Add("S(0)", 20, 12, 20)}, 48),
           // Columns are packed: 2 x 32 bytes of contributions, 4 x 16 bytes in messages.
           Cross("a=2,c=2", "b=2@4-5", "f32[4,4]", "P,S(1)", "S(0)", {Add("S(0)", 32, 32, 32)},
                 128),
           // Three contributions of 4 bytes: 12 bytes, rounded up to 16.
           Cross("a=3", "b=1@3", "f32[]", "P", "R", {Add("R", 4, 4, 4)}, 16),
           // The divisor counts the P(avg) mesh dims only; a sum of averages is an average.
           Cross("a=2,b=2", "c=1@4", "i32[4]", "P(avg),P", "R",
                 {Add("R", 16, 16, 16, ReduceOp::kAvg, 2)}, 64),
           Cross("a=2", "c=1@4", "u8[4]", "P(max)", "R", {Add("R", 4, 4, 4, ReduceOp::kMax)}, 16),
           // Mesh dims of size 1 do not count.
           Cross("a=2,x=1", "b=1,y=1@2", "f32[4]", "P,P", "R,R", {Add("R,R", 16, 16, 16)}, 32),
       }) {
    EXPECT_EQ(Judge(c), "") << c.mesh << " " << c.from << " -> " << c.to_mesh << " " << c.to;
  }
}

// Otherwise 2^40 pairs of a rank and a contribution would be visited.
TEST(VerifierCrossSumTest, RanksWithoutElementsTakeNoTime) {
  EXPECT_EQ(Judge(Cross("a=1048576", "b=1048576@1048576-2097151", "u8[1]", "P", "S(0)",
                        {Add("S(0)", 1, 1, 1)}, 1048576)),
            "");
}

TEST(VerifierCrossSumTest, WithStepsOnBothMeshes) {
  // One mesh dim is reduced before, by the engine's own reduction.
  EXPECT_EQ(Judge(Cross("a=2,b=2", "c=2@4-5", "f32[4]", "P,P", "R",
                        {{kReduceScatter, "b", "P,S(0)", 16, 8, 8},
                         Add("S(0)", 8, 8, 8),
                         {kAllGather, "c", "R", 8, 16, 8}},
                        48)),
            "");
  // Casts of the contributions to the reduce dtype, and of the sum to the target's dtype.
  Case cast = Cross(
      "a=2", "b=2@2-3", "bf16[4]", "P", "R",
      {Cast(DType::kF32, "P", 8, 16), Add("R", 16, 16, 32), Cast(DType::kF16, "R", 16, 8)}, 64);
  cast.to_dtype = DType::kF16;
  EXPECT_EQ(Judge(cast), "");
  cast.reduce_dtype = DType::kBF16;
  EXPECT_EQ(Judge(cast), "1 cast: it reduces in f32; the reduce dtype is bf16");
  // A cast rounds each contribution, and the sum is rounded too.
  cast = Cross("a=2", "b=2@2-3", "f32[4]", "P", "R",
               {Cast(DType::kBF16, "P", 16, 8), Add("R", 8, 8, 16)}, 32);
  cast.to_dtype = DType::kBF16;
  EXPECT_EQ(Judge(cast), "1 cast: it reduces in bf16; the reduce dtype is f32");
  // An average of integers must not be reduced again: it would be truncated twice.
  EXPECT_EQ(Judge(Cross("a=2,b=2", "c=1@4", "i32[4]", "P(avg),P", "R",
                        {{kAllReduce, "a", "R,P", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2},
                         Add("R", 16, 16, 16)},
                        48)),
            "0 data: an average of i32 must be the last reduction, but step 1 reduces after it");
  EXPECT_EQ(Judge(Cross(
                "a=2", "c=1@4", "i32[4]", "R", "R",
                {{kMask, "a", "P(avg)", 16, 16, 0}, Add("R", 16, 16, 16, ReduceOp::kAvg, 2)}, 48)),
            "1 data: the sum of the copies of i32 on mesh dim a may wrap");
}

TEST(VerifierCrossSumTest, KeepsEveryPromise) {
  PlanFields plan =
      MakeFields(Cross("a=2,b=2", "c=2@4-5", "f32[4]", "P,P", "R", {Add("R", 16, 16, 32)}, 64));
  for (const Reproducibility promise :
       {Reproducibility::kNone, Reproducibility::kReplicas, Reproducibility::kBatchInvariant,
        Reproducibility::kOrdered}) {
    plan.kept = promise;
    EXPECT_EQ(Judge(plan), "") << Name(promise);
  }
  plan.inputs.options.reduce_block = 2;
  EXPECT_EQ(Judge(plan), "0 reduce_block: reduce_block is null; option reduce_block is 2");
  plan.steps[0].reduce_block = 2;
  EXPECT_EQ(Judge(plan), "");
  plan.inputs.options.reduce_block = 0;
  EXPECT_EQ(Judge(plan), "0 reduce_block: reduce_block is 2; option reduce_block is null");

  // A rounding reduction over a mesh dim of the source comes first.
  plan = MakeFields(Cross("a=2,b=2", "c=2@4-5", "f32[4]", "P,P", "R",
                          {{kAllReduce, "b", "P,R", 16, 16, 16}, Add("R", 16, 16, 16)}, 48));
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kBatchInvariant;
  EXPECT_EQ(Judge(plan), "1 promise: step 0 has rounded the sum before: bits depend on the plan");
  // The result of a mask is not a contribution of the source.
  plan = MakeFields(Cross("a=2,b=2", "c=2@4-5", "f32[4]", "P,R", "R",
                          {{kMask, "b", "P,P", 16, 16, 0}, Add("R", 16, 16, 32)}, 80));
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(
      Judge(plan),
      "1 promise: it reduces over a,b; it must reduce over exactly the mesh dims that are partial "
      "in the source: a");
}

// A right plan with one field changed.
TEST(VerifierCrossSumTest, DamagedFields) {
  const PlanFields right = MakeFields(Cross("a=2,b=2", "c=2@4-5", "bf16[6]", "P(avg),P", "S(0)",
                                            {Add("S(0)", 12, 6, 12, ReduceOp::kAvg, 2)}, 32));
  ASSERT_EQ(Judge(right), "");
  const struct {
    std::string expected;  // the first characters of the verdict
    std::function<void(Step*)> damage;
  } cases[] = {
      {"0 reduce_order: reduce_order is any; a step to another mesh needs ascending",
       [](Step* s) { s->reduce_order = ReduceOrder::kAny; }},
      {"0 reduce_order: reduce_order is null; a step to another mesh needs ascending",
       [](Step* s) { s->reduce_order.reset(); }},
      {"0 reduce_op: reduce_op is sum; it should be avg",
       [](Step* s) { s->reduce_op = ReduceOp::kSum; }},
      {"0 reduce_op: reduce_op is max; it should be avg",
       [](Step* s) { s->reduce_op = ReduceOp::kMax; }},
      {"0 reduce_order: reduce_order is ascending; exchange reduces nothing",
       [](Step* s) { s->reduce_op.reset(); }},
      // Without an addition, only one contribution of each element would arrive.
      {"0 data: mesh dim a is P(avg) before the step: contributions would be lost",
       [](Step* s) {
         s->reduce_op.reset();
         s->reduce_order.reset();
         s->divisor.reset();
         s->accumulate_dtype.reset();
       }},
      {"0 divisor: divisor is 4; it should be 2", [](Step* s) { s->divisor = 4; }},
      {"0 divisor: divisor is null; it should be 2", [](Step* s) { s->divisor.reset(); }},
      {"0 dtype: accumulate_dtype is bf16; it should be f32",
       [](Step* s) { s->accumulate_dtype = DType::kBF16; }},
      {"0 dtype: accumulate_dtype is null; it should be f32",
       [](Step* s) { s->accumulate_dtype.reset(); }},
      {"0 reduce_stages: reduce_stages is 2; exchange to another mesh has none",
       [](Step* s) { s->reduce_stages = 2; }},
      {"0 reduce_block: reduce_block is 2; option reduce_block is null",
       [](Step* s) { s->reduce_block = 2; }},
      {"0 group: groups is 2; it should be 1", [](Step* s) { s->groups = 2; }},
      // The bytes of one contribution only, or of one receiver per sender.
      {"0 bytes: bytes_sent is 6; it should be 12", [](Step* s) { s->bytes_sent = 6; }},
      {"0 bytes: bytes_out is 12; it should be 6", [](Step* s) { s->bytes_out = 12; }},
      {"0 group: group_size is 6; it should be null", [](Step* s) { s->op = kRelabel; }},
      {"0 after: mesh dim c is P after the exchange to another mesh; it must be R or a shard",
       [](Step* s) { s->after = s->after.WithPlacements("P").value(); }},
      {"- target: the last step leaves R; the target is S(0)",
       [](Step* s) { s->after = s->after.WithPlacements("R").value(); }},
  };
  for (const auto& c : cases) {
    PlanFields plan = right;
    c.damage(&plan.steps[0]);
    const std::string verdict = Judge(plan);
    EXPECT_EQ(verdict.substr(0, c.expected.size()), c.expected) << verdict;
  }
  // A value without P has nothing to add.
  PlanFields whole = right;
  whole.from = whole.from.WithPlacements("R,R").value();
  EXPECT_EQ(Judge(whole), "0 reduce_order: reduce_order is ascending; exchange reduces nothing");
  // Workspace for one contribution only.
  PlanFields small = right;
  small.total.workspace_bytes = 16;
  EXPECT_EQ(Judge(small), "- total: total workspace_bytes is 16; it should be 32");
}

}  // namespace
}  // namespace meshift
