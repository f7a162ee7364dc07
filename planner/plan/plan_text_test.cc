#include "planner/plan/plan_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

Step MakeStep(StepOp op, const Sharding& after) { return {.op = op, .after = after}; }

PlanFields SliceReduceGather() {
  const DeviceMesh mesh = DeviceMesh::Parse("dp=4,tp=2").value();
  const Sharding from = Sharding::Parse("f32[64,40]", mesh, "P,R").value();
  const auto after = [&](const char* text) { return from.WithPlacements(text).value(); };
  Step slice = MakeStep(StepOp::kSlice, after("P,S(0)"));
  slice.mesh_dims = {1};
  slice.tensor_dims = {0};
  slice.bytes_in = 10240;
  slice.bytes_out = 5120;
  slice.est_ns = 2003;

  Step reduce = MakeStep(StepOp::kAllReduce, after("R,S(0)"));
  reduce.mesh_dims = {0};
  reduce.group_size = 4;
  reduce.groups = 2;
  reduce.reduce_op = ReduceOp::kSum;
  reduce.reduce_order = ReduceOrder::kAny;
  reduce.sizes = StepSizes::kEven;
  reduce.wire_dtype = DType::kF32;
  reduce.accumulate_dtype = DType::kF32;
  reduce.bytes_in = 5120;
  reduce.bytes_out = 5120;
  reduce.bytes_sent = 7680;
  reduce.est_ns = 20040;

  Step gather = MakeStep(StepOp::kAllGather, after("R,R"));
  gather.mesh_dims = {1};
  gather.group_size = 2;
  gather.groups = 4;
  gather.tensor_dims = {0};
  gather.sizes = StepSizes::kEven;
  gather.wire_dtype = DType::kF32;
  gather.bytes_in = 5120;
  gather.bytes_out = 10240;
  gather.bytes_sent = 5120;
  gather.est_ns = 11000;

  PlanFields fields{.meshes = {mesh}, .from = from, .to = after("R,R")};
  fields.kept = Reproducibility::kReplicas;
  fields.why = "each half is reduced by one group; the rest is copied";
  fields.steps = {slice, reduce, gather};
  fields.total = {.collectives = 2,
                  .bytes_sent = 12800,
                  .est_ns = 33043,
                  .peak_bytes = 30720,
                  .workspace_bytes = 10240};
  fields.lower_bound = {7680, 20000};
  return fields;
}

// Compares the JSON forms too: PlanFields may differ in fields that neither form prints.
void ExpectReadsBack(const Plan& plan) {
  const std::string text = PlanToText(plan);
  PlanFault fault;
  const absl::StatusOr<Plan> again = PlanFromText(text, &fault);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
  EXPECT_EQ(*again, plan) << text;
  EXPECT_EQ(PlanToText(*again), text);
}

TEST(PlanText, AWholePlan) {
  const Plan plan = Plan::Seal(SliceReduceGather());
  EXPECT_EQ(PlanToText(plan), &R"(
# meshift plan: f32[64,40], P,R -> R,R
# mesh dp=4,tp=2 (8 ranks)
# topology flat, engine local, planner best, reproducibility replicas
# step  op          mesh dims  groups  after       in     out     sent       est  how
0       slice       tp              -  P,S(0)  10 KiB   5 KiB      0 B  2.003 us  dims=0
1       all_reduce  dp          2 x 4  R,S(0)   5 KiB   5 KiB  7.5 KiB  20.04 us  sum f32 even
2       all_gather  tp          4 x 2  R,R      5 KiB  10 KiB    5 KiB     11 us  f32 even dims=0
total: 2 collectives, sent 12.5 KiB, est 33.043 us, peak 30 KiB, workspace 10 KiB
lower bound: sent 7.5 KiB, est 20 us
promise replicas: kept (each half is reduced by one group; the rest is copied)
fingerprint a8ce9a6f46dc75b283a3085978a0a8c4
)"[1]);
  ExpectReadsBack(plan);
}

TEST(PlanText, APromiseThatIsNotKeptSaysSo) {
  PlanFields fields = SliceReduceGather();
  fields.kept = Reproducibility::kNone;
  fields.why = "step 1 sums in 2 groups";
  const std::string text = PlanToText(Plan::Seal(fields));
  EXPECT_NE(text.find("\npromise replicas: NOT kept, only none (step 1 sums in 2 groups)\n"),
            std::string::npos)
      << text;
  ExpectReadsBack(Plan::Seal(fields));
  fields.inputs.options.reproducibility = Reproducibility::kNone;
  fields.kept = Reproducibility::kReplicas;
  ExpectReadsBack(Plan::Seal(fields));
}

