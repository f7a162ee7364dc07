// Plans that are wrong: which rule is broken, and in which step.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.h"
#include "planner/verifier_cases.h"

namespace meshift {
namespace {

// Steps that are stated right but do not bring what `after` says, or that the op cannot do.
TEST(VerifierFaultTest, WrongSteps) {
  const struct {
    Case plan;
    std::string expected;
  } cases[] = {
      {{"a=2,b=2", "f32[4]", "P,R", "R,R", {{kAllReduce, "a,b", "R,R", 16, 16, 24}}, 0},
       "0 data: mesh dim b is R before the step: what its ranks hold would be counted 2 times"},
      {{"a=2", "f32[4]", "S(0)", "S(0)", {{kReduceScatter, "a", "S(0)", 8, 8, 8}}, 0},
       "0 data: mesh dim a is S(0) before the step: its ranks hold different elements, which "
       "would be mixed"},
      {{"a=2", "f32[4]", "S(0)", "R", {{kAllReduce, "a", "R", 8, 16, 8}}, 0},
       "0 after: all_reduce leaves tensor dim 0 cut by [a], not by []"},
      {{"a=2", "f32[4]", "P", "R", {{kExchange, "a", "R", 16, 16, 8}}, 0},
       "0 mesh_dims: mesh_dims are a; the cuts that change are none"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kSlice, "a", "S(0)", 16, 8, 0}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kExchange, "a", "S(0)", 16, 8, 8}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=2", "f32[4]", "P", "P(avg)", {{kMask, "a", "P(avg)", 16, 16, 0}}, 0},
       "0 op: mask needs R or a shard on mesh dim a, which is P before the step"},
      // The inner cut alone does not make the outer pieces.
      {{"a=2,b=2", "f32[8]", "S(0),S(0)", "R,S(0)", {{kAllGather, "a", "R,S(0)", 8, 16, 8}}, 0},
       "0 data: the rank at b=0 can have 2 of the 4 indices of tensor dim 0 that it should hold"},
      {{"a=2,b=2", "f32[1]", "S(0),S(0)", "R,S(0)", {{kAllGather, "a", "R,S(0)", 4, 4, 4}}, 0},
       "0 sizes: sizes is even; it should be padded"},
      {{"a=2,b=2",
        "f32[1]",
        "S(0),S(0)",
        "R,S(0)",
        {{kAllGather, "a", "R,S(0)", 4, 4, 4, kPadded}},
        0},
       "0 op: all_gather needs the last cuts of tensor dim 0; b is behind them"},
      {{"a=2", "f32[4]", "R", "R", {{kAllGather, "a", "R", 16, 16, 16}}, 0},
       "0 op: all_gather needs a shard on mesh dim a, which is R before the step"},
      {{"a=2", "f32[4]", "R", "S(0)", {{kAllToAll, "a", "S(0)", 16, 8, 0}}, 0},
       "0 op: all_to_all needs a shard on mesh dim a, which is R before the step"},
      {{"a=2,b=3", "f32[6]", "S(0),R", "R,S(0)", {{kPermute, "a,b", "R,S(0)", 12, 8, 8}}, 0},
       "0 data: the cuts before and after are not of equal sizes pairwise: the box of a rank after "
       "is no member's box before"},
      {{"a=2,b=2", "f32[8]", "R,S(0)", "S(0),S(0)", {{kSlice, "a,b", "S(0),S(0)", 16, 8, 0}}, 0},
       "0 data: the rank at b=0,a=1 can have 0 of the 2 indices of tensor dim 0 that it should "
       "hold"},
      {{"a=2,b=2",
        "f32[1]",
        "S(0),S(0)",
        "S(0)[1],S(0)[0]",
        {{kSlice, "a,b", "S(0)[1],S(0)[0]", 4, 4, 0}},
        0},
       "0 op: slice needs mesh dim b replicated, or behind more cuts after the step"},
      {{"a=2", "f32[4]", "S(0)", "P(avg)", {{kMask, "a", "P(avg)", 8, 16, 0}}, 0},
       "0 data: mesh dim a is S(0) before the step: there is no identity of avg to fill the rest "
       "with"},
      {{"a=2,b=2", "f32[8]", "S(0),S(0)", "P,S(0)", {{kMask, "a", "P,S(0)", 8, 16, 0}}, 0},
       "0 data: the rank at b=0 can have 2 of the 4 indices of tensor dim 0 that it should hold"},
      {{"a=2,b=2",
        "f32[8]",
        "P,S(0)",
        "S(0),S(0)",
        {{kReduceScatter, "a", "S(0),S(0)", 16, 8, 8}},
        0},
       "0 after: reduce_scatter leaves tensor dim 0 cut by [b,a], not by [a,b]"},
      {{"a=2", "f32[4]", "R", "R", {{kSlice, "a", "R", 16, 16, 0}}, 0},
       "0 after: slice leaves a shard on mesh dim a, not R"},
      {{"a=2", "f32[4]", "S(0)", "S(0)", {{kPermute, "a", "S(0)", 8, 8, 8}}, 0},
       "0 mesh_dims: mesh_dims are a; the cuts that change are none"},
      {{"a=2,b=1", "f32[4]", "P,R", "R,R", {{kAllReduce, "a,b", "R,R", 16, 16, 16}}, 0},
       "0 mesh_dims: mesh dim b has size 1: nothing happens over it"},
      {{"a=2", "f32[4]", "P", "R", {{kAllReduce, "", "R", 16, 16, 16}}, 0},
       "0 mesh_dims: mesh_dims are empty"},
      {{"a=2", "f32[4]", "P", "R", {{StepOp::kCast, "a", "R", 16, 16, 0}}, 0},
       "0 op: op cast has no meaning in version 1 of the format"},
      {{"a=2", "f32[4]", "P", "R", {{StepOp::kRelabel, "a", "R", 16, 16, 0}}, 0},
       "0 op: op relabel has no meaning in version 1 of the format"},
      {{"a=2", "f32[4]", "P", "R", {}, 0},
       "- target: the source leaves mesh dim a as P; the target has R"},
      {{"a=2", "f32[4]", "P", "P(avg)", {}, 0},
       "- target: the source leaves mesh dim a as P; the target has P(avg)"},
      {{"a=2", "f32[0]", "S(0)", "R", {}, 0}, "- target: the source leaves S(0); the target is R"},
      {{"a=2,b=2", "f32[1]", "S(0),S(0)", "S(0)[1],S(0)[0]", {}, 0},
       "- target: the source leaves S(0),S(0); the target is S(0)[1],S(0)[0]"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kAllReduce, "a", "R", 16, 16, 16}}, 0},
       "- target: the last step leaves R; the target is S(0)"},
      {{"a=2,b=2",
        "i32[4]",
        "P(avg),P",
        "R,R",
        {{kAllReduce, "a", "R,P", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2},
         {kAllReduce, "b", "R,R", 16, 16, 16}},
        16},
       "0 data: an average of i32 is not the last reduction; step 1 reduces"},
      {{"a=2",
        "i32[4]",
        "R",
        "R",
        {{kMask, "a", "P(avg)", 16, 16, 0},
         {kAllReduce, "a", "R", 16, 16, 16, StepSizes::kEven, ReduceOp::kAvg, 2}},
        16},
       "1 data: the sum of the copies of i32 on mesh dim a may wrap"},
      {{"a=2", "f32[4]", "S(0){3,1}", "R", {{kAllGather, "a", "R", 12, 16, 12, kPadded}}, 0},
       "- target: S(0){3,1} is ragged; version 1 of the format has no ragged shards"},
      {{"a=2", "f32[4]", "R", "S(0)", {{kSlice, "a", "S(0){3,1}", 16, 12, 0}}, 0},
       "0 after: S(0){3,1} is ragged; version 1 of the format has no ragged shards"},
      {{"a=4096,b=2048",
        "f32[8388608]",
        "S(0),S(0)",
        "R,R",
        {{kAllGather, "a,b", "R,R", 4, 33554432, 33554428}},
        0},
       "0 scale: a step that moves data between 8388608 ranks is beyond the 4194304 that can be "
       "followed"},
  };
  for (const auto& c : cases) EXPECT_EQ(Judge(c.plan), c.expected);
}

