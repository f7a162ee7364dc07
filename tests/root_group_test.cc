// If the root is the only group, no problem that has a plan through R,..,R is refused: 3,000 random
// problems on one mesh, small and large, with any promise. And no chain of two plans is faster by
// more than 2 % than the plan between its ends, if all of the chain's values keep the value rule of
// that plan: 2,000 random triples.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/verifier.h"
#include "planner/graph/state.h"
#include "planner/search/value_rule.h"
#include "testing/small_world.h"
#include "tests/triples.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard

PlannerOptions OnlyRoot(PlannerOptions options) {
  options.groups.allow_new_groups = false;
  options.groups.existing_groups = std::vector<MeshGroups>();
  return options;
}

bool IsPlanned(const Sharding& from, const Sharding& to, const PlannerOptions& options) {
  return MakePlan(from, to, options).ok();
}

class RootGroupTest : public testing::TestWithParam<int> {};

TEST_P(RootGroupTest, NothingIsRefusedThatGoesThroughReplicas) {
  constexpr uint64_t kCases = 3000;
  int64_t planned = 0;
  int64_t refused = 0;
  int64_t exceeded = 0;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const Triple triple = WideTriple(seed);
    const PlannerOptions options = OnlyRoot(triple.options);
    const absl::StatusOr<Plan> plan = MakePlan(triple.a, triple.c, options);
    if (plan.ok()) {
      ++planned;
      const Verdict verdict = Verify(*plan);
      EXPECT_TRUE(verdict.ok()) << seed << ": " << (verdict.ok() ? "" : verdict.fault->message);
      exceeded += plan->inputs().exceeded_max_value > 0 ? 1 : 0;
      continue;
    }
    if (absl::IsInvalidArgument(plan.status())) continue;  // invalid with any groups
    std::string all_replicated;
    for (int d = 0; d < triple.a.mesh().NumDims(); ++d) all_replicated += d == 0 ? "R" : ",R";
    const Sharding between = triple.a.WithPlacements(all_replicated).value();
    const bool goes_through =
        IsPlanned(triple.a, between, options) && IsPlanned(between, triple.c, options);
    EXPECT_FALSE(goes_through) << seed << ": " << triple.a.ToString() << " -> "
                               << triple.c.PlacementsText() << ": " << plan.status();
    // Other refusals do not mention groups.
    if (IsPlanned(triple.a, triple.c, triple.options)) {
      EXPECT_NE(Message(plan.status()).find("existing groups"), std::string::npos) << plan.status();
      ++refused;
    }
  }
  EXPECT_GT(planned, 0);
  fmt::print("only the root: {} planned, {} of them with a larger value, {} refused for groups\n",
             planned, exceeded, refused);
}

// The largest value between the steps of a plan.
int64_t LargestBetween(const Plan& plan) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < plan.steps().size(); ++i) {
    most = std::max(most, plan.steps()[i].bytes_out);
  }
  return most;
}

TEST_P(RootGroupTest, NoChainOfTwoPlansIsQuicker) {
  constexpr uint64_t kTriples = 2000;
  int64_t compared = 0;
  int64_t unplanned = 0;
  for (uint64_t seed = GetParam(); seed < kTriples; seed += kNumShards * testkit::TestFraction()) {
    const Triple triple = WideTriple(1'000'000 + seed);
    if (NumElements(triple.a.shape()) == 0) continue;  // needs no steps but casts
    const std::optional<TriplePlans> plans = PlansOf(triple);
    if (!plans) continue;
    const Problem problem = Problem::Create(triple.a, triple.c).value();
    const int64_t larger = problem.MaxValueBytes();
    const int64_t limit = std::max(larger + larger / 4, kSmallValue);
    const int64_t between = plans->to.steps().empty() ? 0 : plans->to.steps().back().bytes_out;
    if (std::max({between, LargestBetween(plans->to), LargestBetween(plans->from)}) > limit) {
      continue;
    }
    ++compared;
    const int64_t chain_ns = plans->to.total().est_ns + plans->from.total().est_ns;
    if (plans->direct.total().est_ns <= chain_ns + chain_ns / 50) continue;
    if (UnplannedOf(triple.a, triple.b, triple.c)) {
      ++unplanned;
      continue;
    }
    ADD_FAILURE() << seed << ": " << triple.a.ToString() << " -> " << triple.c.PlacementsText()
                  << " takes " << plans->direct.total().est_ns << " ns, by way of "
                  << triple.b.PlacementsText() << " " << chain_ns << " ns";
  }
  EXPECT_GT(compared, 0);
  fmt::print("chains: {} compared, {} quicker by what no plan does\n", compared, unplanned);
}

INSTANTIATE_TEST_SUITE_P(Shards, RootGroupTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
