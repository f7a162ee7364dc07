// Plans that are right.
#include "planner/verifier/verifier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "planner/verifier/cases.h"

namespace meshift {
namespace {

void ExpectRight(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(c), "") << c.tensor << " on " << c.mesh << ": " << c.from << " -> " << c.to;
  }
}

TEST(VerifierTest, ExamplesOfTheFormat) {
  ExpectRight({
      {"ddp=8,fsdp=5,tp=1",
       "f32[64,40]",
       "P,P,R",
       "R,R,R",
       {{kAllReduce, "ddp,fsdp", "R,R,R", 10240, 10240, 19968}},
       0},
      {"dp=4,tp=2",
       "f32[64,40]",
       "P,R",
       "R,R",
       {{kSlice, "tp", "P,S(0)", 10240, 5120, 0},
        {kAllReduce, "dp", "R,S(0)", 5120, 5120, 7680},
        {kAllGather, "tp", "R,R", 5120, 10240, 5120}},
       10240},
      {"a=2,b=2",
       "f32[8,6]",
       "P,P",
       "S(0),S(1)",
       {{kReduceScatter, "a,b", "S(0),S(1)", 192, 48, 144}},
       192},
      {"a=2,b=2",
       "f32[8]",
       "S(0),S(0)",
       "S(0)[1],S(0)[0]",
       {{kPermute, "a,b", "S(0)[1],S(0)[0]", 8, 8, 8}},
       0},
  });
}

TEST(VerifierTest, UnevenBoxes) {
  ExpectRight({
      // Boxes of 2, 2 and 1 rows.
      {"a=3", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 8, 20, 16, kPadded}}, 48},
      {"a=3", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 16, kPadded}}, 48},
      // Rank 0 sends 2 of 3 columns of 2 rows, rank 2 receives 4 rows.
      {"a=3", "f32[5,3]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 20, 16, kExact}}, 16},
      // Rows 0-1 | 2-3, cut again: 2 and 0, 2 and 0. Evenly cut by a; by b into pieces of 1, 1.
      {"a=2,b=3",
       "f32[4]",
       "S(0),S(0)",
       "S(0),R",
       {{kAllGather, "b", "S(0),R", 4, 8, 8, kPadded}},
       32},
      // More ranks than rows: ranks 0 and 1 hold a row, the others nothing.
      {"a=4", "f32[2]", "S(0)", "R", {{kAllGather, "a", "R", 4, 8, 12, kPadded}}, 32},
      {"a=2,b=2",
       "bf16[3,2]",
       "S(0),R",
       "S(1),S(0)",
       {{kSlice, "b", "S(0),S(1)", 8, 4, 0}, {kPermute, "a,b", "S(1),S(0)", 4, 4, 4, kExact}},
       16},
  });
}

