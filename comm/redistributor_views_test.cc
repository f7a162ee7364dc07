// Redistributors on views that are not plain: other dtypes, strides, one buffer, consumed sources.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/kernels/small_float.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/fake_engine.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

TensorView Strided(void* data, DType dtype, Shape shape, Shape strides) {
  TensorView view = TensorView::Contiguous(data, dtype, std::move(shape));
  view.strides = std::move(strides);
  return view;
}

// All ranks of a row-major mesh, driven by one thread.
class World {
 public:
  explicit World(const std::string& mesh)
      : mesh_(DeviceMesh::Parse(mesh).value()),
        world_(LocalWorld::Create({.num_ranks = mesh_.NumRanks(), .num_workers = 0}).value()) {
    for (int64_t rank = 0; rank < mesh_.NumRanks(); ++rank) {
      redistributors_.push_back(Redistributor::Create(mesh_, world_->engine(rank)).value());
    }
  }
  Sharding Parse(const std::string& tensor, const std::string& placements) const {
    return Sharding::Parse(tensor, mesh_, placements).value();
  }
  Redistributor& at(int64_t rank) { return redistributors_[rank]; }

  // The first error, if any.
  absl::Status Run(const Sharding& from, const Sharding& to, const std::vector<TensorView>& sources,
                   const std::vector<TensorView>& targets, bool consume_source = false,
                   std::optional<DType> reduce_dtype = std::nullopt) {
    std::vector<RunHandle> handles;
    for (size_t r = 0; r < redistributors_.size(); ++r) {
      absl::StatusOr<RunHandle> handle = redistributors_[r]({.from = from,
                                                             .to = to,
                                                             .source = sources[r],
                                                             .target = targets[r],
                                                             .consume_source = consume_source,
                                                             .reduce_dtype = reduce_dtype});
      if (!handle.ok()) return handle.status();
      handles.push_back(*handle);
    }
    absl::Status status;
    for (const RunHandle& handle : handles) status.Update(handle.Wait());
    return status;
  }

 private:
  const DeviceMesh mesh_;
  const std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistributors_;
};

std::vector<float> Counting(int n, float first = 0) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(RedistributorViewsTest, CastsOnTheWay) {
  World world("a=2");
  const Sharding from = world.Parse("f32[4]", "S(0)");
  const Sharding to = world.Parse("bf16[4]", "R");
  std::vector<std::vector<float>> in = {{1, 2.5}, {-3, 1.00390625}};
  std::vector<std::vector<uint16_t>> out(2, std::vector<uint16_t>(4));
  std::vector<TensorView> sources;
  std::vector<TensorView> targets;
  for (int r = 0; r < 2; ++r) {
    sources.push_back(TensorView::Contiguous(in[r].data(), DType::kF32, {2}));
    targets.push_back(TensorView::Contiguous(out[r].data(), DType::kBF16, {4}));
  }
  ASSERT_TRUE(world.Run(from, to, sources, targets).ok());
  const std::vector<uint16_t> want = {BF16::FromFloat(1), BF16::FromFloat(2.5), BF16::FromFloat(-3),
                                      BF16::FromFloat(1)};
  EXPECT_EQ(out[0], want);
  EXPECT_EQ(out[1], want);
  // The view must have the target's dtype.
  targets[0].dtype = DType::kF32;
  EXPECT_EQ(world.Run(from, to, sources, targets).ToString(),
            "INVALID_ARGUMENT: the target is f32[4]; rank 0 holds bf16[4]");
}

// 256 + 1 + 1 + 1 = 259 cannot be represented in bf16: a bf16 sum is rounded to 260 (once, from
// f32). An f32 sum is 259.
TEST(RedistributorViewsTest, ReduceDTypeIsPartOfThePlan) {
  World world("a=4");
  const Sharding from = world.Parse("bf16[1]", "P");
  const Sharding to = world.Parse("f32[1]", "R");
  std::vector<uint16_t> in = {BF16::FromFloat(256), BF16::FromFloat(1), BF16::FromFloat(1),
                              BF16::FromFloat(1)};
  std::vector<float> out(4);
  std::vector<TensorView> sources;
  std::vector<TensorView> targets;
  for (int r = 0; r < 4; ++r) {
    sources.push_back(TensorView::Contiguous(&in[r], DType::kBF16, {1}));
    targets.push_back(TensorView::Contiguous(&out[r], DType::kF32, {1}));
  }
  ASSERT_TRUE(world.Run(from, to, sources, targets).ok());
  EXPECT_EQ(out, std::vector<float>(4, 260));
  ASSERT_TRUE(world.Run(from, to, sources, targets, false, DType::kF32).ok());
  EXPECT_EQ(out, std::vector<float>(4, 259));
  ASSERT_TRUE(world.Run(from, to, sources, targets).ok());
  EXPECT_EQ(out, std::vector<float>(4, 260));
  EXPECT_EQ(world.at(0).stats().plans_made, 2);
}

