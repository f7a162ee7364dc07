// Ragged shards (testing/ragged_cases.h), planned, proven and run on the in-process engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "meshift/planner.h"
#include "meshift/verifier.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"
#include "tests/plan_runner.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard
constexpr int64_t kCases = 1000;
constexpr int64_t kRanks = 12;

class RaggedTest : public testing::TestWithParam<int> {};

TEST_P(RaggedTest, EveryCaseIsPlannedProvenAndRight) {
  const std::vector<testkit::ConformanceCase> cases = testkit::RaggedCases(kRanks, kCases);
  for (const RaggedSizes sizes : {RaggedSizes::kCost, RaggedSizes::kMax, RaggedSizes::kSum}) {
    WorldTally tally;
    for (size_t i = GetParam(); i < cases.size(); i += kNumShards * testkit::TestFraction()) {
      PlanRunner runner(cases[i].from.mesh());
      JudgeCase(cases[i].from, cases[i].to, {.ragged_sizes = sizes}, runner, &tally);
    }
    fmt::print("shard {} of {}, {}: {}\n", GetParam(), kNumShards, Name(sizes), tally.ToString());
  }
}

TEST_P(RaggedTest, SoUnderThePromisesAboveReplicas) {
  const std::vector<testkit::ConformanceCase> cases = testkit::RaggedCases(kRanks, kCases);
  for (const Reproducibility promise :
       {Reproducibility::kBatchInvariant, Reproducibility::kOrdered}) {
    WorldTally tally;
    for (size_t i = GetParam(); i < cases.size(); i += kNumShards * testkit::TestFraction()) {
      PlanRunner runner(cases[i].from.mesh());
      JudgeCase(cases[i].from, cases[i].to, {.reproducibility = promise}, runner, &tally);
    }
    fmt::print("shard {} of {}, {}: {}\n", GetParam(), kNumShards, Name(promise), tally.ToString());
  }
}

// Such plans need not keep the promise about bits.
TEST_P(RaggedTest, PlansOfOneCollectivePerMeshDimAreRight) {
  const std::vector<testkit::ConformanceCase> cases = testkit::RaggedCases(kRanks, kCases);
  int64_t refused = 0;  // averages of integers
  for (size_t i = GetParam(); i < cases.size(); i += kNumShards * testkit::TestFraction()) {
    SCOPED_TRACE(cases[i].ToString());
    const auto plan = MakePlan(cases[i].from, cases[i].to, {.planner = PlannerKind::kPerDim});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented) << plan.status();
      ++refused;
      continue;
    }
    const Verdict verdict = Verify(*plan);
    EXPECT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message;
    PlanRunner runner(cases[i].from.mesh());
    const auto outcome = runner.Run(*plan);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->wrong, 0) << outcome->message;
    EXPECT_EQ(outcome->bytes_differ, 0) << outcome->message;
  }
  EXPECT_LT(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Shards, RaggedTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