TEST(PlanText, OrderedInBlocks) {
  PlanFields fields = SliceReduceGather();
  Step& reduce = fields.steps[1];
  reduce.reduce_op = ReduceOp::kAvg;
  reduce.divisor = 4;
  reduce.reduce_order = ReduceOrder::kAscending;
  const Plan plain = Plan::Seal(fields);
  reduce.reduce_block = 2;
  const Plan plan = Plan::Seal(fields);
  EXPECT_NE(PlanToText(plan).find("  avg/4:ascending:2 f32 even\n"), std::string::npos)
      << PlanToText(plan);
  EXPECT_NE(plan.CanonicalText().find(" reduce avg ascending block 2 divisor 4 "),
            std::string::npos)
      << plan.CanonicalText();
  EXPECT_NE(plan.fingerprint(), plain.fingerprint());
  ExpectReadsBack(plan);
  reduce.reduce_stages = 2;
  const Plan staged = Plan::Seal(fields);
  EXPECT_NE(PlanToText(staged).find("  avg/4:ascending:2:2 f32 even\n"), std::string::npos)
      << PlanToText(staged);
  EXPECT_NE(staged.CanonicalText().find(" reduce avg ascending block 2 stages 2 divisor 4 "),
            std::string::npos)
      << staged.CanonicalText();
  EXPECT_NE(staged.fingerprint(), plan.fingerprint());
  ExpectReadsBack(staged);
  PlanFault fault;
  const absl::StatusOr<Plan> again = PlanFromJson(PlanToJson(plan), &fault);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, plan);
}

TEST(PlanText, APlanWithoutSteps) {
  PlanFields fields = SliceReduceGather();
  fields.from = fields.to;
  fields.steps.clear();
  fields.total = {};
  fields.lower_bound = {};
  fields.why = "nothing is reduced";
  const std::string text = PlanToText(Plan::Seal(fields));
  EXPECT_NE(text.find("# step  op  mesh dims  groups  after  in  out  sent  est  how\n"
                      "total: 0 collectives, sent 0 B, est 0 ns, peak 0 B, workspace 0 B\n"),
            std::string::npos)
      << text;
  ExpectReadsBack(Plan::Seal(fields));
}

TEST(PlanText, ReadsBackWhateverAPlanMaySay) {
  PlanFields fields = SliceReduceGather();
  fields.why = "a \\ and a\nline (with) a )";
  fields.inputs.options.engine = EngineCapabilities::Of("a, b\\x");
  fields.inputs.exceeded_max_value = INT64_MAX;
  Step& slice = fields.steps[0];
  slice.reduce_order = ReduceOrder::kAny;
  slice.groups = 4;
  slice.bytes_sent = -5;
  slice.est_ns = INT64_MIN;
  slice.mesh_dims.clear();
  Step& reduce = fields.steps[1];
  reduce.reduce_op = ReduceOp::kAvg;
  reduce.divisor = -3;
  reduce.reduce_order = std::nullopt;
  reduce.groups = std::nullopt;
  reduce.sizes = StepSizes::kPadded;
  reduce.bytes_in = INT64_MAX;
  reduce.est_ns = INT64_MAX;
  Step& gather = fields.steps[2];
  reduce.accumulate_dtype = std::nullopt;
  gather.wire_dtype = std::nullopt;
  gather.accumulate_dtype = DType::kF64;
  gather.divisor = 7;
  gather.reduce_order = ReduceOrder::kAscending;
  gather.reduce_block = INT64_MAX;
  slice.reduce_block = -1;
  slice.reduce_stages = INT64_MIN;
  gather.reduce_stages = 0;
  gather.tensor_dims = {0, 1};
  gather.bytes_in = (int64_t{1} << 60) + (int64_t{1} << 58);
  fields.total.collectives = 1;
  ExpectReadsBack(Plan::Seal(fields));
}

TEST(PlanText, TwoMeshesAndCasts) {
  PlanFields fields = SliceReduceGather();
  fields.meshes.push_back(*DeviceMesh::Parse("a=2,b=2@4-5,0-1"));
  const Sharding other = *Sharding::Parse("bf16[64,40]", fields.meshes[1], "S(0),R");
  fields.to = other;
  fields.to_mesh = 1;
  fields.steps[2].mesh = 1;
  fields.steps[2].mesh_dims = {0, 1};
  fields.steps[2].after = other;
  const Plan plan = Plan::Seal(fields);
  EXPECT_NE(
      PlanToText(plan).find("# meshift plan: f32[64,40], P,R on mesh 0 -> S(0),R on mesh 1 as "
                            "bf16\n# mesh dp=4,tp=2 (8 ranks)\n# mesh a=2,b=2@4-5,0-1 (4"),
      std::string::npos)
      << PlanToText(plan);
  ExpectReadsBack(plan);
}

