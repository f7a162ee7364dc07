// Plans over two meshes, written by hand: right ones, and wrong ones with the finding of the
// verifier.
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
      // Ranks 1 and 2 exchange their boxes.
      {"a=4",
       "b=2,c=2",
       "f32[8]",
       "S(0)",
       "S(0)[1],S(0)[0]",
       {Exchange("S(0)[1],S(0)[0]", 8, 8, 8)}},
      {"a=3", "b=3@2,0,1", "f32[6]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 8)}},
      // The second mesh is part of the first: ranks 2 and 3 send to ranks 0 and 1.
      {"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 8, 32, 16)}},
      // The first mesh is part of the second: rank 0 keeps 2 of its 4 elements and sends 2 to rank
      // 1.
      {"a=2", "b=4", "f32[8]", "S(0)", "S(0)", {Exchange("S(0)", 16, 8, 16)}},
      // The meshes share rank 1, which holds its box already.
      {"a=2", "b=2@1-2", "f32[4]", "R", "S(0)", {Exchange("S(0)", 16, 8, 8)}},
      // Fewer rows than ranks; a scalar; pairs of f4e2m1.
      {"a=4", "b=1@4", "f32[2]", "S(0)", "R", {Exchange("R", 4, 8, 4)}},
      {"a=2", "b=2@2-3", "f32[]", "R", "R", {Exchange("R", 4, 4, 4)}},
      {"a=2", "b=2@2-3", "f4e2m1[4,4]", "S(0)", "R", {Exchange("R", 4, 8, 8)}},
      // Ragged on both sides: ranks 0 and 2 send seven elements to rank 4.
      {"a=3", "b=2@3-4", "f32[8]", "S(0){3,0,5}", "S(0){1,7}", {Exchange("S(0){1,7}", 20, 28, 20)}},
      // Mesh dims of size 1 do not count.
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
      // Each rank holds its box already, though the cuts differ.
      {"a=4", "b=4@3,1,0,2", "f32[8]", "R", "S(0)", {{kRelabel, kOnto, "S(0)", 32, 8, 0}}},
      {"a=6", "b=2@4,1", "f32[8]", "R", "R", {Relabel("R", 32)}},
      // A tensor without elements, or meshes of one rank.
      {"a=2", "b=2@2-3", "f32[0]", "S(0)", "R", {Relabel("R", 0)}},
      {"a=1", "b=1", "f32[3]", "R", "R", {Relabel("R", 12)}},
      {"a=1@5", "b=1,c=1@5", "f32[3]", "S(0)", "R,S(0)", {Relabel("R,S(0)", 12)}},
  });
}

TEST(VerifierCrossingTest, TheNearestOfTheLeastBusyHoldersSends) {
  ExpectRight({
      // Ranks 0 and 1 take turns.
      {"a=2", "b=4@2-5", "f32[4]", "R", "S(0)", {Exchange("S(0)", 16, 4, 8)}},
      // The load is in elements, not in messages: rank 0 sends 5, then rank 1 sends 1, 1 and 1.
      {"a=2", "b=4@2-5", "u8[8]", "R", "S(0){5,1,1,1}", {Exchange("S(0){5,1,1,1}", 8, 5, 5)}},
      // Receivers come in the order of their ranks, not of their positions: they need 1, 1, 1 and 5
      // elements. The senders are ranks 0, 1, 0, and then rank 1, whose load is 1.
      {"a=2", "b=4@5,4,3,2", "u8[8]", "R", "S(0){5,1,1,1}", {Exchange("S(0){5,1,1,1}", 8, 5, 6)}},
      // Without levels both senders are equally near; with nvlink=4, only rank 0 is near ranks 1
      // and 2.
      {"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}},
      {"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 32)}, 0, "nvlink=4"},
      // Rank 5 has no holder in its nvlink domain; in its rail domain, ranks 0 and 2 have equal
      // loads.
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
      // No holder is near, so all are equally far.
      {"a=2", "b=2@8-9", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}, 0, "nvlink=4"},
      // Each half has its own holders.
      {"a=2,b=2", "c=4@4-7", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 32)}},
      {"a=2,b=2", "c=4@4-7", "f32[8]", "R,S(0)", "R", {Exchange("R", 16, 32, 32)}},
      // A receiver that holds a piece keeps its part of it, and sends the piece like any other
      // holder.
      {"a=2,b=2", "c=4@3-6", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 32)}},
  });
}

