#include "examples/your_framework/column_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"

namespace tinyframe {
namespace {

using ::meshift::DeviceMesh;
using ::meshift::MakePlan;
using ::meshift::Sharding;
using ::testing::AllOf;
namespace testkit = ::meshift::testkit;

constexpr int kDp = 3;
constexpr int kTp = 2;

class ColumnParallelTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Each rank has a contribution to the gradient of its rows; all ranks of dp need the sum.
  const DeviceMesh mesh_ = *DeviceMesh::Create({{"dp", kDp}, {"tp", kTp}});
  const Sharding from_ = *Sharding::Parse(GetParam(), mesh_, "P,S(0)");
  const Sharding to_ = *from_.WithPlacements("R,S(0)");
};

// The framework's own layer.
TEST_P(ColumnParallelTest, SyncsGradients) {
  const auto result =
      testkit::CheckLayer({.from = from_, .to = to_}, [](const testkit::LocalTensors& local) {
        std::vector<RankGradient> ranks;
        for (int rank = 0; rank < kDp * kTp; ++rank) {
          ranks.push_back({local.source<float>(rank), local.target<float>(rank)});
        }
        SyncGradients(ranks, kDp, kTp);
        return absl::OkStatus();
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

// The same with Meshift: planned, proven, run, compared; and the bytes that it sends.
TEST_P(ColumnParallelTest, MeshiftSyncsGradients) {
  const int64_t bytes = from_.MaxLocalElements() * 4;
  EXPECT_THAT(
      MakePlan(from_, to_),
      AllOf(testkit::IsProven(), testkit::KeepsReplicasEqual(), testkit::Takes({"all_reduce{dp}"}),
            testkit::MovesAtMost((2 * bytes * (kDp - 1) + kDp - 1) / kDp),
            testkit::StaysBelow(2 * bytes + 1)));
  const auto result = testkit::RedistributeAndCheck({.from = from_, .to = to_});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
}

// Even and uneven shards, a rank without rows.
INSTANTIATE_TEST_SUITE_P(Weights, ColumnParallelTest,
                         ::testing::Values("f32[16,8]", "f32[7,5]", "f32[1,3]"));

}  // namespace
}  // namespace tinyframe