TEST(PlanText, RandomPlansReadBack) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    const auto kind = seed % 3 == 0 ? PlannerKind::kPerDim : PlannerKind::kBest;
    const auto plan =
        MakePlan(pair.from, pair.to, {.topology = *Topology::Parse("nvlink=8"), .planner = kind});
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectReadsBack(*plan);
    if (HasFailure()) break;
  }
}

TEST(PlanText, ReadPlanTakesEitherForm) {
  const Plan plan = Plan::Seal(SliceReduceGather());
  EXPECT_EQ(*ReadPlan(PlanToText(plan)), plan);
  EXPECT_EQ(*ReadPlan("\n " + PlanToText(plan) + "# step  source\n0  1\n"), plan);
  EXPECT_EQ(*ReadPlan(PlanToJson(plan)), plan);
}

TEST(PlanText, BadTextNamesTheLineAndWhatIsMissing) {
  const std::string good = PlanToText(Plan::Seal(SliceReduceGather()));
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Case {
    std::string text;
    std::string rule;
    std::optional<int> step;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {"#", "format", {}, "line 1: expected '# meshift plan: ' at '#'"},
           {with("plan:", "plan 3:"), "format", {}, "form 3 is newer"},
           {good.substr(0, good.find("fingerprint")), "format", {}, "cut short"},
           {good.substr(0, good.size() - 9), "fingerprint", {}, "32 hex digits"},
           {good + "x", "format", {}, "line 12: expected the end of the text at 'x'"},
           {with("f32[64,40]", "f33[64,40]"), "format", {}, "f33"},
           {with(" -> R,R", ""), "format", {}, "expected '->'"},
           {with("-> R,R", "-> R,S(7)"), "target", {}, "Shard(7)"},
           {with("dp=4,tp=2", "dp=4,tp=0"), "mesh", {}, "0"},
           {with("# mesh dp=4,tp=2 (8 ranks)\n", ""), "mesh", {}, "out of range"},
           {with("# topology flat, engine local, planner best, reproducibility replicas\n", ""),
            "format",
            {},
            "'inputs'"},
           {with("engine local", "local"), "format", {}, "expected 'engine '"},
           {with("planner best", "plannerbest"), "format", {}, "option"},
           {with("planner best", "planner best, planner per-dim"),
            "format",
            {},
            "option 'planner' appears twice"},
           {with("planner best", "planner \\x4"), "format", {}, "two hex digits"},
           {with("\n1 ", "\n3 "), "format", 1, "step 3 follows step 0"},
           {with("all_reduce", "all_reducf"), "op", 1, "all_reducf"},
           {with("2 x 4", "2 y 4"), "format", 1, "expected ' x '"},
           {with("R,S(0)", "R,S(9)"), "after", 1, "Shard(9)"},
           {with("7.5 KiB", "7.5 KjB"), "format", 1, "number of B"},
           {with("7.5 KiB", "7.53 KiB"), "format", 1, "number of B"},
           {with("7.5 KiB", "9 EiB"), "format", 1, "below 2^63"},
           {with("20.04 us", "20.0401 us"), "format", 1, "number of ns"},
           {with("even", "evil"), "format", 1, "'evil'"},
           {with("dims=0", "dims=x"), "format", 0, "integer"},
           {with("dims=0", "dims=9"), "tensor_dims", 0, "9"},
           {with("total: 2 collectives", "total: two"), "format", {}, "integer"},
           {with("lower bound", "bound"), "format", {}, "'lower bound"},
           {with("promise replicas", "promise eternal"), "promise", {}, "eternal"},
           {with("copied)", "copied"), "format", {}, "')'"},
       }) {
    PlanFault fault;
    const auto plan = PlanFromText(c.text, &fault);
    ASSERT_FALSE(plan.ok()) << c.text;
    EXPECT_EQ(fault.rule, c.rule) << plan.status() << "\n" << c.text;
    EXPECT_EQ(fault.step, c.step) << plan.status();
    EXPECT_NE(fault.message.find(c.message), std::string::npos) << plan.status();
  }
}

}  // namespace
}  // namespace meshift
