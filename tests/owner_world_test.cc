// Redistributions from and to a part of the mesh (testing/owner_world.h): every one of the small
// world and of the small world of two meshes, and random ones. Planned, proven and run.
#include "testing/owner_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "meshift/planner.h"
#include "meshift/topology.h"
#include "tests/plan_runner.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 16;  // as shard_count in BUILD; a test case per shard

class OwnerWorldTest : public testing::TestWithParam<int> {};

TEST_P(OwnerWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  testkit::ForEachOwnerCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        JudgeCase(from, to, {}, runners.For(from.mesh()), &tally);
      });
  fmt::print("shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

TEST_P(OwnerWorldTest, EveryCaseOfTwoMeshesIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  testkit::ForEachOwnerCrossCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        JudgeCase(from, to, {}, runners.For(from, to), &tally);
      });
  fmt::print("two meshes, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

// Under each promise, on links that make some ranks nearer than others, in several dtypes.
TEST_P(OwnerWorldTest, RandomCasesArePlannedProvenAndRight) {
  constexpr uint64_t kCases = 50000;  // of one mesh, and of two
  constexpr std::array kPromises = {Reproducibility::kReplicas, Reproducibility::kBatchInvariant,
                                    Reproducibility::kOrdered};
  constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kC64, DType::kI16};
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kProduct};
  Runners runners;
  WorldTally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const uint64_t n = seed / kNumShards;
    const DType dtype = kDTypes[n / 3 % kDTypes.size()];
    const ReduceOp op = kOps[n / 12 % kOps.size()];
    const PlannerOptions options = {
        .reproducibility = kPromises[n % kPromises.size()],
        .topology = *Topology::Parse(n % 2 == 0 ? "nvlink=4" : "nvlink=2,rail=8")};
    for (const testkit::RandomPair& pair : {testkit::RandomOwnerCase(seed, dtype, op),
                                            testkit::RandomOwnerCrossCase(seed, dtype, op)}) {
      JudgeCase(pair.from, pair.to, options, runners.For(pair.from, pair.to), &tally);
    }
  }
  fmt::print("random, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, OwnerWorldTest, testing::Range(0, kNumShards));

TEST(OwnerWorldCountTest, CountsArePinned) {
  const auto ignore = [](const Sharding&, const Sharding&) {};
  EXPECT_EQ(testkit::ForEachOwnerCase({}, ignore), 824284);
  EXPECT_EQ(testkit::ForEachOwnerCrossCase({}, ignore), 579762);
}

TEST(OwnerWorldRankZeroTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  testkit::ForEachScalarOwnerCase({}, [&](const Sharding& from, const Sharding& to) {
    JudgeCase(from, to, {}, runners.For(from.mesh()), &tally);
  });
  EXPECT_EQ(tally.cases, 1560);
  fmt::print("rank 0: {}\n", tally.ToString());
}

}  // namespace
}  // namespace meshift