TEST(VerifierTest, RaggedShards) {
  ExpectRight({
      // Blocks of 3, 0 and 5 elements: padded to 5, or one behind the other.
      {"a=3", "f32[8]", "S(0){3,0,5}", "R", {{kAllGather, "a", "R", 20, 32, 40, kPadded}}, 96},
      {"a=3", "f32[8]", "S(0){3,0,5}", "R", {{kAllGather, "a", "R", 20, 32, 32, kExact}}, 0},
      {"a=3",
       "f32[8]",
       "P",
       "S(0){3,0,5}",
       {{kReduceScatter, "a", "S(0){3,0,5}", 32, 20, 40, kPadded}},
       96},
      {"a=3",
       "f32[8]",
       "P",
       "S(0){3,0,5}",
       {{kReduceScatter, "a", "S(0){3,0,5}", 32, 20, 32, kExact}},
       0},
      // Columns lie apart in the rows, so that exact blocks are packed too. Every rank has some.
      {"a=3", "f32[2,8]", "S(1){2,1,5}", "R", {{kAllGather, "a", "R", 40, 64, 56, kExact}}, 64},
      {"a=3",
       "f32[2,8]",
       "P",
       "S(1){2,1,5}",
       {{kReduceScatter, "a", "S(1){2,1,5}", 64, 40, 56, kExact}},
       64},
      // Rank 2 gives 2 to rank 0, 3 to rank 1, and keeps nothing.
      {"a=3",
       "f32[8]",
       "S(0){3,0,5}",
       "S(0){5,3,0}",
       {{kAllToAll, "a", "S(0){5,3,0}", 20, 20, 20, kExact}},
       0},
      {"a=3", "f32[8]", "S(0){3,0,5}", "S(0)", {{kAllToAll, "a", "S(0)", 20, 12, 12, kExact}}, 0},
      {"a=3", "f32[8]", "R", "S(0){3,0,5}", {{kSlice, "a", "S(0){3,0,5}", 32, 20, 0}}, 0},
      // Behind a ragged cut: halves of 2 and of 4; or the ragged cut itself, of the worst group.
      {"a=2,b=2",
       "f32[6]",
       "S(0){2,4},S(0)",
       "S(0){2,4},R",
       {{kAllGather, "b", "S(0){2,4},R", 8, 16, 8}},
       0},
      {"a=2,b=2",
       "f32[6]",
       "S(0){2,4},S(0)",
       "R,R",
       {{kAllGather, "a,b", "R,R", 8, 24, 20, kExact}},
       0},
      // Two ragged cuts: boxes of 3x1, 3x4, 1x1 and 1x4 of 4x5.
      {"a=2,b=2",
       "f32[4,5]",
       "S(0){3,1},S(1){1,4}",
       "R,R",
       {{kAllGather, "a,b", "R,R", 48, 80, 76, kExact}},
       80},
      {"a=2,b=2",
       "f32[4]",
       "S(0){3,1},R",
       "R,S(0){3,1}",
       {{kPermute, "a,b", "R,S(0){3,1}", 12, 12, 12, kExact}},
       0},
  });
}

