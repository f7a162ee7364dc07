// Plans over two meshes, written by hand: right ones, and what is wrong with others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/verifier.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

void ExpectRight(const std::vector<Cross>& cases) {
  for (const Cross& c : cases) {
    EXPECT_EQ(Judge(c), "") << c.tensor << " on " << c.mesh << " as " << c.from << " -> "
                            << c.to_mesh << " as " << c.to << ", " << c.topology;
  }
}

TEST(VerifierCrossingTest, OneExchange) {
  ExpectRight({
      {"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 8)}},
      // Ranks 1 and 2 change places.
      {"a=4",
       "b=2,c=2",
       "f32[8]",
       "S(0)",
       "S(0)[1],S(0)[0]",
       {Exchange("S(0)[1],S(0)[0]", 8, 8, 8)}},
      {"a=3", "b=3@2,0,1", "f32[6]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 8)}},
      // Nested: ranks 2 and 3 send theirs to 0 and 1.
      {"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 8, 32, 16)}},
      // Around: rank 0 keeps 2 of its 4 and sends 2 to rank 1.
      {"a=2", "b=4", "f32[8]", "S(0)", "S(0)", {Exchange("S(0)", 16, 8, 16)}},
      // Overlapping by rank 1, which has all that it wants.
      {"a=2", "b=2@1-2", "f32[4]", "R", "S(0)", {Exchange("S(0)", 16, 8, 8)}},
      // Fewer rows than ranks; a scalar; pairs of f4e2m1.
      {"a=4", "b=1@4", "f32[2]", "S(0)", "R", {Exchange("R", 4, 8, 4)}},
      {"a=2", "b=2@2-3", "f32[]", "R", "R", {Exchange("R", 4, 4, 4)}},
      {"a=2", "b=2@2-3", "f4e2m1[4,4]", "S(0)", "R", {Exchange("R", 4, 8, 8)}},
      // Ragged on both sides: ranks 0 and 2 give rank 4 seven elements.
      {"a=3", "b=2@3-4", "f32[8]", "S(0){3,0,5}", "S(0){1,7}", {Exchange("S(0){1,7}", 20, 28, 20)}},
      // Mesh dims of size 1 are nothing.
      {"a=2,x=1", "b=1,c=2@2-3", "f32[4]", "S(0),P", "S(0),S(0)", {Exchange("S(0),S(0)", 8, 8, 8)}},
  });
}

TEST(VerifierCrossingTest, RelabelsWhereNothingIsSent) {
  ExpectRight({
      {"a=2", "b=2", "f32[4]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
      {"a=4", "b=2,c=2", "f32[8]", "S(0)", "S(0),S(0)", {Relabel("S(0),S(0)", 8)}},
      {"a=2,b=3",
       "c=3,d=2",
       "f32[6]",
       "S(0),S(0)",
       "S(0),S(0)",
       {{kRelabel, kOnto, "S(0),S(0)", 4, 4, 0}}},
      // Of what it has, each rank wants some: the cuts are others.
      {"a=4", "b=4@3,1,0,2", "f32[8]", "R", "S(0)", {{kRelabel, kOnto, "S(0)", 32, 8, 0}}},
      {"a=6", "b=2@4,1", "f32[8]", "R", "R", {Relabel("R", 32)}},
      // No element, or one rank.
      {"a=2", "b=2@2-3", "f32[0]", "S(0)", "R", {Relabel("R", 0)}},
      {"a=1", "b=1", "f32[3]", "R", "R", {Relabel("R", 12)}},
      {"a=1@5", "b=1,c=1@5", "f32[3]", "S(0)", "R,S(0)", {Relabel("R,S(0)", 12)}},
  });
}

TEST(VerifierCrossingTest, TheNearestOfTheLeastBusyHoldersSends) {
  ExpectRight({
      // Ranks 0 and 1 take turns.
      {"a=2", "b=4@2-5", "f32[4]", "R", "S(0)", {Exchange("S(0)", 16, 4, 8)}},
      // Not by the number of messages: rank 0 sends 5, then rank 1 sends 1, 1 and 1.
      {"a=2", "b=4@2-5", "u8[8]", "R", "S(0){5,1,1,1}", {Exchange("S(0){5,1,1,1}", 8, 5, 5)}},
      // In the order of the receivers' ranks, not of their places: 1, 1, 1 and 5 come so: ranks 0,
      // 1, 0, and rank 1 with its 1 is less busy.
      {"a=2", "b=4@5,4,3,2", "u8[8]", "R", "S(0){5,1,1,1}", {Exchange("S(0){5,1,1,1}", 8, 5, 6)}},
      // Rank 0 is near to ranks 1 and 2, rank 4 is not.
      {"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}},
      {"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 32)}, 0, "nvlink=4"},
      // Rank 5 has nobody near; of those of its rail, rank 0 is as busy as rank 2.
      {"a=3@0,2,8",
       "b=3@1,3,5",
       "f32[4]",
       "R",
       "R",
       {Exchange("R", 16, 16, 32)},
       0,
       "nvlink=2,rail=8"},
      {"a=3@0,8,4",
       "b=3@5-7",
       "f32[4]",
       "R",
       "R",
       {Exchange("R", 16, 16, 48)},
       0,
       "nvlink=4,rail=8"},
      // Nobody is near: all are.
      {"a=2", "b=2@8-9", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}, 0, "nvlink=4"},
      // Each half has holders of its own.
      {"a=2,b=2", "c=4@4-7", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 32)}},
      {"a=2,b=2", "c=4@4-7", "f32[8]", "R,S(0)", "R", {Exchange("R", 16, 32, 32)}},
      // A receiver that holds a piece takes no part of it from others, and sends it as others do.
      {"a=2,b=2", "c=4@3-6", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 32)}},
  });
}

TEST(VerifierCrossingTest, PacksWhatIsNoRun) {
  ExpectRight({
      // 3 and 2 rows to 2 and 1 columns: parts of rows are sent, whole rows received.
      {"a=2", "b=2@2-3", "f32[5,3]", "S(0)", "S(1)", {Exchange("S(1)", 36, 40, 36)}, 48},
      // Backwards: the other way round, rank 2 receives 36.
      {"a=2", "b=2@2-3", "f32[5,3]", "S(1)", "S(0)", {Exchange("S(0)", 40, 36, 40)}, 48},
      // One row each: runs on both sides.
      {"a=2", "b=2@2-3", "f32[2,4]", "S(0)", "S(1)", {Exchange("S(1)", 16, 16, 16)}, 0},
      // What rank 0 keeps counts as what is sent: a part of rows.
      {"a=1", "b=2@0-1", "f32[2,4]", "R", "S(1)", {Exchange("S(1)", 32, 16, 16)}, 16},
  });
}

TEST(VerifierCrossingTest, StepsOnBothMeshes) {
  ExpectRight({
      {"a=2",
       "b=2@2-3",
       "f32[4]",
       "P",
       "R",
       {{kReduceScatter, "a", "S(0)", 16, 8, 8},
        Exchange("S(0)", 8, 8, 8),
        {kAllGather, "b", "R", 8, 16, 8}},
       32},
      {"a=2",
       "b=2@2-3",
       "f32[4]",
       "S(0)",
       "P",
       {Exchange("R", 8, 16, 16), {kMask, "b", "P", 16, 16, 0}},
       16},
      {"a=2",
       "b=2",
       "f32[4]",
       "R",
       "S(0)",
       {{kSlice, "a", "S(0)", 16, 8, 0}, Relabel("S(0)", 8)},
       16},
      // An average of integers, once; masked to another op there.
      {"a=2,b=2",
       "c=2@4-5",
       "i32[4]",
       "P(avg),P",
       "P(max)",
       {{kAllReduce, "a,b", "R,R", 16, 16, 24, StepSizes::kEven, ReduceOp::kAvg, 2},
        Exchange("R", 16, 16, 16),
        {kMask, "c", "P(max)", 16, 16, 0}},
       32},
      // Masked and reduced on the target's mesh: no more than there.
      {"a=2",
       "b=2@2-3",
       "i32[4]",
       "S(0)",
       "R",
       {Exchange("S(0)", 8, 8, 8), {kMask, "b", "P", 8, 16, 0}, {kAllReduce, "b", "R", 16, 16, 16}},
       32},
  });
  Case cast = Cross("a=2", "b=2@2-3", "f32[4]", "P", "R",
                    {{kReduceScatter, "a", "S(0)", 16, 8, 8},
                     Cast(DType::kBF16, "S(0)", 8, 4),
                     Exchange("S(0)", 4, 4, 4),
                     {kAllGather, "b", "R", 4, 8, 4}},
                    32);
  cast.to_dtype = DType::kBF16;
  EXPECT_EQ(Judge(cast), "");
  // Casts on both meshes: the last one alone rounds.
  Case two = Cross("a=2", "b=2@2-3", "bf16[4]", "P", "R",
                   {Cast(DType::kF32, "P", 8, 16),
                    {kReduceScatter, "a", "S(0)", 16, 8, 8},
                    Exchange("S(0)", 8, 8, 8),
                    Cast(DType::kF16, "S(0)", 8, 4),
                    {kAllGather, "b", "R", 4, 8, 4}},
                   32);
  two.to_dtype = DType::kF16;
  EXPECT_EQ(Judge(two), "");
}

TEST(VerifierCrossingTest, WrongPlans) {
  const struct {
    Cross plan;
    std::string expected;
  } cases[] = {
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {}},
       "- target: the value stays on mesh 0; the target is on mesh 1"},
      {{"a=2", "b=2@2-3", "f32[4]", "R", "S(0)", {{kSlice, "a", "S(0)", 16, 8, 0}}},
       "- target: the value stays on mesh 0; the target is on mesh 1"},
      {{"a=2",
        "b=2@2-3",
        "f32[4]",
        "S(0)",
        "S(0)",
        {Exchange("S(0)", 8, 8, 8), Exchange("S(0)", 8, 8, 8)}},
       "1 mesh_dims: an exchange over no mesh dims leads to another mesh; the value is on mesh 1 "
       "already"},
      {{"a=2",
        "b=2@2-3",
        "f32[4]",
        "S(0)",
        "S(0)",
        {Exchange("S(0)", 8, 8, 8), Relabel("S(0)", 8)}},
       "1 op: relabel leads to another mesh; the value is on mesh 1 already"},
      {{"a=2", "b=2@2-3", "f32[4]", "P", "R", {Exchange("R", 16, 16, 16)}},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "b=2", "f32[4]", "P", "R", {Relabel("R", 16)}},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "b=2@2-3", "f32[4]", "R", "P", {Exchange("P", 16, 16, 16)}},
       "0 after: exchange to another mesh leaves R or a shard on mesh dim b, not P"},
      {{"a=2", "b=2", "f32[4]", "R", "P(max)", {Relabel("P(max)", 16)}},
       "0 after: relabel to another mesh leaves R or a shard on mesh dim b, not P(max)"},
      {{"a=2", "b=2", "f32[4]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 0)}},
       "0 op: the exchange sends nothing, since every rank holds its box already; it must be a "
       "relabel"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 2 needs 2 element(s) that rank 0 has"},
      {{"a=3", "b=3@1,0,2", "f32[6]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 0 needs 2 element(s) that rank 1 has"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "R", {{kAllGather, kOnto, "R", 8, 16, 8}}},
       "0 mesh: the step is on mesh 1, the value still on mesh 0; exchange or relabel take it "
       "there, all_gather does not"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Exchange("R", 8, 16, 16)}},
       "- target: the last step leaves R; the target is S(0)"},
      // Half of the bytes, as if each rank sent to one.
      {{"a=2,b=2", "c=4@4-7", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 16)}},
       "0 bytes: bytes_sent is 16; it should be 32"},
      {{"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}, 0, "nvlink=4"},
       "0 bytes: bytes_sent is 16; it should be 32"},
      // The largest box is of the mesh that it is on.
      {{"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 32, 32, 16)}},
       "0 bytes: bytes_in is 32; it should be 8"},
      {{"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 8, 8, 16)}},
       "0 bytes: bytes_out is 8; it should be 32"},
      {{"a=2", "b=2@2-3", "f32[5,3]", "S(0)", "S(1)", {Exchange("S(1)", 36, 40, 36)}, 0},
       "- total: total workspace_bytes is 0; it should be 48"},
      // Replicas of the source's mesh reduce each for itself.
      {{"a=2,b=2",
        "c=2@4-5",
        "f32[4]",
        "P,R",
        "R",
        {{kAllReduce, "a", "R,R", 16, 16, 16}, Exchange("R", 16, 16, 16)},
        16},
       "0 promise: mesh dim b is replicated: 2 groups form each sum, and their bits may differ"},
      {{"a=2,b=2",
        "c=2@4-5",
        "i32[4]",
        "P(avg),P",
        "R",
        {{kAllReduce, "a", "R,P", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2},
         {kAllReduce, "b", "R,R", 16, 16, 16},
         Exchange("R", 16, 16, 16)},
        32},
       "0 data: an average of i32 is not the last reduction; step 1 reduces"},
      {{"a=2",
        "b=2@2-3",
        "i32[4]",
        "S(0)",
        "R",
        {Exchange("R", 8, 16, 16),
         {kMask, "b", "P(avg)", 16, 16, 0},
         {kAllReduce, "b", "R", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2}},
        32},
       "2 data: the sum of the copies of i32 on mesh dim b may wrap"},
      // Beyond what can be followed.
      {{"a=4096", "b=8192@4096-12287", "u8[4096]", "S(0)", "R", {Exchange("R", 1, 4096, 8192)}},
       "0 scale: 33554432 pairs of a receiver and a piece that it needs are too many to verify; "
       "the limit is 16777216"},
  };
  for (const auto& c : cases) {
    const std::string verdict = Judge(c.plan);
    EXPECT_EQ(verdict.substr(0, c.expected.size()), c.expected) << verdict;
  }
}

// Of one mesh, ranks in order are followed in any number.
TEST(VerifierCrossingTest, MeshesBeyondWhatCanBeFollowed) {
  for (const auto& [mesh, what] :
       {std::pair{"b=4194305", "mesh"}, {"b=4194305@2-4194306", "list"}}) {
    PlanFields plan = MakeFields(Cross("a=2", "b=1@1", "u8[1]", "R", "R", {Relabel("R", 1)}));
    ASSERT_EQ(Judge(plan), "");
    plan.meshes[1] = DeviceMesh::Parse(mesh).value();
    plan.to = Sharding::Parse("u8[1]", plan.meshes[1], "R").value();
    EXPECT_EQ(Judge(plan), fmt::format("- scale: a {} of 4194305 ranks in a plan of two meshes is "
                                       "too large to verify; the limit is 4194304",
                                       what));
  }
}

TEST(VerifierCrossingTest, WrongPromisesAndCasts) {
  // Rounded twice in order, or over dims of the target's mesh.
  PlanFields plan = MakeFields(Cross(
      "a=2", "b=2@2-3", "f32[4]", "S(0)", "R",
      {Exchange("S(0)", 8, 8, 8), {kMask, "b", "P", 8, 16, 0}, {kAllReduce, "b", "R", 16, 16, 16}},
      32));
  ASSERT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kBatchInvariant;
  EXPECT_EQ(Judge(plan),
            "2 promise: it reduces over b of the target's mesh; source and target are reduced over "
            "");
  // In order, over exactly the source's partial dims: as on one mesh.
  const Cross ordered = {
      "a=2,c=2", "b=2@4-5",
      "f32[4]",  "P,P",
      "R",       {{kReduceScatter, "a,c", "S(0),S(0)", 16, 4, 12}, Exchange("R", 4, 16, 8)},
      64};
  plan = MakeFields(ordered);
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  plan.total.workspace_bytes = 32;
  plan.total.peak_bytes = 16 + 16 + 32;
  EXPECT_EQ(Judge(plan), "");
  plan.steps[0].reduce_order = ReduceOrder::kAny;
  EXPECT_EQ(Judge(plan), "0 promise: nothing in the plan shows that its sum of f32 is ordered");

  const auto casts = [](std::vector<Row> rows, DType to, DType reduce) {
    Case c = Cross("a=2", "b=2@2-3", "f32[4]", "P", "S(0)", std::move(rows), 32);
    c.to_dtype = to;
    c.reduce_dtype = reduce;
    return Judge(c);
  };
  // The chain is that of the whole plan, whatever the mesh.
  EXPECT_EQ(casts({{kReduceScatter, "a", "S(0)", 16, 8, 8},
                   Cast(DType::kF16, "S(0)", 8, 4),
                   Exchange("S(0)", 4, 4, 4),
                   Cast(DType::kBF16, "S(0)", 4, 4)},
                  DType::kBF16, DType::kF32),
            "1 cast: f32 to f16 rounds, and step 3 casts once more");
  EXPECT_EQ(casts({Cast(DType::kBF16, "P", 16, 8),
                   {kReduceScatter, "a", "S(0)", 8, 4, 4},
                   Exchange("S(0)", 4, 4, 4)},
                  DType::kBF16, DType::kF32),
            "1 cast: it reduces in bf16; the reduce dtype is f32");
  EXPECT_EQ(casts({{kReduceScatter, "a", "S(0)", 16, 8, 8},
                   {kExchange, kOnto, "S(0)", 8, 4, 8, kExact, {}, 0, DType::kBF16}},
                  DType::kBF16, DType::kF32),
            "1 dtype: exchange leaves dtype f32, not bf16");
  // What is masked on the target's mesh has its final dtype, though mesh dim 0 was reduced before.
  Case mask = Cross("a=2", "b=2@2-3", "f32[4]", "P", "P",
                    {{kAllReduce, "a", "R", 16, 16, 16},
                     Exchange("R", 16, 16, 16),
                     {kMask, "b", "P", 16, 16, 0},
                     Cast(DType::kBF16, "P", 16, 8)},
                    32);
  mask.to_dtype = DType::kBF16;
  EXPECT_EQ(Judge(mask), "3 cast: mesh dim b stays P: each of its parts would be rounded to bf16");
  mask.tensor = "bf16[4]";
  mask.to_dtype = DType::kF32;
  mask.reduce_dtype = DType::kBF16;
  mask.rows = {{kAllReduce, "a", "R", 8, 8, 8},
               Exchange("R", 8, 8, 8),
               {kMask, "b", "P", 8, 8, 0},
               Cast(DType::kF32, "P", 8, 16)};
  EXPECT_EQ(Judge(mask), "3 cast: step 2 has masked mesh dim b, which is not reduced since");
}

// From 2048 ranks to 256 that are others, in pieces of which each receiver wants many: half a
// million messages.
TEST(VerifierCrossingTest, ManyRanks) {
  const Case c = Cross("ep=64,fsdp=32", "tp=256@2048-2303", "bf16[256,2048]", "S(0),S(1)", "R",
                       {Exchange("R", 512, 1048576, 131072)}, 1048576, "nvlink=8");
  EXPECT_EQ(Judge(c), "");
  const Case replicas = Cross("ep=64,fsdp=32", "tp=256@2048-2303", "bf16[256,2048]", "S(0),R",
                              "S(1)", {Exchange("S(1)", 16384, 4096, 512)}, 512, "nvlink=8");
  EXPECT_EQ(Judge(replicas), "");
}

}  // namespace
}  // namespace meshift