TEST(VerifierCrossingTest, PacksWhatIsNoRun) {
  ExpectRight({
      // From 3 and 2 rows to 2 and 1 columns: parts of rows are sent, whole rows are received.
      {"a=2", "b=2@2-3", "f32[5,3]", "S(0)", "S(1)", {Exchange("S(1)", 36, 40, 36)}, 48},
      // The reverse: rank 2 receives 36 bytes.
      {"a=2", "b=2@2-3", "f32[5,3]", "S(1)", "S(0)", {Exchange("S(0)", 40, 36, 40)}, 48},
      // One row each: contiguous on both sides.
      {"a=2", "b=2@2-3", "f32[2,4]", "S(0)", "S(1)", {Exchange("S(1)", 16, 16, 16)}, 0},
      // The part that rank 0 keeps is not contiguous, so the step packs.
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
      // One average of integers, then a mask to another op on the target's mesh.
      {"a=2,b=2",
       "c=2@4-5",
       "i32[4]",
       "P(avg),P",
       "P(max)",
       {{kAllReduce, "a,b", "R,R", 16, 16, 24, StepSizes::kEven, ReduceOp::kAvg, 2},
        Exchange("R", 16, 16, 16),
        {kMask, "c", "P(max)", 16, 16, 0}},
       32},
      // A mask and a reduction on the target's mesh.
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
  // Casts on both meshes; only the last one rounds.
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
       "0 after: mesh dim b is P after the exchange to another mesh; it must be R or a shard"},
      {{"a=2", "b=2", "f32[4]", "R", "P(max)", {Relabel("P(max)", 16)}},
       "0 after: mesh dim b is P(max) after the relabel to another mesh; it must be R or a shard"},
      {{"a=2", "b=2", "f32[4]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 0)}},
       "0 op: the exchange sends nothing, since every rank holds its box already; it must be a "
       "relabel"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 2 needs 2 element(s) that rank 0 has"},
      {{"a=3", "b=3@1,0,2", "f32[6]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 0 needs 2 element(s) that rank 1 has"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "R", {{kAllGather, kOnto, "R", 8, 16, 8}}},
       "0 mesh: the step is on mesh 1, but the value is still on mesh 0; only exchange and "
       "relabel take it there, not all_gather"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Exchange("R", 8, 16, 16)}},
       "- target: the last step leaves R; the target is S(0)"},
      // The bytes of one receiver per sender: half of the right number.
      {{"a=2,b=2", "c=4@4-7", "f32[8]", "S(0),R", "R", {Exchange("R", 16, 32, 16)}},
       "0 bytes: bytes_sent is 16; it should be 32"},
      {{"a=2@0,4", "b=2@1-2", "f32[4]", "R", "R", {Exchange("R", 16, 16, 16)}, 0, "nvlink=4"},
       "0 bytes: bytes_sent is 16; it should be 32"},
      // The largest box on the step's own mesh counts.
      {{"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 32, 32, 16)}},
       "0 bytes: bytes_in is 32; it should be 8"},
      {{"a=4", "b=2", "f32[8]", "S(0)", "R", {Exchange("R", 8, 8, 16)}},
       "0 bytes: bytes_out is 8; it should be 32"},
      {{"a=2", "b=2@2-3", "f32[5,3]", "S(0)", "S(1)", {Exchange("S(1)", 36, 40, 36)}, 0},
       "- total: total workspace_bytes is 0; it should be 48"},
      // Replicas on the source's mesh each form their own sum.
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
       "0 data: an average of i32 must be the last reduction, but step 1 reduces after it"},
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
      // More pairs than the verifier's limit.
      {{"a=4096", "b=8192@4096-12287", "u8[4096]", "S(0)", "R", {Exchange("R", 1, 4096, 8192)}},
       "0 scale: 33554432 pairs of a receiver and a piece that it needs are too many to verify; "
       "the limit is 16777216"},
  };
  for (const auto& c : cases) {
    const std::string verdict = Judge(c.plan);
    EXPECT_EQ(verdict.substr(0, c.expected.size()), c.expected) << verdict;
  }
}

// On one mesh, ranks in order have no limit.
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
  // A rounding reduction over dims of the target's mesh.
  PlanFields plan = MakeFields(Cross(
      "a=2", "b=2@2-3", "f32[4]", "S(0)", "R",
      {Exchange("S(0)", 8, 8, 8), {kMask, "b", "P", 8, 16, 0}, {kAllReduce, "b", "R", 16, 16, 16}},
      32));
  ASSERT_EQ(Judge(plan), "");
  plan.kept = Reproducibility::kBatchInvariant;
  EXPECT_EQ(
      Judge(plan),
      "2 promise: it reduces over b of the target's mesh; it must reduce over exactly the mesh "
      "dims that are partial in the source: none");
  // In order, over exactly the source's partial dims: right, as on one mesh.
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
  // The casts of both meshes are one chain.
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
            "1 dtype: the dtype is bf16 after exchange; it must stay f32");
  // A mask on the target's mesh must have the final dtype, though mesh 0 had a reduction.
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
  EXPECT_EQ(Judge(mask), "3 cast: step 2 masked mesh dim b, which has not been reduced since");
}

// From 2048 ranks to 256 other ranks. Each receiver needs many pieces: half a million messages.
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
