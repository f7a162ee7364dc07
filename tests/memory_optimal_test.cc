// With a memory limit no sequence of transitions is cheaper than the plan, and none needs less than
// the least memory that a refusal names: compares with all paths over all states
// (tests/brute_force.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/limits/memory_search.h"
#include "planner/plan/memory_limit.h"
#include "testing/conformance_cases.h"
#include "testing/ragged_cases.h"
#include "testing/random.h"
#include "testing/small_world.h"
#include "tests/brute_force.h"

namespace meshift {
namespace {

constexpr int kNumShards = 8;  // as shard_count in BUILD; a test case per shard

class MemoryOptimalTest : public testing::TestWithParam<int> {
 protected:
  void Judge(const Sharding& from, const Sharding& to, PlannerOptions options) {
    // All buffer modes in turn.
    options.buffers = static_cast<Buffers>(cases_ % 3);
    const std::string where =
        fmt::format("{} -> {} on {}, buffers {}", from.ToString(), to.PlacementsText(),
                    options.topology.ToString(), Name(options.buffers));
    const absl::StatusOr<Plan> free = MakePlan(from, to, options);
    // A cast that would round contributions that stay partial.
    if (absl::IsInvalidArgument(free.status()) && from.dtype() != to.dtype()) return;
    ASSERT_TRUE(free.ok()) << free.status();
    ++cases_;
    const absl::StatusOr<int64_t> least = LeastMemory(from, to, options);
    ASSERT_TRUE(least.ok()) << least.status();
    ASSERT_EQ(*least, brute_force_.FindLeastMemory(from, to, options).value()) << where;
    const int64_t most = free->total().peak_bytes;
    ASSERT_LE(*least, most) << where;
    if (*least > 0) {
      options.max_memory = *least - 1;
      EXPECT_TRUE(absl::IsResourceExhausted(MakePlan(from, to, options).status())) << where;
      EXPECT_TRUE(absl::IsResourceExhausted(brute_force_.Find(from, to, options).status()))
          << where;
    }
    if (*least == most) return;
    // The limit is below the memory of the cheapest plan.
    ++bound_;
    for (const int64_t limit : {*least, *least + random_.Below(most - *least)}) {
      options.max_memory = limit;
      const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
      const absl::StatusOr<BestPath> best = brute_force_.Find(from, to, options);
      ASSERT_TRUE(plan.ok()) << where << ": " << plan.status();
      ASSERT_TRUE(best.ok()) << where << ": " << best.status();
      EXPECT_LE(plan->total().peak_bytes, limit) << where;
      const PlanCost cost = CostOf(*plan);
      if (cost == best->cost) continue;
      ++(cost < best->cost ? below_ : not_optimal_);
      std::string steps;
      for (const Step& step : plan->steps()) steps += step.ToString() + "; ";
      if (not_optimal_ + below_ > 3) continue;
      ADD_FAILURE() << where << " within " << limit << ": " << steps << cost.ToString() << "; but "
                    << fmt::format("{}", fmt::join(best->steps, "; ")) << ": "
                    << best->cost.ToString();
    }
  }

  void Report(std::string_view name) const {
    EXPECT_EQ(not_optimal_, 0);
    EXPECT_EQ(below_, 0);
    fmt::print(
        "memory, {}, shard {} of {}: {} cases, in {} the cheapest plan takes more than the least: "
        "{} not optimal, {} below the least\n",
        name, GetParam(), kNumShards, cases_, bound_, not_optimal_, below_);
  }

  BruteForce brute_force_;
  testkit::Random random_{static_cast<uint64_t>(GetParam())};
  int64_t cases_ = 0;
  int64_t bound_ = 0;
  int64_t not_optimal_ = 0;
  int64_t below_ = 0;
};

TEST_P(MemoryOptimalTest, NoSequenceIsCheaperOrNeedsLess) {
  int64_t number = 0;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 32 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        Judge(from, to,
              ++number % 2 == 0 ? PlannerOptions{.topology = testkit::SlowLinks()}
                                : PlannerOptions{});
      });
  Report("small world");
}

TEST_P(MemoryOptimalTest, NoSequenceIsCheaperOrNeedsLessOnLargerMeshes) {
  constexpr uint64_t kCases = 800;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    Judge(pair.from, pair.to, {});
  }
  Report("random");
}

// Steps with variants: blocks of ragged cuts padded or exact, in any dtype of the value.
TEST_P(MemoryOptimalTest, NoSequenceOfRaggedShardsIsCheaperOrNeedsLess) {
  const std::vector<testkit::ConformanceCase> cases = testkit::RaggedCases(8, 400);
  for (size_t i = GetParam(); i < cases.size(); i += kNumShards * testkit::TestFraction()) {
    PlannerOptions options{.reduce_dtype = cases[i].reduce_dtype};
    if (i % 3 == 0) options.topology = testkit::SlowLinks();
    Judge(cases[i].from, cases[i].to, options);
  }
  Report("ragged");
}

TEST_P(MemoryOptimalTest, NoSequenceWithCastsIsCheaperOrNeedsLess) {
  testkit::ForEachCastCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 64 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce_dtype) {
        Judge(from, to, {.reduce_dtype = reduce_dtype});
      });
  Report("casts");
}

// Ordered reductions in blocks of two: in stages or not.
TEST_P(MemoryOptimalTest, NoSequenceInOrderIsCheaperOrNeedsLess) {
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 128 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        Judge(from, to,
              {.reproducibility = Reproducibility::kOrdered,
               .topology = testkit::SlowLinks(),
               .reduce_block = 2});
      });
  Report("ordered");
}

// A search that was cut short may find more than the least memory, and says so.
TEST_P(MemoryOptimalTest, WhatIsCutShortSaysSo) {
  constexpr uint64_t kCases = 400;
  int64_t cut_short = 0;
  int64_t more = 0;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    SCOPED_TRACE(fmt::format("{} -> {}", pair.from.ToString(), pair.to.PlacementsText()));
    const absl::StatusOr<int64_t> least = brute_force_.FindLeastMemory(pair.from, pair.to, {});
    ASSERT_TRUE(least.ok()) << least.status();
    const Problem problem = Problem::Create(pair.from, pair.to).value();
    const ReductionChoice choice = ChooseReductions(problem, {}).value();
    const CostModel model(problem, Topology::Flat(), CostOptionsOf({}, choice));
    const int64_t tensors = TensorMemory(pair.from, pair.to, Buffers::kTwo).together;
    for (const int64_t max_edges : {int64_t{1}, int64_t{100}, kMaxMemoryEdges}) {
      const std::optional<LeastPath> found =
          FindLeastWorkspace(problem, model, choice.rules, max_edges);
      ASSERT_TRUE(found);
      ASSERT_GE(tensors + found->workspace, *least);
      if (found->is_least) {
        ASSERT_EQ(tensors + found->workspace, *least);
      }
      if (max_edges == kMaxMemoryEdges) {
        ASSERT_TRUE(found->is_least);
      }
      cut_short += found->is_least ? 0 : 1;
      more += tensors + found->workspace > *least ? 1 : 0;
    }
  }
  if (testkit::TestFraction() == 1) {
    EXPECT_GT(cut_short, 0);
  }
  fmt::print(
      "memory, cut short, shard {} of {}: {} searches, of which {} found more than the least\n",
      GetParam(), kNumShards, cut_short, more);
}

INSTANTIATE_TEST_SUITE_P(Shards, MemoryOptimalTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
