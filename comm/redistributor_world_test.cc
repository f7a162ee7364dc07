// Redistributors of all ranks of a local world, driven by one thread or by one thread each; and how
// aborting one ends the others.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

// All ranks of a local world, driven by one thread; many calls are in flight.
TEST(RedistributorWorldTest, OneThreadDrivesAllRanks) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=3@6,1,2,0,4,5").value();
  const auto world = LocalWorld::Create({.num_ranks = 7}).value();
  const Sharding partial = Sharding::Parse("f32[5]", mesh, "P,P").value();
  const Sharding cut = Sharding::Parse("f32[5]", mesh, "R,S(0)").value();
  std::vector<Redistributor> redistributors;
  std::vector<std::vector<float>> in(6), middle(6), out(6);
  for (int p = 0; p < 6; ++p) {
    redistributors.push_back(
        Redistributor::Create(mesh, world->engine(mesh.RankAt(p)), {.expert = {.time_steps = true}})
            .value());
    in[p] = {1, 2, 3, 4, static_cast<float>(p)};
    middle[p].resize(cut.BoxAt(mesh.CoordinateAt(p)).NumElements());
    out[p].resize(5);
  }
  const Sharding whole = partial.WithPlacements("R,R").value();
  std::vector<RunHandle> last(6);
  for (int round = 0; round < 3; ++round) {
    for (int p = 0; p < 6; ++p) {
      const auto view = [](std::vector<float>& data) {
        return TensorView::Contiguous(data.data(), DType::kF32,
                                      {static_cast<int64_t>(data.size())});
      };
      Redistributor& redistribute = redistributors[p];
      // After the last run, which writes and reads the same memory.
      const RunHandle scattered = redistribute({.from = partial,
                                                .to = cut,
                                                .source = view(in[p]),
                                                .target = view(middle[p]),
                                                .after_run = last[p]})
                                      .value();
      last[p] = redistribute({.from = cut,
                              .to = whole,
                              .source = view(middle[p]),
                              .target = view(out[p]),
                              .after_run = scattered})
                    .value();
    }
  }
  for (int p = 0; p < 6; ++p) {
    const absl::Status status = last[p].Wait();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(out[p], (std::vector<float>{6, 12, 18, 24, 15}));
    EXPECT_EQ(redistributors[p].stats().plans_made, 2);
    EXPECT_EQ(redistributors[p].stats().calls, 6);
    EXPECT_GE(redistributors[p].last_run().StepNs(0), 0);
  }
}

TEST(RedistributorWorldTest, AbortOfOneRankEndsAll) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 2}).value();
  const Sharding from = Sharding::Parse("f32[4]", mesh, "P").value();
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> in(4), out(4);
  Redistributor first = Redistributor::Create(mesh, world->engine(0)).value();
  Redistributor second = Redistributor::Create(mesh, world->engine(1)).value();
  const RunHandle run = first({.from = from,
                               .to = to,
                               .source = TensorView::Contiguous(in.data(), DType::kF32, {4}),
                               .target = TensorView::Contiguous(out.data(), DType::kF32, {4})})
                            .value();
  second.Prepare(from, to).value();
  second.Abort();
  EXPECT_EQ(run.Wait().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(first.Prepare(from, to).status().code(), absl::StatusCode::kAborted);
}

TEST(RedistributorWorldTest, OneThreadPerRank) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 4}).value();
  const Sharding from = Sharding::Parse("f32[6]", mesh, "P,S(0)").value();
  const Sharding to = from.WithPlacements("R,R").value();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      Redistributor redistribute = Redistributor::Create(mesh, world->engine(rank)).value();
      std::vector<float> in(3, 1);
      std::vector<float> out(6);
      for (int round = 0; round < 20; ++round) {
        const absl::StatusOr<RunHandle> run =
            redistribute({.from = from,
                          .to = to,
                          .source = TensorView::Contiguous(in.data(), DType::kF32, {3}),
                          .target = TensorView::Contiguous(out.data(), DType::kF32, {6})});
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_TRUE(run->Wait().ok());
        ASSERT_EQ(out, std::vector<float>(6, 2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RedistributorWorldTest, AbortFromAnotherThreadEndsAWait) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 2}).value();
  const Sharding from = Sharding::Parse("f32[4]", mesh, "P").value();
  const Sharding to = from.WithPlacements("R").value();
  std::vector<float> in(4), out(4);
  Redistributor redistribute = Redistributor::Create(mesh, world->engine(0)).value();
  const RunHandle run =
      redistribute({.from = from,
                    .to = to,
                    .source = TensorView::Contiguous(in.data(), DType::kF32, {4}),
                    .target = TensorView::Contiguous(out.data(), DType::kF32, {4})})
          .value();
  std::thread aborter([&] { redistribute.Abort(); });
  EXPECT_EQ(run.Wait().code(), absl::StatusCode::kAborted);
  aborter.join();
}

}  // namespace
}  // namespace meshift
