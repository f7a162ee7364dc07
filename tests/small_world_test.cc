// Every redistribution of a small world (testing/small_world.h), planned, proven and run.
#include "testing/small_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/plan_runner.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 16;  // as shard_count in BUILD; a test case per shard

class SmallWorldTest : public testing::TestWithParam<int> {};

TEST_P(SmallWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        JudgeCase(from, to, {}, runners.For(from.mesh()), &tally);
      });
  fmt::print("shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, SmallWorldTest, testing::Range(0, kNumShards));

TEST(SmallWorldRankZeroTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  testkit::ForEachScalarCase({}, [&](const Sharding& from, const Sharding& to) {
    JudgeCase(from, to, {}, runners.For(from.mesh()), &tally);
  });
  EXPECT_EQ(tally.cases, 93);
  fmt::print("rank 0: {}\n", tally.ToString());
}

class RandomWorldTest : public testing::TestWithParam<int> {};

// Dims of size 1, up to 4 mesh dims and 48 ranks in any order, tensors up to rank 5.
TEST_P(RandomWorldTest, EveryCaseIsPlannedProvenAndRight) {
  constexpr uint64_t kCases = 20000;
  WorldTally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    PlanRunner runner(pair.from.mesh());
    JudgeCase(pair.from, pair.to, {}, runner, &tally);
  }
  fmt::print("random, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomWorldTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
