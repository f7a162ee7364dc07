// The needs of a promise about bits: one group forms each value, in one step, in a fixed order.
#include <gtest/gtest.h>

#include <string>

#include "meshift/plan.h"
#include "meshift/verifier.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

TEST(VerifierPromiseTest, OneSourceOfEveryValue) {
  const Case twice = {
      "dp=2,tp=2", "f32[4]", "P,R", "R,R", {{kAllReduce, "dp", "R,R", 16, 16, 16}}, 0};
  EXPECT_EQ(Judge(twice),
            "0 promise: mesh dim tp is replicated: 2 groups form each sum, and their bits may "
            "differ");
  PlanFields plan = MakeFields(twice);
  plan.kept = Reproducibility::kNone;
  EXPECT_EQ(Judge(plan), "");  // `kept` is less than `asked`, and says so

  Case exact = twice;
  exact.tensor = "i32[4]";
  EXPECT_EQ(Judge(exact), "");
  plan = MakeFields(exact);
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "");
  exact.tensor = "f32[4]";
  exact.from = "P(max),R";
  exact.rows[0].reduce_op = ReduceOp::kMax;
  EXPECT_EQ(Judge(exact), "");
  exact.from = "P(product),R";
  exact.rows[0].reduce_op = ReduceOp::kProduct;
  EXPECT_EQ(Judge(exact).substr(0, 10), "0 promise:");
  // A sum of no elements has no bits.
  EXPECT_EQ(
      Judge(Case{"dp=2,tp=2", "f32[0]", "P,R", "R,R", {{kAllReduce, "dp", "R,R", 0, 0, 0}}, 0}),
      "");

  plan = MakeFields({"a=2", "f32[4]", "P", "R", {{kAllReduce, "a", "R", 16, 16, 16}}, 0});
  plan.kept = Reproducibility::kBatchInvariant;
  EXPECT_EQ(Judge(plan),
            "0 promise: nothing in the plan shows that its sum of f32 is batch-invariant: option "
            "native_invariance is none");
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "0 promise: nothing in the plan shows that its sum of f32 is ordered");
  plan = MakeFields({"a=2", "f32[4]", "S(0)", "R", {{kAllGather, "a", "R", 8, 16, 8}}, 0});
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "");
}

// In blocks of 2 of 4 ranks, in stages. An all_reduce of 6 elements has slices of 2, 2, 2 and 0,
// and columns of 4 and 2. A rank that owns 2 elements of the first column sends: the other column;
// 2 elements of its own as f32; its 2 sums once; and the 4 sums of its column once.
TEST(VerifierPromiseTest, ReductionsInStages) {
  PlanFields plan = MakeFields(
      {"a=2,b=2", "bf16[6]", "P,P", "R,R", {{kAllReduce, "a,b", "R,R", 12, 12, 24}}, 48});
  plan.kept = Reproducibility::kOrdered;
  plan.inputs.options.reduce_block = 2;
  Step& reduce = plan.steps[0];
  reduce.reduce_order = ReduceOrder::kAscending;
  reduce.reduce_block = 2;
  reduce.reduce_stages = 2;
  EXPECT_EQ(Judge(plan), "");
  reduce.bytes_sent = 20;
  EXPECT_EQ(Judge(plan), "0 bytes: bytes_sent is 20; it should be 24");
  reduce.bytes_sent = 24;
  reduce.reduce_stages = 3;
  EXPECT_EQ(Judge(plan), "0 reduce_stages: reduce_stages is 3; reduce_block is 2 in groups of 4");
  reduce.reduce_stages = 2;
  for (const int64_t block : {1, 3, 4}) {
    plan.inputs.options.reduce_block = block;
    reduce.reduce_block = block;
    EXPECT_EQ(Judge(plan), "0 reduce_stages: reduce_stages is 2; reduce_block is " +
                               std::to_string(block) + " in groups of 4");
  }
  reduce.reduce_block.reset();
  EXPECT_EQ(Judge(plan), "0 reduce_stages: reduce_stages is 2; reduce_block is 0 in groups of 4");

  // Every piece is sent as 2 elements: two pieces inside the block, one across.
  plan = MakeFields({"a=4", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 24}}, 48});
  plan.kept = Reproducibility::kOrdered;
  plan.inputs.options.reduce_block = 2;
  Step& scatter = plan.steps[0];
  scatter.reduce_order = ReduceOrder::kAscending;
  scatter.reduce_block = 2;
  scatter.reduce_stages = 2;
  scatter.sizes = StepSizes::kPadded;
  EXPECT_EQ(Judge(plan), "");
  scatter.sizes = StepSizes::kExact;
  EXPECT_EQ(Judge(plan), "0 sizes: sizes is exact; it should be padded");
}

