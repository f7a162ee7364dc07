// Redistributions on some of a redistributor's ranks: all of its ranks make the calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "placement/local_box.h"
#include "testing/internal/fake_engine.h"

namespace meshift {
namespace {

// The elements of a box of a tensor. Each element's value is its index in the whole tensor, plus 1.
std::vector<float> ContentOf(const Sharding& sharding, int64_t rank) {
  const Box box = LocalBoxOf(sharding, rank);
  std::vector<float> content;
  if (box.IsEmpty()) return content;
  Shape at = box.offset;
  while (true) {
    int64_t index = 0;
    for (size_t t = 0; t < at.size(); ++t) index = index * sharding.shape()[t] + at[t];
    content.push_back(static_cast<float>(index + 1));
    size_t t = at.size();
    while (t > 0 && ++at[t - 1] == box.offset[t - 1] + box.size[t - 1]) {
      --t;
      at[t] = box.offset[t];
    }
    if (t == 0) return content;
  }
}

// A redistributor per rank of a world.
class SubMeshTest : public testing::Test {
 protected:
  static constexpr int64_t kRanks = 6;

  SubMeshTest() : world_(LocalWorld::Create({.num_ranks = kRanks}).value()) {
    const DeviceMesh all = DeviceMesh::Create({{"ranks", kRanks}}).value();
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      redistribute_.push_back(
          Redistributor::Create(all, world_->engine(rank), {.expert = {.verify_plans = false}})
              .value());
    }
  }

  // Runs `call`(redistributor, source, target) on all ranks. Returns "" or the first error.
  template <typename Call>
  std::string Run(const Sharding& from, const Sharding& to, const Call& call) {
    std::vector<std::vector<float>> in(kRanks);
    std::vector<std::vector<float>> out(kRanks);
    std::vector<RunHandle> handles;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      in[rank] = ContentOf(from, rank);
      out[rank].assign(ContentOf(to, rank).size(), -1);
      const auto view = [&](const Sharding& sharding, std::vector<float>& data) {
        if (!sharding.mesh().PositionOf(rank)) return TensorView();
        return TensorView::Contiguous(data.data(), DType::kF32, sharding.LocalBox(rank).size);
      };
      absl::StatusOr<RunHandle> handle =
          call(redistribute_[rank], view(from, in[rank]), view(to, out[rank]));
      if (!handle.ok()) return handle.status().ToString();
      handles.push_back(*std::move(handle));
    }
    for (const RunHandle& handle : handles) {
      if (absl::Status status = handle.Wait(); !status.ok()) return status.ToString();
    }
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      if (out[rank] != ContentOf(to, rank)) return "rank " + std::to_string(rank) + " is wrong";
    }
    return "";
  }
  std::string Redistribute(const Sharding& from, const Sharding& to) {
    return Run(from, to, [&](Redistributor& redistribute, TensorView in, TensorView out) {
      return redistribute(
          {.from = from, .to = to, .source = std::move(in), .target = std::move(out)});
    });
  }
  std::string RunPlan(const Plan& plan) {
    return Run(plan.from(), plan.to(),
               [&](Redistributor& redistribute, TensorView in, TensorView out) {
                 return redistribute.Run(plan, in, out);
               });
  }

  const std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistribute_;
};

Sharding Parsed(const std::string& text) { return Sharding::Parse(text).value(); }

TEST_F(SubMeshTest, PlansOnAPartOfTheRanks) {
  const Sharding from = Parsed("f32[6,4] on a=2,b=2@5,1,0,4 as S(0),R");
  for (const char* to : {"R,R", "R,S(0)", "S(1),S(0)", "S(1),R"}) {
    EXPECT_EQ(Redistribute(from, from.WithPlacements(to).value()), "") << to;
  }
  // Ranks 2 and 3 have made the same calls, but no group.
  for (const int64_t rank : {0, 2, 3}) {
    const RedistributorStats stats = redistribute_[rank].stats();
    EXPECT_EQ(stats.calls, 4);
    EXPECT_EQ(stats.plans_made, 4);
    EXPECT_EQ(stats.groups.created > 0, rank == 0);
  }
  // Then on other ranks, among them subsets of earlier meshes.
  EXPECT_EQ(Redistribute(Parsed("f32[5] on a=3@3-5 as S(0)"), Parsed("f32[5] on a=3@3-5 as R")),
            "");
  EXPECT_EQ(Redistribute(Parsed("f32[5] on a=2@4,5 as S(0)"), Parsed("f32[5] on a=2@4,5 as R")),
            "");
  EXPECT_EQ(Redistribute(Parsed("f32[] on a=1@3 as R"), Parsed("f32[] on a=1@3 as R")), "");
  EXPECT_EQ(Redistribute(Parsed("f32[7] on a=6 as S(0)"), Parsed("f32[7] on a=6 as R")), "");
}

