// Right plans with one change each, and the rule that finds the change.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

using Damage = std::function<void(PlanFields*)>;
struct Damaged {
  std::string expected;  // the first characters of the verdict
  Damage damage;
};

void ExpectFound(const PlanFields& right, const std::vector<Damaged>& cases) {
  ASSERT_EQ(Judge(right), "");
  for (const auto& [expected, damage] : cases) {
    PlanFields plan = right;
    damage(&plan);
    const std::string verdict = Judge(plan);
    EXPECT_EQ(verdict.substr(0, expected.size()), expected) << verdict;
  }
}

// Changes the options in the plan's inputs.
template <typename Set>
Damage Option(Set set) {
  return [=](PlanFields* p) { set(p->inputs.options); };
}

// Sets the budget of groups; `existing` is text for ParseMeshGroups, null for an absent option.
Damage Limits(GroupBudget budget, const char* existing) {
  return [=](PlanFields* p) {
    p->inputs.options.groups = budget;
    if (existing == nullptr) return;
    p->inputs.options.groups.existing_groups = ParseMeshGroups(existing, p->meshes).value();
  };
}

TEST(VerifierDamageTest, FieldsOfAPlan) {
  const Case right = {
      "a=2,b=3,c=2",
      "bf16[7,6]",
      "P(avg),P,R",
      "R,R,R",
      {{kSlice, "c", "P(avg),P,S(1)", 84, 42, 0},
       {kAllReduce, "a,b", "R,R,S(1)", 42, 42, 70, StepSizes::kEven, ReduceOp::kAvg, 2},
       {kAllGather, "c", "R,R,R", 42, 84, 42}},
      144};
  const auto with = [](const Sharding& s, std::string_view placements) {
    return s.WithPlacements(placements).value();
  };
  const std::vector<Damaged> cases = {
      {"- mesh: mesh 1 is out of range", [](PlanFields* p) { p->to_mesh = 1; }},
      {"- mesh: mesh a=2,b=3,c=2 is listed twice",
       [](PlanFields* p) { p->meshes.push_back(p->meshes[0]), p->to_mesh = 1; }},
      {"- mesh: 'from' is on mesh 0, 'to' on mesh 0; with 2 mesh(es) they must be on 0 and 1",
       [](PlanFields* p) { p->meshes.push_back(p->meshes[0]); }},
      {"- mesh: 'from' or 'to' is not on mesh 0",
       [](PlanFields* p) { p->meshes[0] = DeviceMesh::Parse("a=2,b=3,d=2").value(); }},
      {"- target: 'from' is bf16[7,6] and 'to' is bf16[6,7]; their shapes must be equal",
       [](PlanFields* p) { p->to = Sharding::Parse("bf16[6,7]", p->meshes[0], "R,R,R").value(); }},
      {"- target: the last step leaves bf16; the target has dtype f32",
       [](PlanFields* p) { p->to = Sharding::Parse("f32[7,6]", p->meshes[0], "R,R,R").value(); }},
      {"1 mesh: the step is on mesh 1", [](PlanFields* p) { p->steps[1].mesh = 1; }},
      {"1 after: 'bf16[7,7] on",
       [](PlanFields* p) {
         p->steps[1].after = Sharding::Parse("bf16[7,7]", p->meshes[0], "R,R,S(1)").value();
       }},
      {"1 dtype: the dtype is f32 after all_reduce; it must stay bf16",
       [](PlanFields* p) {
         p->steps[1].after = Sharding::Parse("f32[7,6]", p->meshes[0], "R,R,S(1)").value();
       }},
      {"1 op: op 15 is not known", [](PlanFields* p) { p->steps[1].op = StepOp{15}; }},
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
      {"1 after: mesh dim b changes from P to R, and the step's mesh_dims [a] do not include it",
       [](PlanFields* p) { p->steps[1].mesh_dims = {0}; }},
      {"0 mesh_dims: mesh dim c changes from R to S(1), and the step's mesh_dims",
       [&](PlanFields* p) {
         p->steps[0].mesh_dims = {1};
         p->steps[0].after = with(p->from, "P(avg),S(0),S(1)");
       }},
      {"1 after: mesh dim b is P after all_reduce; it must be R",
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
      {"1 bytes: bytes_sent is 70; it should be",
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
  ExpectFound(MakeFields(right), cases);
}

TEST(VerifierDamageTest, FieldsOfAPlanWithCasts) {
  const Case right = {"a=2,b=2",
                      "bf16[4,2]",
                      "P,S(0)",
                      "R,R",
                      {Cast(DType::kF32, "P,S(0)", 8, 16),
                       {kAllReduce, "a", "R,S(0)", 16, 16, 16},
                       Cast(DType::kF16, "R,S(0)", 16, 8),
                       {kAllGather, "b", "R,R", 8, 16, 8}},
                      32,
                      DType::kF16};
  const std::vector<Damaged> cases = {
      {"2 dtype: wire_dtype is f32; it should be null",
       [](PlanFields* p) { p->steps[2].wire_dtype = DType::kF32; }},
      {"3 dtype: wire_dtype is f32; it should be f16",
       [](PlanFields* p) { p->steps[3].wire_dtype = DType::kF32; }},
      {"1 dtype: wire_dtype is bf16; it should be f32",
       [](PlanFields* p) { p->steps[1].wire_dtype = DType::kBF16; }},
      {"2 dtype: accumulate_dtype is f32; it should be null",
       [](PlanFields* p) { p->steps[2].accumulate_dtype = DType::kF32; }},
      {"0 group: group_size is 2; it should be null",
       [](PlanFields* p) { p->steps[0].group_size = 2; }},
      {"0 sizes: sizes is even; it should be null",
       [](PlanFields* p) { p->steps[0].sizes = StepSizes::kEven; }},
      {"0 tensor_dims: tensor_dims are [0]; the tensor dims whose cuts change are []",
       [](PlanFields* p) { p->steps[0].tensor_dims = {0}; }},
      {"2 reduce_op: reduce_op is sum; it should be null",
       [](PlanFields* p) { p->steps[2].reduce_op = ReduceOp::kSum; }},
      {"0 bytes: bytes_out is 8; it should be 16",
       [](PlanFields* p) { p->steps[0].bytes_out = 8; }},
      {"2 bytes: bytes_in is 8; it should be 16", [](PlanFields* p) { p->steps[2].bytes_in = 8; }},
      {"2 bytes: bytes_sent is 8; it should be 0",
       [](PlanFields* p) { p->steps[2].bytes_sent = 8; }},
      {"3 bytes: bytes_sent is 16; it should be 8",
       [](PlanFields* p) { p->steps[3].bytes_sent = 16; }},
      {"- total: total workspace_bytes is 16; it should be 32",
       [](PlanFields* p) { p->total.workspace_bytes = 16; }},
      {"- total: total peak_bytes is 48; it should be 56",
       [](PlanFields* p) { p->total.peak_bytes = 48; }},
      {"- max_memory: peak_bytes is 56; max_memory is 55",
       Option([](PlannerOptions& o) { o.max_memory = 55; })},
      {"- total: total peak_bytes is 56; it should be 48",
       Option([](PlannerOptions& o) { o.buffers = Buffers::kOne; })},
      {"1 new_groups: all_reduce{a} is over a group that does not exist",
       Limits({.allow_new_groups = false}, "b;a,b")},
      {"1 new_groups: all_reduce{a} is over a group that does not exist",
       Limits({.allow_new_groups = false}, "-")},
      {"- existing_groups: option existing_groups is missing; new_groups needs it",
       Limits({.allow_new_groups = false}, nullptr)},
      {"- existing_groups: option existing_groups is missing; expected_uses needs it",
       Limits({.expected_uses = 2}, nullptr)},
      {"- existing_groups: option existing_groups has a group of mesh c=2, which is not in the "
       "plan",
       Option([](PlannerOptions& o) {
         o.groups.existing_groups = {{DeviceMesh::Parse("c=2").value(), {0}}};
       })},
      {"- existing_groups: mesh a=2,b=2 has no dim 2",
       [](PlanFields* p) {
         p->inputs.options.groups.existing_groups = {{p->meshes[0], {2}}};
       }},
      {"- max_communicators: a rank needs 2 communicators; max_communicators is 1",
       Limits({.max_communicators = 1}, nullptr)},
      {"- max_communicators: option max_communicators is -1, below 0",
       Limits({.max_communicators = -1}, nullptr)},
      {"- expected_uses: option expected_uses is 0, below 1", Limits({.expected_uses = 0}, "-")},
      {"- total: total setup_ns is 0; it should be 50000000",
       Limits({.expected_uses = 2}, "a;a,b")},
      {"- total: total setup_ns is 1; it should be 0",
       [](PlanFields* p) { p->total.setup_ns = 1; }},
      // Steps removed, duplicated and swapped.
      {"0 dtype: the dtype is f32 after all_reduce; it must stay bf16",
       [](PlanFields* p) { p->steps.erase(p->steps.begin()); }},
      {"2 dtype: the dtype is f16 after all_gather; it must stay f32",
       [](PlanFields* p) { p->steps.erase(p->steps.begin() + 2); }},
      {"1 dtype: the dtype is f32 before and after the cast; a cast must change it",
       [](PlanFields* p) { p->steps.insert(p->steps.begin(), Step(p->steps[0])); }},
      {"0 after: mesh dim a changes from P to R",
       [](PlanFields* p) { std::swap(p->steps[0], p->steps[2]); }},
      {"1 cast: it reduces in f32; the reduce dtype is bf16",
       Option([](PlannerOptions& o) { o.reduce_dtype = DType::kBF16; })},
  };
  ExpectFound(MakeFields(right), cases);
}

TEST(VerifierDamageTest, FieldsOfAPlanOntoAnotherMesh) {
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
  PlanFields fields = MakeFields(right);
  // The workspace is taken from the verifier; other tests check how it is counted.
  const std::string verdict = Judge(fields);
  ASSERT_EQ(verdict.substr(0, 43), "- total: total workspace_bytes is 0; it sho") << verdict;
  fields.total.workspace_bytes = std::stoll(verdict.substr(verdict.rfind(' ')));
  fields.total.peak_bytes += fields.total.workspace_bytes;
  const DeviceMesh b = fields.meshes[1];
  const std::vector<Damaged> cases = {
      {"- mesh: mesh 2 is out of range for a plan of 2 mesh(es)",
       [](PlanFields* p) { p->to_mesh = 2; }},
      {"- mesh: 'from' is on mesh 1, 'to' on mesh 0; with 2 mesh(es) they must be on 0 and 1",
       [](PlanFields* p) { p->from_mesh = 1, p->to_mesh = 0; }},
      {"- mesh: 'from' is on mesh 0, 'to' on mesh 0; with 2 mesh(es) they must be on 0 and 1",
       [](PlanFields* p) { p->to_mesh = 0; }},
      {"- mesh: 3 meshes are listed; a plan has at most two",
       [&](PlanFields* p) { p->meshes.push_back(b); }},
      {"- mesh: 'from' or 'to' is not on mesh 1",
       [](PlanFields* p) { p->meshes[1] = DeviceMesh::Parse("b=3@6-8").value(); }},
      {"- mesh: 'from' or 'to' is not on mesh 0",
       [](PlanFields* p) { p->meshes[0] = DeviceMesh::Parse("a=4").value(); }},
      {"- target: 'from' is bf16[7,6] and 'to' is bf16[6,7]; their shapes must be equal",
       [&](PlanFields* p) { p->to = Sharding::Parse("bf16[6,7]", b, "P").value(); }},
      {"0 mesh: the step is on mesh 1, but the value is still on mesh 0",
       [](PlanFields* p) { p->steps[0].mesh = 1; }},
      {"1 after: 'bf16[7,6] on b=3@3-5 as S(0)' is not a sharding of bf16[7,6] on a=2,c=2",
       [](PlanFields* p) { p->steps[1].mesh = 0; }},
      {"1 mesh: the step is on mesh 2, the value on mesh 0",
       [](PlanFields* p) { p->steps[1].mesh = 2; }},
      {"1 mesh: the step is on mesh -1, the value on mesh 0",
       [](PlanFields* p) { p->steps[1].mesh = -1; }},
      {"2 mesh: the step is on mesh 0, the value on mesh 1",
       [](PlanFields* p) { p->steps[2].mesh = 0; }},
      {"1 op: op 15 is not known", [](PlanFields* p) { p->steps[1].op = StepOp{15}; }},
      {"1 mesh: the step is on mesh 1, but the value is still on mesh 0",
       [](PlanFields* p) { p->steps[1].op = kPermute; }},
      {"1 mesh_dims: exchange to another mesh has no mesh dims; this one has 1",
       [](PlanFields* p) { p->steps[1].mesh_dims = {0}; }},
      {"1 tensor_dims: tensor_dims are [0]; for a step to another mesh they must be []",
       [](PlanFields* p) { p->steps[1].tensor_dims = {0}; }},
      {"1 after: 'bf16[7,6] on a=2,c=2 as R,R' is not a sharding of",
       [](PlanFields* p) { p->steps[1].after = p->from.WithPlacements("R,R").value(); }},
      {"1 after: 'bf16[6,7] on b=3@3-5 as S(0)' is not a sharding of",
       [&](PlanFields* p) { p->steps[1].after = Sharding::Parse("bf16[6,7]", b, "S(0)").value(); }},
      {"1 dtype: the dtype is f32 after exchange; it must stay bf16",
       [](PlanFields* p) { p->steps[1].after = p->steps[1].after.WithDType(DType::kF32).value(); }},
      {"1 after: mesh dim b is P after the exchange to another mesh; it must be R or a shard",
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
      {"1 mesh: the step is on mesh 1, but the value is still on mesh 0",
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
      {"- total: total collectives is 2; it should be 3",
       [](PlanFields* p) { p->total.collectives = 2; }},
      {"- total: total bytes_sent is 137; it should be 138",
       [](PlanFields* p) { p->total.bytes_sent--; }},
      {"- total: total peak_bytes is 0; it should be",
       [](PlanFields* p) { p->total.peak_bytes = 0; }},
      {"- lower_bound: lower bound bytes_sent is 139",
       [](PlanFields* p) { p->lower_bound.bytes_sent = 139; }},
  };
  ExpectFound(fields, cases);
}

}  // namespace
}  // namespace meshift