// In order, 6 elements among 4 ranks: slices of 2, 2, 2 and 0. A rank that owns 2 elements sends 4
// of its contribution and its 2 sums three times, and receives 4 x 2 elements.
TEST(VerifierPromiseTest, OrderedReductions) {
  PlanFields plan =
      MakeFields({"a=2,b=2", "f32[6]", "P,P", "R,R", {{kAllReduce, "a,b", "R,R", 24, 24, 40}}, 32});
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "");
  plan.steps[0].bytes_sent = 36;
  EXPECT_EQ(Judge(plan), "0 bytes: bytes_sent is 36; it should be 40");

  // Pieces of 2, 2, 1 and 0 of 5 elements: the last rank sends all 5, unpacked.
  plan = MakeFields({"a=4", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 20}}, 32});
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "0 sizes: sizes is even; it should be exact");
  plan.steps[0].sizes = StepSizes::kExact;
  EXPECT_EQ(Judge(plan), "");

  // In blocks: a step must have the block of the option, and only a step in order may have one.
  const auto asks = [&plan](int64_t block) {
    plan.inputs.options.reduce_block = block;
    return Judge(plan);
  };
  EXPECT_EQ(asks(2), "0 reduce_block: reduce_block is null; option reduce_block is 2");
  plan.steps[0].reduce_block = 2;
  EXPECT_EQ(asks(2), "");
  EXPECT_EQ(asks(3), "0 reduce_block: reduce_block is 2; option reduce_block is 3");
  EXPECT_EQ(asks(-1), "- reduce_block: option reduce_block is -1, below 0");
  EXPECT_EQ(asks(0), "0 reduce_block: reduce_block is 2; option reduce_block is null");
  plan.steps[0].reduce_order = ReduceOrder::kAny;
  EXPECT_EQ(Judge(plan),
            "0 reduce_block: reduce_block is 2; reduce_scatter is not in ascending order");

  // Several groups have equal contributions, so equal sums in order.
  plan =
      MakeFields({"a=2,b=2", "f32[6]", "P,R", "R,R", {{kAllReduce, "a", "R,R", 24, 24, 24}}, 32});
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kReplicas;
  EXPECT_EQ(Judge(plan), "");

  // One mesh dim at a time: two rounding reductions.
  plan = MakeFields({"a=2,b=2",
                     "f32[6]",
                     "P,P",
                     "R,R",
                     {{kAllReduce, "a", "R,P", 24, 24, 24}, {kAllReduce, "b", "R,R", 24, 24, 24}},
                     64});
  for (Step& step : plan.steps) step.reduce_order = ReduceOrder::kAscending;
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "1 promise: step 0 has rounded the sum before: bits depend on the plan");

  // The result of a mask is not a contribution of the source.
  plan = MakeFields({"a=2,b=2",
                     "f32[6]",
                     "P,R",
                     "R,R",
                     {{kMask, "b", "P,P", 24, 24, 0}, {kAllReduce, "a,b", "R,R", 24, 24, 40}},
                     64});
  plan.steps[1].reduce_order = ReduceOrder::kAscending;
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kBatchInvariant;
  EXPECT_EQ(
      Judge(plan),
      "1 promise: it reduces over a,b; it must reduce over exactly the mesh dims that are partial "
      "in the source and not in the target: a");
}

TEST(VerifierPromiseTest, NativeReductionsThatTreatElementsAlike) {
  PlanFields plan = MakeFields(
      {"a=2,b=3", "f32[6]", "S(0),P", "S(0),R", {{kAllReduce, "b", "S(0),R", 12, 12, 16}}, 0});
  plan.kept = Reproducibility::kBatchInvariant;
  const std::string nothing =
      "0 promise: nothing in the plan shows that its sum of f32 is batch-invariant: ";
  EXPECT_EQ(Judge(plan), nothing + "option native_invariance is none");
  plan.inputs.options.engine.native_invariance = NativeInvariance::kAllReduce;
  EXPECT_EQ(Judge(plan), "");
  // Groups 0-2 and 3-5 on domains of 4: the second group has ranks of two domains.
  plan.inputs.options.topology = *Topology::Parse("nvlink=4");
  EXPECT_EQ(Judge(plan), nothing + "its groups are not equivalent on the topology");
  plan.inputs.options.topology = *Topology::Parse("nvlink=3");
  EXPECT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "0 promise: nothing in the plan shows that its sum of f32 is ordered");

  plan = MakeFields({"a=2,b=3",
                     "f32[6]",
                     "S(0),P",
                     "S(0),S(0)",
                     {{kReduceScatter, "b", "S(0),S(0)", 12, 4, 8}},
                     0});
  plan.kept = Reproducibility::kBatchInvariant;
  plan.inputs.options.engine.native_invariance = NativeInvariance::kAllReduce;
  EXPECT_EQ(Judge(plan), nothing + "option native_invariance is all_reduce");
  plan.inputs.options.engine.native_invariance = NativeInvariance::kReduceScatter;
  EXPECT_EQ(Judge(plan), "");
}

}  // namespace
}  // namespace meshift