TEST(RedistributorViewsTest, F4e2m1TravelsTwoToAByte) {
  World world("a=2");
  const Sharding from = world.Parse("f4e2m1[2,4]", "S(0)");
  const Sharding to = from.WithPlacements("S(1)").value();
  // The target of rank 0 has a hole of a byte after each row.
  std::vector<uint8_t> in[2] = {{0x21, 0x43}, {0x65, 0x87}};
  std::vector<uint8_t> out[2] = {std::vector<uint8_t>(4, 0xee), std::vector<uint8_t>(2)};
  ASSERT_TRUE(world
                  .Run(from, to,
                       {TensorView::Contiguous(in[0].data(), DType::kF4E2M1, {1, 4}),
                        TensorView::Contiguous(in[1].data(), DType::kF4E2M1, {1, 4})},
                       {Strided(out[0].data(), DType::kF4E2M1, {2, 2}, {4, 1}),
                        TensorView::Contiguous(out[1].data(), DType::kF4E2M1, {2, 2})})
                  .ok());
  EXPECT_EQ(out[0], (std::vector<uint8_t>{0x21, 0xee, 0x65, 0xee}));
  EXPECT_EQ(out[1], (std::vector<uint8_t>{0x43, 0x87}));
  const Plan plan = MakePlan(from, to).value();
  const TensorView odd = Strided(out[0].data(), DType::kF4E2M1, {2, 2}, {3, 1});
  EXPECT_EQ(world.at(0)
                .Run(plan, TensorView::Contiguous(in[0].data(), DType::kF4E2M1, {1, 4}), odd)
                .status()
                .ToString(),
            "INVALID_ARGUMENT: the target: stride 3 of dim 0 would cut a byte of f4e2m1, which "
            "holds two elements");
}

