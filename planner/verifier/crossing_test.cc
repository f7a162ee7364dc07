// Plans over two meshes, written by hand: right ones, and what is wrong with others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/device_mesh.h"
#include "placement/sharding.h"
#include "planner/plan.h"
#include "planner/verifier/cases.h"
#include "planner/verifier/verifier.h"

namespace meshift {
namespace {

constexpr const char* kOnto = "->";

// A plan from one mesh to another.
struct Cross {
  std::string mesh;
  std::string to_mesh;
  std::string tensor;
  std::string from;
  std::string to;
  std::vector<Row> rows;
  int64_t workspace = 0;
  std::string topology = "flat";
};

Case CaseOf(const Cross& c) {
  return {c.mesh, c.tensor, c.from, c.to, c.rows, c.workspace, {}, {}, c.to_mesh, c.topology};
}

Row Exchange(std::string after, int64_t in, int64_t out, int64_t sent) {
  return {kExchange, kOnto, std::move(after), in, out, sent, kExact};
}
Row Relabel(std::string after, int64_t bytes) {
  return {kRelabel, kOnto, std::move(after), bytes, bytes, 0};
}

void ExpectRight(const std::vector<Cross>& cases) {
  for (const Cross& c : cases) {
    EXPECT_EQ(Judge(CaseOf(c)), "") << c.tensor << " on " << c.mesh << " as " << c.from << " -> "
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
  Case cast = CaseOf({"a=2",
                      "b=2@2-3",
                      "f32[4]",
                      "P",
                      "R",
                      {{kReduceScatter, "a", "S(0)", 16, 8, 8},
                       Cast(DType::kBF16, "S(0)", 8, 4),
                       Exchange("S(0)", 4, 4, 4),
                       {kAllGather, "b", "R", 4, 8, 4}},
                      32});
  cast.to_dtype = DType::kBF16;
  EXPECT_EQ(Judge(cast), "");
  // Casts on both meshes: the last one alone rounds.
  Case two = CaseOf({"a=2",
                     "b=2@2-3",
                     "bf16[4]",
                     "P",
                     "R",
                     {Cast(DType::kF32, "P", 8, 16),
                      {kReduceScatter, "a", "S(0)", 16, 8, 8},
                      Exchange("S(0)", 8, 8, 8),
                      Cast(DType::kF16, "S(0)", 8, 4),
                      {kAllGather, "b", "R", 4, 8, 4}},
                     32});
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
       "0 op: exchange sends nothing: every rank has its box after already, which is a relabel"},
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 2 lacks 2 element(s) that rank 0 has"},
      {{"a=3", "b=3@1,0,2", "f32[6]", "S(0)", "S(0)", {Relabel("S(0)", 8)}},
       "0 data: a relabel sends nothing; rank 0 lacks 2 element(s) that rank 1 has"},
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
      {{"a=2", "b=2@2-3", "f32[4]", "S(0)", "S(0)", {Exchange("S(0)", 8, 8, 8)}, 0, "nvlink=x"},
       "- topology: "},
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
       "0 scale: 33554432 pairs of a receiver and a piece of what it wants are beyond the 16777216 "
       "that can be followed"},
  };
  for (const auto& c : cases) {
    const std::string verdict = Judge(CaseOf(c.plan));
    EXPECT_EQ(verdict.substr(0, c.expected.size()), c.expected) << verdict;
  }
}

// Of one mesh, ranks in order are followed in any number.
TEST(VerifierCrossingTest, MeshesBeyondWhatCanBeFollowed) {
  for (const auto& [mesh, what] :
       {std::pair{"b=4194305", "mesh"}, {"b=4194305@2-4194306", "list"}}) {
    PlanFields plan = MakeFields(CaseOf({"a=2", "b=1@1", "u8[1]", "R", "R", {Relabel("R", 1)}}));
    ASSERT_EQ(Judge(plan), "");
    plan.meshes[1] = DeviceMesh::Parse(mesh).value();
    plan.to = Sharding::Parse("u8[1]", plan.meshes[1], "R").value();
    EXPECT_EQ(Judge(plan), fmt::format("- scale: a {} of 4194305 ranks in a plan of two meshes is "
                                       "beyond the 4194304 that can be followed",
                                       what));
  }
}