// Each field of a right plan, changed.
TEST(VerifierFaultTest, DamagedFields) {
  const Case right = {
      "a=2,b=3,c=2",
      "bf16[7,6]",
      "P(avg),P,R",
      "R,R,R",
      {{kSlice, "c", "P(avg),P,S(1)", 84, 42, 0},
       {kAllReduce, "a,b", "R,R,S(1)", 42, 42, 70, StepSizes::kEven, ReduceOp::kAvg, 2},
       {kAllGather, "c", "R,R,R", 42, 84, 42}},
      144};
  ASSERT_EQ(Judge(right), "");
  const auto with = [](const Sharding& s, std::string_view placements) {
    return s.WithPlacements(placements).value();
  };
  const struct {
    std::string expected;  // what the verdict starts with
    std::function<void(PlanFields*)> damage;
  } cases[] = {
      {"- mesh: mesh 1 is out of range", [](PlanFields* p) { p->to_mesh = 1; }},
      {"- mesh: 'from' is on mesh 0, 'to' on mesh 1",
       [](PlanFields* p) { p->meshes.push_back(p->meshes[0]), p->to_mesh = 1; }},
      {"- mesh: 2 meshes are listed", [](PlanFields* p) { p->meshes.push_back(p->meshes[0]); }},
      {"- mesh: 'from' or 'to' is not on mesh 0",
       [](PlanFields* p) { p->meshes[0] = DeviceMesh::Parse("a=2,b=3,d=2").value(); }},
      {"- target: 'from' is of bf16[7,6], 'to' of f32[7,6]",
       [](PlanFields* p) { p->to = Sharding::Parse("f32[7,6]", p->meshes[0], "R,R,R").value(); }},
      {"1 mesh: the step is on mesh 1", [](PlanFields* p) { p->steps[1].mesh = 1; }},
      {"1 after: 'f32[7,6] on",
       [](PlanFields* p) {
         p->steps[1].after = Sharding::Parse("f32[7,6]", p->meshes[0], "R,R,S(1)").value();
       }},
      {"1 op: op 10 is not known", [](PlanFields* p) { p->steps[1].op = StepOp{10}; }},
      {"1 mesh_dims: mesh dim 3 is out of range",
       [](PlanFields* p) {
         p->steps[1].mesh_dims = {0, 3};
       }},
      {"1 mesh_dims: mesh dim -1 is out of range",
       [](PlanFields* p) { p->steps[1].mesh_dims = {-1}; }},
      {"1 mesh_dims: mesh dim 0 is",
       [](PlanFields* p) {
         p->steps[1].mesh_dims = {1, 0};
       }},
      {"1 after: mesh dim b changes from P to R, and the step's mesh_dims a lack it",
       [](PlanFields* p) { p->steps[1].mesh_dims = {0}; }},
      {"0 mesh_dims: mesh dim c changes from R to S(1), and the step's mesh_dims",
       [&](PlanFields* p) {
         p->steps[0].mesh_dims = {1};
         p->steps[0].after = with(p->from, "P(avg),S(0),S(1)");
       }},
      {"1 after: all_reduce leaves R on mesh dim b, not P",
       [&](PlanFields* p) { p->steps[1].after = with(p->from, "R,P,S(1)"); }},
      {"1 group: group_size is 2; it should be 6",
       [](PlanFields* p) { p->steps[1].group_size = 2; }},
      {"1 group: group_size is null", [](PlanFields* p) { p->steps[1].group_size.reset(); }},
      {"0 group: group_size is 2; it should be null",
       [](PlanFields* p) { p->steps[0].group_size = 2; }},
      {"2 group: groups is 5; it should be 6", [](PlanFields* p) { p->steps[2].groups = 5; }},
      {"0 group: groups is 6", [](PlanFields* p) { p->steps[0].groups = 6; }},
      {"0 tensor_dims: tensor_dims are [0]; the tensor dims whose cuts change are [1]",
       [](PlanFields* p) { p->steps[0].tensor_dims = {0}; }},
      {"1 tensor_dims", [](PlanFields* p) { p->steps[1].tensor_dims = {1}; }},
      {"1 reduce_op: reduce_op is sum; it should be avg",
       [](PlanFields* p) { p->steps[1].reduce_op = ReduceOp::kSum; }},
      {"1 reduce_op: reduce_op is null", [](PlanFields* p) { p->steps[1].reduce_op.reset(); }},
      {"2 reduce_op: reduce_op is sum; it should be null",
       [](PlanFields* p) { p->steps[2].reduce_op = ReduceOp::kSum; }},
      {"1 reduce_order: reduce_order is null",
       [](PlanFields* p) { p->steps[1].reduce_order.reset(); }},
      {"1 reduce_order: reduce_order is ascending; no all_reduce of version 1",
       [](PlanFields* p) { p->steps[1].reduce_order = ReduceOrder::kAscending; }},
      {"0 reduce_order: reduce_order is any; slice reduces nothing",
       [](PlanFields* p) { p->steps[0].reduce_order = ReduceOrder::kAny; }},
      {"1 divisor: divisor is 6; it should be 2", [](PlanFields* p) { p->steps[1].divisor = 6; }},
      {"1 divisor: divisor is null", [](PlanFields* p) { p->steps[1].divisor.reset(); }},
      {"2 divisor: divisor is 2; it should be null",
       [](PlanFields* p) { p->steps[2].divisor = 2; }},
      {"2 sizes: sizes is padded; it should be even",
       [](PlanFields* p) { p->steps[2].sizes = kPadded; }},
      {"0 sizes: sizes is even; it should be null",
       [](PlanFields* p) { p->steps[0].sizes = StepSizes::kEven; }},
      {"1 dtype: wire_dtype is f32; it should be bf16",
       [](PlanFields* p) { p->steps[1].wire_dtype = DType::kF32; }},
      {"0 dtype: wire_dtype is bf16; it should be null",
       [](PlanFields* p) { p->steps[0].wire_dtype = DType::kBF16; }},
      {"1 dtype: accumulate_dtype is bf16; it should be f32",
       [](PlanFields* p) { p->steps[1].accumulate_dtype = DType::kBF16; }},
      {"2 dtype: accumulate_dtype is f32; it should be null",
       [](PlanFields* p) { p->steps[2].accumulate_dtype = DType::kF32; }},
      {"- target: the last step leaves R,R,R; the target is S(0),R,R",
       [&](PlanFields* p) { p->to = with(p->from, "S(0),R,R"); }},
      {"- target: the last step leaves R,R,S(1); the target is R,R,R",
       [](PlanFields* p) { p->steps.pop_back(); }},
      {"0 after: mesh dim c changes from R to S(1)",
       [](PlanFields* p) { p->steps.erase(p->steps.begin()); }},
      {"1 promise: nothing in the plan shows that its avg of bf16 is ordered",
       [](PlanFields* p) { p->kept = Reproducibility::kOrdered; }},
      {"0 bytes: bytes_in is 83; it should be 84", [](PlanFields* p) { p->steps[0].bytes_in--; }},
      {"1 bytes: bytes_out is 43; it should be 42", [](PlanFields* p) { p->steps[1].bytes_out++; }},
      {"1 bytes: bytes_sent is 0; it should be 70",
       [](PlanFields* p) { p->steps[1].bytes_sent = 0; }},
      {"0 bytes: bytes_sent is 1; it should be 0",
       [](PlanFields* p) { p->steps[0].bytes_sent = 1; }},
      {"2 est_ns: est_ns is -1, below 0", [](PlanFields* p) { p->steps[2].est_ns = -1; }},
      {"- total: total collectives is 3; it should be 2",
       [](PlanFields* p) { p->total.collectives = 3; }},
      {"- total: total bytes_sent is 111; it should be 112",
       [](PlanFields* p) { p->total.bytes_sent--; }},
      {"- total: total est_ns is 3001; it should be 3000",
       [](PlanFields* p) { p->total.est_ns++; }},
      {"- total: total workspace_bytes is 128; it should be 144",
       [](PlanFields* p) { p->total.workspace_bytes = 128; }},
      {"- total: total peak_bytes is 0; it should be 312",
       [](PlanFields* p) { p->total.peak_bytes = 0; }},
      {"- lower_bound: lower bound bytes_sent is 113; the plan's total is 112",
       [](PlanFields* p) { p->lower_bound.bytes_sent = 113; }},
      {"- lower_bound: lower bound est_ns is 3001",
       [](PlanFields* p) { p->lower_bound.est_ns = 3001; }},
      {"- lower_bound: lower bound est_ns is -1",
       [](PlanFields* p) { p->lower_bound.est_ns = -1; }},
  };
  for (const auto& c : cases) {
    PlanFields plan = MakeFields(right);
    c.damage(&plan);
    EXPECT_EQ(Judge(plan).substr(0, c.expected.size()), c.expected);
  }
}

}  // namespace
}  // namespace meshift