// A column-major source with a hole, and a target with negative strides. Bytes between the target's
// elements do not change.
TEST(RedistributorViewsTest, StridesAreReadAndWrittenWhereTheyAre) {
  World world("a=2");
  const Sharding from = world.Parse("f32[2,2]", "P");
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> in[2] = {{1, 3, -1, 2, 4}, {10, 30, -1, 20, 40}};
  std::vector<float> out[2] = {std::vector<float>(5, -1), std::vector<float>(4, -1)};
  const std::vector<TensorView> sources = {Strided(in[0].data(), DType::kF32, {2, 2}, {1, 3}),
                                           Strided(in[1].data(), DType::kF32, {2, 2}, {1, 3})};
  const std::vector<TensorView> targets = {
      Strided(out[0].data() + 4, DType::kF32, {2, 2}, {-3, -1}),
      TensorView::Contiguous(out[1].data(), DType::kF32, {2, 2})};
  ASSERT_TRUE(world.Run(from, to, sources, targets).ok());
  EXPECT_EQ(out[0], (std::vector<float>{44, 33, -1, 22, 11}));
  EXPECT_EQ(out[1], (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(in[0], (std::vector<float>{1, 3, -1, 2, 4}));
  // The call runs in place on one copy in the workspace; if one tensor is contiguous, it needs no
  // copy there.
  const Plan plan = MakePlan(from, to).value();
  EXPECT_EQ(world.at(0).WorkspaceBytes(plan, sources[0], targets[0]).value(), 16);
  EXPECT_EQ(world.at(1).WorkspaceBytes(plan, sources[1], targets[1]).value(), 0);
}

TEST(RedistributorViewsTest, ZeroStridesRepeatASource) {
  World world("a=2");
  const Sharding from = world.Parse("f32[4,3]", "S(0)");
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> in = {5, 6, 7, 8};
  std::vector<float> out[2] = {std::vector<float>(12), std::vector<float>(12)};
  ASSERT_TRUE(world
                  .Run(from, to,
                       {Strided(&in[0], DType::kF32, {2, 3}, {1, 0}),
                        Strided(&in[2], DType::kF32, {2, 3}, {1, 0})},
                       {TensorView::Contiguous(out[0].data(), DType::kF32, {4, 3}),
                        TensorView::Contiguous(out[1].data(), DType::kF32, {4, 3})})
                  .ok());
  EXPECT_EQ(out[0], (std::vector<float>{5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8}));
  EXPECT_EQ(out[1], out[0]);
}

TEST(RedistributorViewsTest, OneBufferMayBeSourceAndTarget) {
  World world("a=2");
  struct Row {
    std::string from;
    std::string to;
    int64_t workspace;  // bytes in addition to the plan's
  };
  const auto value = [](const Sharding& s, int64_t rank, int64_t i) {
    return s.placement(0).IsPartial() && rank == 1 ? 0.0F : static_cast<float>(i);
  };
  for (const Row& row : std::vector<Row>{{"P", "R", 0},      // in place
                                         {"R", "R", 0},      // nothing to do
                                         {"P", "S(0)", 16},  // a copy of the smaller side
                                         {"S(0)", "R", 16},
                                         {"R", "S(0)", 16},
                                         {"S(0)", "S(1)", 16}}) {
    const Sharding from = world.Parse("f32[4,2]", row.from);
    const Sharding to = from.WithPlacements(row.to).value();
    const Plan plan = MakePlan(from, to, {.max_value = 0}).value();
    std::vector<float> data[2];
    std::vector<TensorView> sources;
    std::vector<TensorView> targets;
    for (int64_t rank = 0; rank < 2; ++rank) {
      data[rank].assign(8, -1);
      const Box box = from.LocalBox(rank);
      for (int64_t i = 0, n = 0; i < box.size[0]; ++i) {
        for (int64_t j = 0; j < box.size[1]; ++j) {
          data[rank][n++] = value(from, rank, 2 * (box.offset[0] + i) + box.offset[1] + j);
        }
      }
      sources.push_back(TensorView::Contiguous(data[rank].data(), DType::kF32, box.size));
      targets.push_back(
          TensorView::Contiguous(data[rank].data(), DType::kF32, to.LocalBox(rank).size));
    }
    ASSERT_TRUE(world.Run(from, to, sources, targets).ok()) << row.from << " " << row.to;
    for (int64_t rank = 0; rank < 2; ++rank) {
      const Box box = to.LocalBox(rank);
      for (int64_t i = 0, n = 0; i < box.size[0]; ++i) {
        for (int64_t j = 0; j < box.size[1]; ++j) {
          EXPECT_EQ(data[rank][n++],
                    static_cast<float>(2 * (box.offset[0] + i) + box.offset[1] + j))
              << row.from << " -> " << row.to << " on rank " << rank;
        }
      }
    }
    EXPECT_EQ(world.at(0).WorkspaceBytes(plan, sources[0], targets[0]).value(),
              plan.total().workspace_bytes + row.workspace)
        << row.from << " -> " << row.to;
  }
}

TEST(RedistributorViewsTest, ConsumedSourcesStandInForWorkspace) {
  World world("dp=2,tp=2");
  const Plan plan = Plan::Seal(MakeFields(ThreeSteps()));
  alignas(16) float in[4][12];
  alignas(16) float out[4][8];
  std::vector<TensorView> sources;
  std::vector<TensorView> targets;
  std::vector<RunHandle> handles;
  for (int r = 0; r < 4; ++r) {
    for (int i = 0; i < 8; ++i) in[r][i] = static_cast<float>(r < 2 ? i : 100 * i);
    sources.push_back(TensorView::Contiguous(in[r], DType::kF32, {4, 2}));
    targets.push_back(TensorView::Contiguous(out[r], DType::kF32, {4, 2}));
    // The slice's result cannot lie in the source that is being read; later values do.
    EXPECT_EQ(world.at(r).WorkspaceBytes(plan, sources[r], targets[r]).value(), 32);
    EXPECT_EQ(world.at(r).WorkspaceBytes(plan, sources[r], targets[r], true).value(), 16);
    alignas(16) static char workspace[4][16];
    const absl::StatusOr<RunHandle> handle = world.at(r).Run(
        plan, sources[r], targets[r], {.workspace = {workspace[r], 16}, .consume_source = true});
    ASSERT_TRUE(handle.ok()) << handle.status();
    handles.push_back(*handle);
  }
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(handles[r].Wait().ok());
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out[r][i], static_cast<float>(101 * i));
  }
  // Sources that are not contiguous, or not aligned as a workspace, are not consumed.
  const TensorView unaligned = TensorView::Contiguous(&in[0][1], DType::kF32, {4, 2});
  EXPECT_EQ(world.at(0).WorkspaceBytes(plan, unaligned, targets[0], true).value(), 32);
  const TensorView strided = Strided(in[0], DType::kF32, {4, 2}, {3, 1});
  EXPECT_EQ(world.at(0).WorkspaceBytes(plan, strided, targets[0], true).value(), 32);
}

// Later calls with the same layouts neither lower nor allocate.
TEST(RedistributorViewsTest, LayoutsAreLoweredOnce) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  FakeEngine engine(0, 2);
  Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
  const Sharding from = Sharding::Parse("f32[4,2]", mesh, "P").value();
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> in = Counting(16);
  std::vector<float> out(16);
  const Redistribution args = {.from = from,
                               .to = to,
                               .source = Strided(in.data(), DType::kF32, {4, 2}, {1, 4}),
                               .target = Strided(out.data(), DType::kF32, {4, 2}, {4, 2})};
  ASSERT_TRUE(redistribute(args).ok());
  EXPECT_EQ(engine.log(),
            (std::vector<std::string>{"copy 1 f32", "all_reduce 8 f32 sum", "copy 1 f32"}));
  const int allocations = engine.allocations();
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(redistribute.stats().programs_made, 1);
  ASSERT_TRUE(redistribute(args).ok());
  EXPECT_EQ(engine.allocations(), allocations);
  EXPECT_EQ(redistribute.stats().programs_made, 1);
  // A caller's workspace must have room for the copy too.
  Redistribution tight = args;
  alignas(16) char memory[16];
  tight.workspace = {memory, 16};
  EXPECT_EQ(redistribute(tight).status().ToString(),
            "INVALID_ARGUMENT: the workspace has 16 bytes; the plan needs 32");
}

}  // namespace
}  // namespace meshift