TEST(VerifierTest, TensorsWithoutElementsOrDims) {
  ExpectRight({
      {"a=2", "f32[0]", "R", "S(0)", {{kSlice, "a", "S(0)", 0, 0, 0}}, 0},
      // A step over an empty tensor is a step like any other.
      {"a=2", "f32[0]", "S(0)", "R", {{kAllGather, "a", "R", 0, 0, 0}}, 0},
      {"a=2,b=2",
       "f32[0,5]",
       "P,S(1)",
       "R,R",
       {{kAllReduce, "a", "R,S(1)", 0, 0, 0}, {kAllGather, "b", "R,R", 0, 0, 0}},
       0},
      {"a=2", "f32[0,5]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 0, 0, 0}}, 0},
      {"a=2", "f32[]", "P", "R", {{kAllReduce, "a", "R", 4, 4, 4}}, 0},
      {"a=2,b=2",
       "f32[]",
       "P,R",
       "R,R",
       {{kMask, "b", "P,P", 4, 4, 0}, {kAllReduce, "a,b", "R,R", 4, 4, 6}},
       16},
      {"a=2", "f32[]", "R", "R", {}, 0},
      // Likewise where each rank holds already what it shall have.
      {"a=2,b=2",
       "f32[1]",
       "S(0),S(0)",
       "S(0)[1],S(0)[0]",
       {{kPermute, "a,b", "S(0)[1],S(0)[0]", 4, 4, 0, kExact}},
       0},
      {"a=4", "f32[2,1,1]", "S(2)", "S(1)", {{kAllToAll, "a", "S(1)", 8, 8, 0, kExact}}, 0},
  });
}

TEST(VerifierTest, MeshDimsOfSizeOneDoNotCount) {
  ExpectRight({
      {"a=1,b=2,c=1",
       "f32[4]",
       "P,P,S(0)",
       "S(0),R,P",
       {{kAllReduce, "b", "S(0),R,P", 16, 16, 16}},
       0},
      {"a=1,b=2,c=1",
       "f32[4]",
       "P,P,S(0)",
       "S(0),R,P",
       {{kAllReduce, "b", "R,R,R", 16, 16, 16}},
       0},
      {"a=1", "f32[4]", "P", "S(0)", {}, 0},
      // tp is no replica, so the promise holds.
      {"a=2,tp=1", "f32[4]", "P,R", "S(0),R", {{kReduceScatter, "a", "S(0),R", 16, 8, 8}}, 0},
  });
}

// A gather is packed where boxes do not lie in the order of the ranks.
TEST(VerifierTest, ListedRanks) {
  const std::vector<Row> gather = {{kAllGather, "a", "R", 8, 32, 24}};
  ExpectRight({
      {"a=4", "f32[8]", "S(0)", "R", gather, 0},
      {"a=4@4-7", "f32[8]", "S(0)", "R", gather, 0},
      {"a=4@1,3,5,9", "f32[8]", "S(0)", "R", gather, 0},
      {"a=4@2,0,1,3", "f32[8]", "S(0)", "R", gather, 32},
      {"a=2,b=2@0,2,1,3", "f32[8]", "S(0),R", "R,R", {{kAllGather, "a", "R,R", 16, 32, 16}}, 0},
      {"a=2,b=2@0,2,3,1", "f32[8]", "S(0),R", "R,R", {{kAllGather, "a", "R,R", 16, 32, 16}}, 32},
      // Only the group of the empty half is out of order.
      {"a=2,b=2@0,1,3,2",
       "f32[2,1]",
       "S(1),S(0)",
       "S(1),R",
       {{kAllGather, "b", "S(1),R", 4, 8, 4}},
       0},
      {"a=2,b=2@3,2,1,0",
       "f32[8]",
       "P,P",
       "S(0),S(0)",
       {{kReduceScatter, "a,b", "S(0),S(0)", 32, 8, 24}},
       32},
  });
}

TEST(VerifierTest, GathersOfSeveralTensorDims) {
  ExpectRight({
      {"a=2,b=2", "f32[8,6]", "S(0),S(1)", "R,R", {{kAllGather, "a,b", "R,R", 48, 192, 144}}, 192},
      // One row a box: each is one run, in order.
      {"a=2,b=2", "f32[2,6]", "S(0),S(1)", "R,R", {{kAllGather, "a,b", "R,R", 12, 48, 36}}, 0},
      // The same boxes in another order.
      {"a=2,b=2", "f32[2,6]", "S(1),S(0)", "R,R", {{kAllGather, "a,b", "R,R", 12, 48, 36}}, 48},
      {"a=2,b=2", "f32[8]", "S(0)[1],S(0)[0]", "R,R", {{kAllGather, "a,b", "R,R", 8, 32, 24}}, 32},
      {"a=2,b=2", "f32[8]", "S(0),S(0)", "S(0),R", {{kAllGather, "b", "S(0),R", 8, 16, 8}}, 0},
      {"a=2,b=2", "f32[2,4]", "S(0),S(1)", "S(0),R", {{kAllGather, "b", "S(0),R", 8, 16, 8}}, 0},
      {"a=2,b=2", "f32[4,4]", "S(0),S(1)", "S(0),R", {{kAllGather, "b", "S(0),R", 16, 32, 16}}, 32},
  });
}

TEST(VerifierTest, Averages) {
  const ReduceOp avg = ReduceOp::kAvg;
  ExpectRight({
      {"a=2,b=3",
       "bf16[6]",
       "P(avg),P",
       "R,R",
       {{kAllReduce, "a,b", "R,R", 12, 12, 20, StepSizes::kEven, avg, 2}},
       0},
      {"a=2,b=3",
       "i32[6]",
       "P(avg),P(avg)",
       "R,R",
       {{kAllReduce, "a,b", "R,R", 24, 24, 40, StepSizes::kEven, avg, 6}},
       0},
      {"a=2,b=3",
       "i32[6]",
       "P(avg),P",
       "R,R",
       {{kAllReduce, "b", "P(avg),R", 24, 24, 32},
        {kAllReduce, "a", "R,R", 24, 24, 24, StepSizes::kEven, avg, 2}},
       32},
      // Truncated last, then copied.
      {"a=2",
       "i32[6]",
       "P(avg)",
       "R",
       {{kReduceScatter, "a", "S(0)", 24, 12, 12, StepSizes::kEven, avg, 2},
        {kAllGather, "a", "R", 12, 24, 12}},
       16},
      {"a=2", "f32[6]", "R", "P(avg)", {{kMask, "a", "P(avg)", 24, 24, 0}}, 0},
  });
}

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
      // Gradients: reduced in f32, in bf16 before and after.
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
      // The option has no say where nothing is reduced.
      {"a=2", "bf16[8]", "R", "R", {Cast(kF64, "R", 16, 64)}, 0, kF64, kF32},
      // Exact casts may be several; so may what stays partial under them.
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
      // Rounded once before the reduction, and once after it.
      {"a=2",
       "f32[8]",
       "P",
       "R",
       {Cast(kBF16, "P", 32, 16), {kAllReduce, "a", "R", 16, 16, 16}, Cast(kF16, "R", 16, 16)},
       32,
       kF16,
       kBF16},
      // A mask behind the casts; or before them, and reduced meanwhile.
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
      // Integers are averaged in the reduce dtype.
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
            "1 data: an average of i32 is not the last reduction; step 2 reduces");
}

