// No chain of two plans, by way of a random sharding on either mesh, is over 2 % quicker than the
// plan from one mesh to another, if all its values keep the value rule of the whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "meshift/planner.h"
#include "meshift/topology.h"
#include "testing/random.h"
#include "testing/shardings.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int kNumShards = 8;  // as shard_count in BUILD
constexpr int64_t kCases = 2000;
constexpr int kStops = 40;  // shardings tried between source and target, per case
constexpr int64_t kSmallValue = int64_t{4} << 20;

// A mesh of 1 to 16 of 24 ranks, consecutive ones.
DeviceMesh RandomMesh(char letter, testkit::Random& random) {
  std::vector<DeviceMesh::Dim> dims;
  int64_t ranks = 1;
  const int64_t count = 1 + random.Below(2);
  for (int64_t d = 0; d < count; ++d) {
    const int64_t size = 1 + random.Below(std::min<int64_t>(8, 16 / ranks));
    dims.push_back({fmt::format("{}{}", letter, d), size});
    ranks *= size;
  }
  std::vector<int64_t> list(ranks);
  std::iota(list.begin(), list.end(), random.Below(25 - ranks));
  return DeviceMesh::Create(std::move(dims), std::move(list)).value();
}

// R, S, P (at the source) or At on each mesh dim.
Sharding RandomPlaced(const DeviceMesh& mesh, const TensorType& tensor, bool may_be_partial,
                      testkit::Random& random) {
  const Sharding sharding = testkit::RandomSharding(
      mesh, tensor, std::vector<bool>(mesh.NumDims(), may_be_partial), ReduceOp::kSum, random);
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (!placements[d].IsReplicate() || mesh.dim(d).size == 1 || !random.OneIn(2)) continue;
    placements[d] = Placement::At({random.Below(mesh.dim(d).size)});
  }
  std::vector<Cuts> cuts;
  for (int k = 0; k < static_cast<int>(tensor.shape.size()); ++k) {
    cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
  }
  return sharding.WithPlacements(std::move(placements), std::move(cuts)).value();
}

int64_t LargestBetween(const Plan& plan) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < plan.steps().size(); ++i) {
    most = std::max(most, plan.steps()[i].bytes_out);
  }
  return most;
}

class CrossChainTest : public testing::TestWithParam<int> {};

TEST_P(CrossChainTest, NoChainOfTwoPlansIsQuicker) {
  const PlannerOptions options = {.topology = *Topology::Parse("nvlink=4")};
  int64_t compared = 0;
  for (int64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    testkit::Random random(seed);
    const DeviceMesh a = RandomMesh('a', random);
    const DeviceMesh b = RandomMesh('b', random);
    const TensorType tensor{DType::kBF16, {1 + random.Below(4096), 1 + random.Below(4096)}};
    const Sharding from = RandomPlaced(a, tensor, random.OneIn(3), random);
    const Sharding to = RandomPlaced(b, tensor, false, random);
    const absl::StatusOr<Plan> direct = MakePlan(from, to, options);
    ASSERT_TRUE(direct.ok()) << direct.status();
    const int64_t larger = 2 * std::max(from.MaxLocalElements(), to.MaxLocalElements());
    const int64_t limit = std::max(larger + larger / 4, kSmallValue);
    for (int i = 0; i < kStops; ++i) {
      const Sharding stop = RandomPlaced(random.OneIn(2) ? a : b, tensor, false, random);
      if (2 * stop.MaxLocalElements() > limit) continue;
      const absl::StatusOr<Plan> first = MakePlan(from, stop, options);
      const absl::StatusOr<Plan> second = MakePlan(stop, to, options);
      if (!first.ok() || !second.ok()) continue;
      if (std::max(LargestBetween(*first), LargestBetween(*second)) > limit) continue;
      ++compared;
      const int64_t chain_ns = first->total().est_ns + second->total().est_ns;
      if (direct->total().est_ns <= chain_ns + chain_ns / 50) continue;
      ADD_FAILURE() << seed << ": " << from.ToString() << " -> " << to.ToString() << " takes "
                    << direct->total().est_ns << " ns, by way of " << stop.ToString() << " "
                    << chain_ns << " ns";
    }
  }
  EXPECT_GT(compared, 0);
  fmt::print("chains onto another mesh: {} compared\n", compared);
}

INSTANTIATE_TEST_SUITE_P(Shards, CrossChainTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