TEST(VerifierCrossingTest, WrongPromisesAndCasts) {
  // Rounded twice in order, or over dims of the target's mesh.
  PlanFields plan = MakeFields(CaseOf(
      {"a=2",
       "b=2@2-3",
       "f32[4]",
       "S(0)",
       "R",
       {Exchange("S(0)", 8, 8, 8), {kMask, "b", "P", 8, 16, 0}, {kAllReduce, "b", "R", 16, 16, 16}},
       32}));
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
  plan = MakeFields(CaseOf(ordered));
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  plan.total.workspace_bytes = 32;
  plan.total.peak_bytes = 16 + 16 + 32;
  EXPECT_EQ(Judge(plan), "");
  plan.steps[0].reduce_order = ReduceOrder::kAny;
  EXPECT_EQ(Judge(plan), "0 promise: nothing in the plan shows that its sum of f32 is ordered");

  const auto casts = [](std::vector<Row> rows, DType to, DType reduce) {
    Case c = CaseOf({"a=2", "b=2@2-3", "f32[4]", "P", "S(0)", std::move(rows), 32});
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
  Case mask = CaseOf({"a=2",
                      "b=2@2-3",
                      "f32[4]",
                      "P",
                      "P",
                      {{kAllReduce, "a", "R", 16, 16, 16},
                       Exchange("R", 16, 16, 16),
                       {kMask, "b", "P", 16, 16, 0},
                       Cast(DType::kBF16, "P", 16, 8)},
                      32});
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

// Each field of a right plan, changed.
TEST(VerifierCrossingTest, DamagedFields) {
  const Cross right = {"a=2,c=2",
                       "b=3@3-5",
                       "bf16[7,6]",
                       "P,S(1)",
                       "P",
                       {{kAllReduce, "a", "R,S(1)", 42, 42, 42},
                        Exchange("S(0)", 42, 36, 24),
                        {kAllGather, "b", "R", 36, 84, 72, kPadded},
                        {kMask, "b", "P", 84, 84, 0}},
                       0};
  PlanFields fields = MakeFields(CaseOf(right));
  // The workspace is what the verifier says that it is: that is judged above.
  const std::string verdict = Judge(fields);
  ASSERT_EQ(verdict.substr(0, 43), "- total: total workspace_bytes is 0; it sho") << verdict;
  fields.total.workspace_bytes = std::stoll(verdict.substr(verdict.rfind(' ')));
  fields.total.peak_bytes += fields.total.workspace_bytes;
  ASSERT_EQ(Judge(fields), "");
  const DeviceMesh b = fields.meshes[1];
  const struct {
    std::string expected;  // what the verdict starts with
    std::function<void(PlanFields*)> damage;
  } cases[] = {
      {"- mesh: mesh 2 is out of range for a plan of 2 mesh(es)",
       [](PlanFields* p) { p->to_mesh = 2; }},
      {"- mesh: 'from' is on mesh 1, 'to' on mesh 0; of 2 they are 0 and 1",
       [](PlanFields* p) { p->from_mesh = 1, p->to_mesh = 0; }},
      {"- mesh: 'from' is on mesh 0, 'to' on mesh 0; of 2 they are 0 and 1",
       [](PlanFields* p) { p->to_mesh = 0; }},
      {"- mesh: 3 meshes are listed, at most two are used",
       [&](PlanFields* p) { p->meshes.push_back(b); }},
      {"- mesh: 'from' or 'to' is not on mesh 1",
       [](PlanFields* p) { p->meshes[1] = DeviceMesh::Parse("b=3@6-8").value(); }},
      {"- mesh: 'from' or 'to' is not on mesh 0",
       [](PlanFields* p) { p->meshes[0] = DeviceMesh::Parse("a=4").value(); }},
      {"- target: 'from' is of bf16[7,6], 'to' of bf16[6,7]",
       [&](PlanFields* p) { p->to = Sharding::Parse("bf16[6,7]", b, "P").value(); }},
      {"0 mesh: the step is on mesh 1, the value still on mesh 0",
       [](PlanFields* p) { p->steps[0].mesh = 1; }},
      {"1 after: 'bf16[7,6] on b=3@3-5 as S(0)' is not a sharding of bf16[7,6] on a=2,c=2",
       [](PlanFields* p) { p->steps[1].mesh = 0; }},
      {"1 mesh: the step is on mesh 2, the value on mesh 0",
       [](PlanFields* p) { p->steps[1].mesh = 2; }},
      {"1 mesh: the step is on mesh -1, the value on mesh 0",
       [](PlanFields* p) { p->steps[1].mesh = -1; }},
      {"2 mesh: the step is on mesh 0, the value on mesh 1",
       [](PlanFields* p) { p->steps[2].mesh = 0; }},
      {"1 op: op 10 is not known", [](PlanFields* p) { p->steps[1].op = StepOp{10}; }},
      {"1 mesh: the step is on mesh 1, the value still on mesh 0",
       [](PlanFields* p) { p->steps[1].op = kPermute; }},
      {"1 mesh_dims: exchange to another mesh names no mesh dim, this one 1",
       [](PlanFields* p) { p->steps[1].mesh_dims = {0}; }},
      {"1 tensor_dims: tensor_dims are [0]; of a step to another mesh they are []",
       [](PlanFields* p) { p->steps[1].tensor_dims = {0}; }},
      {"1 after: 'bf16[7,6] on a=2,c=2 as R,R' is not a sharding of",
       [](PlanFields* p) { p->steps[1].after = p->from.WithPlacements("R,R").value(); }},
      {"1 after: 'bf16[6,7] on b=3@3-5 as S(0)' is not a sharding of",
       [&](PlanFields* p) { p->steps[1].after = Sharding::Parse("bf16[6,7]", b, "S(0)").value(); }},
      {"1 dtype: exchange leaves dtype bf16, not f32",
       [](PlanFields* p) { p->steps[1].after = p->steps[1].after.WithDType(DType::kF32).value(); }},
      {"1 after: exchange to another mesh leaves R or a shard on mesh dim b, not P",
       [](PlanFields* p) { p->steps[1].after = p->to; }},
      {"1 group: group_size is 7; it should be 6",
       [](PlanFields* p) { p->steps[1].group_size = 7; }},
      {"1 group: group_size is null", [](PlanFields* p) { p->steps[1].group_size.reset(); }},
      {"1 group: groups is 2; it should be 1", [](PlanFields* p) { p->steps[1].groups = 2; }},
      {"1 group: groups is null", [](PlanFields* p) { p->steps[1].groups.reset(); }},
      {"1 group: group_size is 6; it should be null",
       [](PlanFields* p) { p->steps[1].op = kRelabel; }},
      {"1 sizes: sizes is even; it should be exact",
       [](PlanFields* p) { p->steps[1].sizes = StepSizes::kEven; }},
      {"1 sizes: sizes is null", [](PlanFields* p) { p->steps[1].sizes.reset(); }},
      {"1 dtype: wire_dtype is f32; it should be bf16",
       [](PlanFields* p) { p->steps[1].wire_dtype = DType::kF32; }},
      {"1 dtype: wire_dtype is null", [](PlanFields* p) { p->steps[1].wire_dtype.reset(); }},
      {"1 dtype: accumulate_dtype is f32; it should be null",
       [](PlanFields* p) { p->steps[1].accumulate_dtype = DType::kF32; }},
      {"1 reduce_op: reduce_op is sum; it should be null",
       [](PlanFields* p) { p->steps[1].reduce_op = ReduceOp::kSum; }},
      {"1 reduce_order: reduce_order is any; exchange reduces nothing",
       [](PlanFields* p) { p->steps[1].reduce_order = ReduceOrder::kAny; }},
      {"1 reduce_block: reduce_block is 2; exchange is not in ascending order",
       [](PlanFields* p) { p->steps[1].reduce_block = 2; }},
      {"1 divisor: divisor is 2; it should be null",
       [](PlanFields* p) { p->steps[1].divisor = 2; }},
      {"1 bytes: bytes_in is 84; it should be 42",
       [](PlanFields* p) { p->steps[1].bytes_in = 84; }},
      {"1 bytes: bytes_out is 42; it should be 36",
       [](PlanFields* p) { p->steps[1].bytes_out = 42; }},
      {"1 bytes: bytes_sent is 0; it should be 24",
       [](PlanFields* p) { p->steps[1].bytes_sent = 0; }},
      {"1 est_ns: est_ns is -1, below 0", [](PlanFields* p) { p->steps[1].est_ns = -1; }},
      {"0 data: mesh dim a is P before the step: contributions would be lost",
       [](PlanFields* p) { p->steps.erase(p->steps.begin()); }},
      {"1 mesh: the step is on mesh 1, the value still on mesh 0",
       [](PlanFields* p) { p->steps.erase(p->steps.begin() + 1); }},
      {"0 after: 'bf16[7,6] on b=3@3-5 as S(0)' is not a sharding of",
       [](PlanFields* p) {
         std::swap(p->steps[0], p->steps[1]);
         p->steps[0].mesh = 0;
       }},
      {"1 mesh: the step is on mesh 0, the value on mesh 1",
       [](PlanFields* p) { std::swap(p->steps[0], p->steps[1]); }},
      {"- target: the last step leaves mesh dim b as R; the target has P",
       [](PlanFields* p) { p->steps.pop_back(); }},
      {"- topology: ", [](PlanFields* p) { p->inputs.topology = "no such"; }},
      {"- total: total collectives is 2; it should be 3",
       [](PlanFields* p) { p->total.collectives = 2; }},
      {"- total: total bytes_sent is 137; it should be 138",
       [](PlanFields* p) { p->total.bytes_sent--; }},
      {"- total: total peak_bytes is 0; it should be",
       [](PlanFields* p) { p->total.peak_bytes = 0; }},
      {"- lower_bound: lower bound bytes_sent is 139",
       [](PlanFields* p) { p->lower_bound.bytes_sent = 139; }},
  };
  for (const auto& c : cases) {
    PlanFields plan = fields;
    c.damage(&plan);
    const std::string damaged = Judge(plan);
    EXPECT_EQ(damaged.substr(0, c.expected.size()), c.expected) << damaged;
  }
}

// From 2048 ranks to 256 that are others, in pieces of which each receiver wants many: half a
// million messages.
TEST(VerifierCrossingTest, ManyRanks) {
  const Case c = CaseOf({"ep=64,fsdp=32",
                         "tp=256@2048-2303",
                         "bf16[256,2048]",
                         "S(0),S(1)",
                         "R",
                         {Exchange("R", 512, 1048576, 131072)},
                         1048576,
                         "nvlink=8"});
  EXPECT_EQ(Judge(c), "");
  const Case replicas = CaseOf({"ep=64,fsdp=32",
                                "tp=256@2048-2303",
                                "bf16[256,2048]",
                                "S(0),R",
                                "S(1)",
                                {Exchange("S(1)", 16384, 4096, 512)},
                                512,
                                "nvlink=8"});
  EXPECT_EQ(Judge(replicas), "");
}

}  // namespace
}  // namespace meshift
