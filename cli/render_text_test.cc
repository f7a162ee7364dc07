#include "cli/render_text.h"

#include <gtest/gtest.h>

#include <string>

#include "mesh/device_mesh.h"
#include "placement/sharding.h"
#include "planner/plan.h"

namespace meshift::cli {
namespace {

Step MakeStep(StepOp op, const Sharding& after) {
  return {op, 0, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, after};
}

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

  PlanFields fields{{mesh}, 0, 0, from, after("R,R"), {}, {}, "", {}, {}, {}, {}};
  fields.asked = Reproducibility::kReplicas;
  fields.kept = Reproducibility::kReplicas;
  fields.why = "each half is reduced by one group; the rest is copied";
  fields.steps = {slice, reduce, gather};
  fields.total = {2, 12800, 33043, 30720, 10240};
  fields.lower_bound = {7680, 20000};
  fields.inputs.options = {{"planner", "best"}};
  return fields;
}

TEST(RenderText, AWholePlan) {
  EXPECT_EQ(RenderPlan(Plan::Seal(SliceReduceGather())), &R"(
# meshift plan: f32[64,40], P,R -> R,R
# mesh dp=4,tp=2 (8 ranks)
# topology flat, engine local, planner best
# step  op          mesh dims  groups  after       in     out     sent      est
0       slice       tp              -  P,S(0)  10 KiB   5 KiB      0 B   2.0 us
1       all_reduce  dp          2 x 4  R,S(0)   5 KiB   5 KiB  7.5 KiB  20.0 us
2       all_gather  tp          4 x 2  R,R      5 KiB  10 KiB    5 KiB  11.0 us
total: 2 collectives, sent 12.5 KiB, est 33.0 us, peak 30 KiB, workspace 10 KiB
lower bound: sent 7.5 KiB, est 20.0 us
promise replicas: kept (each half is reduced by one group; the rest is copied)
fingerprint 772e8ad651a6dd2b42002919ffc5880d
)"[1]);
}

TEST(RenderText, APromiseThatIsNotKeptSaysSo) {
  PlanFields fields = SliceReduceGather();
  fields.kept = Reproducibility::kNone;
  fields.why = "step 1 sums in 2 groups";
  const std::string text = RenderPlan(Plan::Seal(fields));
  EXPECT_NE(text.find("\npromise replicas: NOT kept (step 1 sums in 2 groups)\n"),
            std::string::npos)
      << text;
}

TEST(RenderText, APlanWithoutSteps) {
  PlanFields fields = SliceReduceGather();
  fields.from = fields.to;
  fields.steps.clear();
  fields.total = {};
  fields.lower_bound = {};
  fields.why = "nothing is reduced";
  const std::string text = RenderPlan(Plan::Seal(fields));
  EXPECT_NE(text.find("# step  op  mesh dims  groups  after  in  out  sent  est\n"
                      "total: 0 collectives, sent 0 B, est 0 ns, peak 0 B, workspace 0 B\n"),
            std::string::npos)
      << text;
}

TEST(RenderText, MessagesAreATable) {
  PlanFields fields = SliceReduceGather();
  fields.steps.pop_back();
  EXPECT_EQ(RenderMessages(Plan::Seal(fields)),
            "# step  source  target  box  contribution  bytes\n");
  const std::string text = RenderMessages(Plan::Seal(SliceReduceGather()));
  EXPECT_EQ(text.substr(0, text.find('\n', 60)),
            "# step  source  target  box            contribution  bytes\n"
            "2            1       0  [32:64, 0:40]  -              5120");
}

}  // namespace
}  // namespace meshift::cli
