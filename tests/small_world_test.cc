// Every redistribution of a small world, planned, proven and run (testing/small_world.h says
// which).
#include "testing/small_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "planner/planner.h"
#include "planner/verifier.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

constexpr int kNumShards = 16;  // as shard_count in BUILD; a test case per shard

struct Tally {
  int64_t cases = 0;
  int64_t refused = 0;
  int64_t unproven = 0;
  int64_t wrong = 0;
  int64_t differing = 0;
  int64_t miscounted = 0;
  std::map<std::string, int64_t> ops;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::string ToString() const {
    std::string text = fmt::format(
        "{} cases in {} ms: {} refused, {} not proven, {} wrong, {} with differing replicas, {} "
        "with other bytes than planned; ops",
        cases,
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                              start)
            .count(),
        refused, unproven, wrong, differing, miscounted);
    for (const auto& [op, count] : ops) text += fmt::format(" {} {}", op, count);
    return text;
  }
};

// Runners by mesh, made when needed.
class Runners {
 public:
  PlanRunner& For(const DeviceMesh& mesh) {
    std::unique_ptr<PlanRunner>& runner = runners_[mesh.ToString()];
    if (runner == nullptr) runner = std::make_unique<PlanRunner>(mesh);
    return *runner;
  }

 private:
  std::map<std::string, std::unique_ptr<PlanRunner>> runners_;
};

// One case; failures are reported, the first few of a kind with their plan.
void Judge(const Sharding& from, const Sharding& to, PlanRunner& runner, Tally* tally) {
  ++tally->cases;
  const auto fail = [&](int64_t* count, const std::string& why) {
    if (++*count <= 3) {
      ADD_FAILURE() << from.ToString() << " -> " << to.PlacementsText() << ": " << why;
    }
  };
  const absl::StatusOr<Plan> plan = MakePlan(from, to);
  if (!plan.ok()) return fail(&tally->refused, plan.status().ToString());
  for (const Step& step : plan->steps()) ++tally->ops[std::string(Name(step.op))];
  if (plan->kept() < Reproducibility::kReplicas) fail(&tally->unproven, "promise not kept");
  const Verdict verdict = Verify(*plan);
  if (!verdict.ok()) {
    fail(&tally->unproven, verdict.fault->rule + ": " + verdict.fault->message);
  }
  const absl::StatusOr<RunOutcome> outcome = runner.Run(*plan);
  if (!outcome.ok()) return fail(&tally->wrong, outcome.status().ToString());
  if (outcome->wrong > 0) fail(&tally->wrong, outcome->message);
  if (outcome->replicas_differ > 0) fail(&tally->differing, outcome->message);
  if (outcome->bytes_differ > 0) fail(&tally->miscounted, outcome->message);
}

class SmallWorldTest : public testing::TestWithParam<int> {};

TEST_P(SmallWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  Tally tally;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        Judge(from, to, runners.For(from.mesh()), &tally);
      });
  fmt::print("shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, SmallWorldTest, testing::Range(0, kNumShards));

TEST(SmallWorldRankZeroTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  Tally tally;
  testkit::ForEachScalarCase({}, [&](const Sharding& from, const Sharding& to) {
    Judge(from, to, runners.For(from.mesh()), &tally);
  });
  EXPECT_EQ(tally.cases, 93);
  fmt::print("rank 0: {}\n", tally.ToString());
}

class RandomWorldTest : public testing::TestWithParam<int> {};

// Size-1 dims, up to 4 mesh dims and 48 ranks in any order, tensors up to rank 5.
TEST_P(RandomWorldTest, EveryCaseIsPlannedProvenAndRight) {
  constexpr uint64_t kCases = 20000;
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    PlanRunner runner(pair.from.mesh());
    Judge(pair.from, pair.to, runner, &tally);
  }
  fmt::print("random, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomWorldTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
