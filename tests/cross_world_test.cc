// Every redistribution of a small world of two meshes (testing/cross_world.h), planned, proven and
// run; a sample of it in all dtypes; and random ones of a larger world. All of it takes about a
// minute and a half of one core.
#include "testing/cross_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "testing/small_world.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 8;  // as shard_count in BUILD; a test case per shard

class CrossWorldTest : public testing::TestWithParam<int> {};

TEST_P(CrossWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  int64_t reduced = 0;
  testkit::ForEachCrossCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        JudgeCase(from, to, {}, runners.For(from, to), &tally);
        // Contributions this small cross as they are; test some of them also the other way.
        if (!from.HasPartial() || reduced++ % 4 != 0) return;
        JudgeCase(from, to, {.ordered_reductions = false}, runners.For(from, to), &tally);
      });
  fmt::print("shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

// On links that make some ranks nearer than others.
TEST_P(CrossWorldTest, TheSampleOfAllDTypesIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  int64_t next = 0;
  testkit::ForEachCrossSample(
      {}, [](DType, ReduceOp) { return true; },
      [&](const Sharding& from, const Sharding& to) {
        const int64_t i = next++;
        if (i % kNumShards != GetParam() || i / kNumShards % testkit::TestFraction() != 0) return;
        const Topology topology = *Topology::Parse(i % 2 == 0 ? "nvlink=2" : "nvlink=2,rail=4");
        JudgeCase(from, to, {.topology = topology}, runners.For(from, to), &tally);
      });
  fmt::print("sample, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

// Dims of size 1, up to 4 mesh dims and 24 ranks per mesh in any order, tensors up to rank 5; under
// each promise.
TEST_P(CrossWorldTest, RandomCasesArePlannedProvenAndRight) {
  constexpr uint64_t kCases = 20000;
  constexpr std::array kPromises = {Reproducibility::kReplicas, Reproducibility::kBatchInvariant,
                                    Reproducibility::kOrdered};
  constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kC64, DType::kI16};
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct};
  Runners runners;
  WorldTally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const uint64_t n = seed / kNumShards;
    const testkit::RandomPair pair =
        testkit::RandomCrossCase(seed, kDTypes[n / 3 % kDTypes.size()], kOps[n / 12 % kOps.size()]);
    JudgeCase(pair.from, pair.to,
              {.reproducibility = kPromises[n % kPromises.size()],
               .topology = *Topology::Parse(n % 2 == 0 ? "nvlink=4" : "nvlink=2,rail=8")},
              runners.For(pair.from, pair.to), &tally);
  }
  fmt::print("random, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, CrossWorldTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
