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

TEST(RenderText, APromiseThatIsNotKeptSaysSo) {
  EXPECT_EQ(RenderPromise(Reproducibility::kReplicas, true, "all is copied"),
            "promise replicas: kept (all is copied)\n");
  EXPECT_EQ(RenderPromise(Reproducibility::kReplicas, false, "step 1 sums in 2 groups"),
            "promise replicas: NOT kept (step 1 sums in 2 groups)\n");
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