// Two elements a byte.
TEST(VerifierTest, PackedElements) {
  ExpectRight({
      {"a=2", "f4e2m1[8]", "S(0)", "R", {{kAllGather, "a", "R", 2, 4, 2}}, 0},
      {"a=2", "f4e2m1[4,4]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 4, 4, 2}}, 16},
      {"a=3", "f4e2m1[8,6]", "S(0)", "R", {{kAllGather, "a", "R", 9, 24, 18, kPadded}}, 48},
      {"a=2", "f4e2m1[8]", "R", "S(0)", {{kSlice, "a", "S(0)", 4, 2, 0}}, 0},
  });
}

TEST(VerifierTest, Masks) {
  ExpectRight({
      {"a=2", "f32[8]", "S(0)", "P", {{kMask, "a", "P", 16, 32, 0}}, 0},
      {"a=2", "f32[8]", "R", "P(max)", {{kMask, "a", "P(max)", 32, 32, 0}}, 0},
      {"a=2,b=2", "f32[8]", "R,S(0)", "P,P", {{kMask, "a,b", "P,P", 16, 32, 0}}, 0},
      {"a=2,b=2", "f32[8]", "S(0)[1],S(0)[0]", "P,S(0)", {{kMask, "a", "P,S(0)", 8, 16, 0}}, 0},
      {"a=2,b=2", "f32[8]", "S(0),S(0)", "P,P", {{kMask, "a,b", "P,P", 8, 32, 0}}, 0},
  });
}

TEST(VerifierTest, ExchangesAndPermutes) {
  ExpectRight({
      // (0,1) needs what (0,0) holds, and (1,0) what (1,1) holds.
      {"a=2,b=2", "f32[8]", "R,S(0)", "S(0),R", {{kExchange, "a,b", "S(0),R", 16, 16, 16}}, 0},
      {"a=2,b=2", "f32[8]", "R,S(0)", "S(0),R", {{kPermute, "a,b", "S(0),R", 16, 16, 16}}, 0},
      {"a=2,b=2,c=2",
       "f32[8]",
       "S(0),S(0),R",
       "R,S(0),S(0)",
       {{kPermute, "a,b,c", "R,S(0),S(0)", 8, 8, 8}},
       0},
      // Between the ranks of one c only: c is partial and stays so.
      {"a=2,b=2,c=2",
       "f32[4]",
       "R,S(0),P",
       "S(0),R,P",
       {{kExchange, "a,b", "S(0),R,P", 8, 8, 8}},
       0},
      // An exchange gathers too: a holder sends its half to the other.
      {"a=2", "f32[8]", "S(0)", "R", {{kExchange, "a", "R", 16, 32, 16}}, 0},
      {"a=2,b=3",
       "f32[6,2]",
       "S(0),S(0)",
       "S(1),S(0)",
       {{kAllToAll, "a,b", "S(1),S(0)", 8, 8, 8}},
       0},
      // Columns are packed by the senders, rows are what receivers want; and the other way round.
      {"a=4", "f32[8,8]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 64, 64, 48}}, 48},
      {"a=4", "f32[8,8]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 64, 64, 48}}, 48},
      {"a=2", "f32[2,4,4]", "S(1)", "S(2)", {{kAllToAll, "a", "S(2)", 64, 64, 32}}, 64},
      // A row each: what goes to a receiver lies together.
      {"a=4", "f32[4,8]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 32, 32, 24}}, 0},
      // On 3 ranks the piece of the first is cut behind it.
      {"a=2,b=2", "f32[1]", "R,S(0)", "S(0),S(0)", {{kSlice, "a,b", "S(0),S(0)", 4, 4, 0}}, 0},
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

// Numbers beyond 2^63 - 1 are stated as that.
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

// A step costs what its group and its parents' sizes cost, not what the mesh does.
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