Step MakeStep(StepOp op, int mesh, DimSet mesh_dims, const Sharding& after) {
  return {.op = op, .mesh = mesh, .mesh_dims = std::move(mesh_dims), .after = after};
}

PlanFields Between(const Sharding& from, const Sharding& to) {
  return {.meshes = {from.mesh(), to.mesh()},
          .to_mesh = 1,
          .from = from,
          .to = to,
          .total = {.workspace_bytes = 256}};
}

// A plan by hand: gather in the first mesh, cross, gather in the second.
TEST_F(SubMeshTest, PlansFromOneMeshToAnother) {
  const Sharding from = Parsed("f32[5,2] on a=2@0,4 as S(0)");
  const Sharding to = Parsed("f32[5,2] on b=2,c=2@1,2,4,5 as R,S(1)");
  const Sharding gathered = from.WithPlacements("R").value();
  const Sharding crossed = to.WithPlacements("S(0),S(1)").value();
  PlanFields fields = Between(from, to);
  fields.steps = {MakeStep(StepOp::kAllGather, 0, {0}, gathered),
                  MakeStep(StepOp::kExchange, 1, {}, crossed),
                  MakeStep(StepOp::kAllGather, 1, {0}, to)};
  const Plan plan = Plan::Seal(fields);
  EXPECT_EQ(RunPlan(plan), "");
  EXPECT_EQ(RunPlan(plan), "");
  // Rank 0 gathers and sends; rank 3 is in no mesh; rank 5 receives and gathers.
  EXPECT_EQ(redistribute_[0].last_run().calls, (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(redistribute_[3].last_run().calls, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(redistribute_[5].last_run().calls, (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(redistribute_[5].last_run().bytes_sent, (std::vector<int64_t>{0, 0, 12}));
  EXPECT_EQ(redistribute_[4].stats().groups.created, 3);
  EXPECT_EQ(redistribute_[3].stats().groups.created, 0);
  for (Redistributor& redistribute : redistribute_) EXPECT_TRUE(redistribute.Prepare({plan}).ok());

  fields.to = crossed;
  fields.steps.pop_back();
  EXPECT_EQ(RunPlan(Plan::Seal(fields)), "");
}

// The receiver of a sum gets all contributions, and adds them in the order of their coordinates: in
// any other order 1e8 - 1e8 + 1 would be 0.
TEST_F(SubMeshTest, ContributionsAreAddedInOrderByWhoTakesThem) {
  const Sharding from = Parsed("f32[3] on a=3@4,0,2 as P");
  const Sharding to = Parsed("f32[3] on b=2@2,5 as S(0)");
  PlanFields fields = Between(from, to);
  fields.steps = {MakeStep(StepOp::kExchange, 1, {}, to)};
  fields.steps[0].reduce_op = ReduceOp::kSum;
  fields.steps[0].reduce_order = ReduceOrder::kAscending;
  const Plan plan = Plan::Seal(fields);
  std::vector<std::vector<float>> in(kRanks);
  in[4] = {1e8F, 1, 2};
  in[0] = {-1e8F, 10, 20};
  in[2] = {1, 100, 200};
  std::vector<std::vector<float>> out(kRanks);
  out[2].assign(2, -1);
  out[5].assign(1, -1);
  std::vector<RunHandle> handles;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto view = [](std::vector<float>& data) {
      if (data.empty()) return TensorView();
      return TensorView::Contiguous(data.data(), DType::kF32, {std::ssize(data)});
    };
    handles.push_back(redistribute_[rank].Run(plan, view(in[rank]), view(out[rank])).value());
  }
  for (const RunHandle& handle : handles) ASSERT_TRUE(handle.Wait().ok());
  EXPECT_EQ(out[2], (std::vector<float>{1, 111}));
  EXPECT_EQ(out[5], std::vector<float>{222});
}

TEST_F(SubMeshTest, MeshesOfOtherRanksAreRefused) {
  const Sharding from = Parsed("f32[4] on a=2@5,6 as S(0)");
  EXPECT_EQ(Redistribute(from, from.WithPlacements("R").value()),
            "INVALID_ARGUMENT: rank 6 of mesh a=2@5-6 is not in the redistributor's mesh "
            "ranks=6");
}

// A rank has no memory for a tensor whose mesh it is not in.
TEST_F(SubMeshTest, MemoryForNothingIsRefused) {
  const Sharding from = Parsed("f32[4] on a=2 as S(0)");
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> memory(4);
  const auto call = [&](const TensorView& source, const TensorView& target) {
    return redistribute_[3]({.from = from, .to = to, .source = source, .target = target})
        .status()
        .ToString();
  };
  const TensorView full = TensorView::Contiguous(memory.data(), DType::kF32, {4});
  const TensorView empty = TensorView::Contiguous(memory.data(), DType::kF32, {0});
  EXPECT_EQ(call(full, {}),
            "INVALID_ARGUMENT: the source is f32[4]; rank 3 holds nothing of it, since it is not "
            "in mesh a=2");
  EXPECT_EQ(call({}, full),
            "INVALID_ARGUMENT: the target is f32[4]; rank 3 holds nothing of it, since it is not "
            "in mesh a=2");
  // A view of any number of elements is refused too.
  for (const Shape& shape :
       {Shape{-1}, Shape{INT64_MAX, 3}, Shape{int64_t{1} << 32, int64_t{1} << 32}}) {
    const TensorView bad{.data = memory.data(),
                         .dtype = DType::kF32,
                         .shape = shape,
                         .strides = Shape(shape.size(), 1)};
    EXPECT_EQ(call(bad, {}).substr(0, 38),
              "INVALID_ARGUMENT: the source is f32[" + std::to_string(shape[0]).substr(0, 2));
  }
  EXPECT_EQ(redistribute_[3].stats().calls, 0);
  EXPECT_EQ(call(empty, empty), "OK");
  EXPECT_EQ(call({}, {}), "OK");
}

// A list may have tensors of which a rank has no part, even tensors without dims.
TEST_F(SubMeshTest, ListsOfTensorsOnParts) {
  const Sharding low = Parsed("f32[4] on a=2 as S(0)");
  const Sharding low_to = low.WithPlacements("R").value();
  const Sharding high = Parsed("f32[] on b=2@4,5 as P");
  const Sharding high_to = high.WithPlacements("R").value();
  std::vector<std::vector<float>> out(kRanks, std::vector<float>(6, -1));
  std::vector<float> in = {1, 2, 3, 4};
  std::vector<RunHandle> handles;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const auto view = [&](const Sharding& sharding, float* data) {
      if (!sharding.mesh().PositionOf(rank)) return TensorView();
      return TensorView::Contiguous(data, DType::kF32, sharding.LocalBox(rank).size);
    };
    const Redistribution list[] = {{.from = low,
                                    .to = low_to,
                                    .source = view(low, &in[rank == 1 ? 2 : 0]),
                                    .target = view(low_to, out[rank].data())},
                                   {.from = high,
                                    .to = high_to,
                                    .source = view(high, &in[rank == 4 ? 1 : 2]),
                                    .target = view(high_to, &out[rank][4])},
                                   {.from = high,
                                    .to = high_to,
                                    .source = view(high, &in[0]),
                                    .target = view(high_to, &out[rank][5])}};
    handles.push_back(redistribute_[rank](list).value());
  }
  for (const RunHandle& handle : handles) EXPECT_TRUE(handle.Wait().ok());
  EXPECT_EQ(out[1], (std::vector<float>{1, 2, 3, 4, -1, -1}));
  EXPECT_EQ(out[2], std::vector<float>(6, -1));
  EXPECT_EQ(out[5], (std::vector<float>{-1, -1, -1, -1, 5, 2}));
}

TEST(SubMeshEngineTest, ARankInNoMeshOnlyTakesPartInSplits) {
  FakeEngine engine(2, 4);
  Redistributor redistribute =
      Redistributor::Create(DeviceMesh::Parse("ranks=4").value(), &engine).value();
  const Sharding from = Parsed("f32[4,4] on a=2 as S(0)");
  const Sharding to = from.WithPlacements("R").value();
  ASSERT_TRUE(redistribute({.from = from, .to = to, .source = {}, .target = {}}).ok());
  ASSERT_TRUE(redistribute({.from = from, .to = to, .source = {}, .target = {}}).ok());
  EXPECT_EQ(engine.log(), std::vector<std::string>{"skip_split of {0,1,2,3}"});
  EXPECT_EQ(engine.allocations(), 0);
  const Plan plan = redistribute.Prepare(from, to).value();
  EXPECT_EQ(redistribute.WorkspaceBytes(plan, {}, {}).value(), 0);
}

}  // namespace
}  // namespace meshift
