// No sequence of transitions is cheaper than the plan, in every case of the small world
// (testing/small_world.h): compares with shortest paths over all states (tests/brute_force.h), with
// the planner's own edges and prices. triangle_test looks for missing edges. Also checks that the
// plan's lower bound is one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "meshift/planner.h"
#include "meshift/topology.h"
#include "placement/unit_dims.h"
#include "testing/owner_world.h"
#include "testing/small_world.h"
#include "tests/brute_force.h"

namespace meshift {
namespace {

constexpr int kNumShards = 16;  // as shard_count in BUILD; a test case per shard

struct Tally {
  int64_t cases = 0;
  int64_t not_optimal = 0;
  int64_t below = 0;   // plans cheaper than the shortest path: the planner has other edges
  int64_t states = 0;  // states and steps on which the search's heuristic was checked
  int64_t steps = 0;
  int64_t not_admissible = 0;
  int64_t not_consistent = 0;

  void Judge(BruteForce& brute_force, const Sharding& from, const Sharding& to,
             const PlannerOptions& options) {
    const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
    if (plan.ok() && NumElements(from.shape()) == 0) {
      ++cases;
      EXPECT_EQ(plan->total().collectives, 0) << from.ToString() << " -> " << to.ToString();
      return;
    }
    const absl::StatusOr<BestPath> best = brute_force.Find(from, to, options);
    ASSERT_EQ(plan.status(), best.status());
    // A cast that would round contributions that stay partial.
    if (absl::IsInvalidArgument(plan.status()) && from.dtype() != to.dtype()) return;
    ++cases;
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlanCost cost = CostOf(*plan);
    const LowerBound& bound = plan->lower_bound();
    EXPECT_LE(bound.est_ns, best->cost.est_ns) << from.ToString() << " -> " << to.PlacementsText();
    EXPECT_LE(bound.bytes_sent, best->cost.bytes_sent)
        << from.ToString() << " -> " << to.PlacementsText();
    JudgeHeuristic(brute_force, from, to, options);
    if (cost == best->cost && StepTexts(*plan) == best->steps) return;
    int64_t& count = cost < best->cost ? below : not_optimal;
    if (++count > 3) return;
    std::string steps;
    for (const Step& step : plan->steps()) steps += step.ToString() + "; ";
    ADD_FAILURE() << from.ToString() << " -> " << to.PlacementsText() << " on "
                  << options.topology.ToString() << ", " << Name(options.reproducibility) << ": "
                  << steps << cost.ToString() << "; but "
                  << fmt::format("{}", fmt::join(best->steps, "; ")) << ": "
                  << best->cost.ToString();
  }
  void JudgeHeuristic(BruteForce& brute_force, const Sharding& from, const Sharding& to,
                      const PlannerOptions& options) {
    const auto check = brute_force.CheckHeuristic(from, to, options);
    ASSERT_TRUE(check.ok()) << check.status();
    states += check->states;
    steps += check->steps;
    not_admissible += check->not_admissible;
    not_consistent += check->not_consistent;
    if (check->text.empty() || not_admissible + not_consistent > 8) return;
    ADD_FAILURE() << from.ToString() << " -> " << to.PlacementsText() << " on "
                  << options.topology.ToString() << ": " << check->text;
  }
  void Report(std::string_view name, int shard) const {
    EXPECT_GT(cases, 0);
    EXPECT_GT(steps, states);
    EXPECT_EQ(not_optimal, 0);
    EXPECT_EQ(below, 0);
    EXPECT_EQ(not_admissible, 0);
    EXPECT_EQ(not_consistent, 0);
    fmt::print(
        "optimal, {}, shard {} of {}: {} cases: {} not optimal, {} below the least; heuristic: {} "
        "states, {} not admissible, {} steps, {} not consistent\n",
        name, shard, kNumShards, cases, not_optimal, below, states, not_admissible, steps,
        not_consistent);
  }
};

class OptimalTest : public testing::TestWithParam<int> {
 protected:
  // Checks one in `fraction` cases of the small world.
  static void Judge(std::string_view name, int64_t fraction, const PlannerOptions& options) {
    BruteForce brute_force;
    Tally tally;
    testkit::ForEachSmallWorldCase({.shard = GetParam(),
                                    .num_shards = kNumShards,
                                    .fraction = fraction * testkit::TestFraction()},
                                   [&](const Sharding& from, const Sharding& to) {
                                     tally.Judge(brute_force, from, to, options);
                                   });
    tally.Report(name, GetParam());
  }
};

TEST_P(OptimalTest, NoSequenceOfTransitionsIsCheaper) { Judge("all", 1, {}); }

// Parts of the small world with other costs.
TEST_P(OptimalTest, NoSequenceIsCheaperWhereBytesMatterMost) {
  const TopologyConstants constants{.collective_latency_ns = 1000,
                                    .message_latency_ns = 50,
                                    .copy_latency_ns = 200,
                                    .copy_bandwidth_bytes_per_us = 40};
  Judge("bytes", 8, {.topology = *Topology::Create({{"wire", 0, 10, 100}}, constants)});
}

TEST_P(OptimalTest, NoSequenceIsCheaperAcrossDomains) {
  const TopologyConstants constants{.collective_latency_ns = 3000,
                                    .message_latency_ns = 500,
                                    .copy_latency_ns = 500,
                                    .copy_bandwidth_bytes_per_us = 400};
  Judge("domains", 16,
        {.topology = *Topology::Create({{"near", 2, 100, 100}, {"far", 0, 10, 2000}}, constants)});
}

// Bytes and starts cost about the same, so that each algorithm and protocol is the fastest
// somewhere.
Topology TwoProtocols() {
  const TopologyLevel near = {.name = "near",
                              .domain_size = 2,
                              .bandwidth_bytes_per_us = 100,
                              .latency_ns = 100,
                              .in_switch_bandwidth_bytes_per_us = 90,
                              .in_switch_members = 2};
  const TopologyLevel far = {.name = "far",
                             .domain_size = 0,
                             .bandwidth_bytes_per_us = 10,
                             .latency_ns = 500,
                             .entry_ns = 1500,
                             .direct_bandwidth_bytes_per_us = 6,
                             .domain_bandwidth_bytes_per_us = 15,
                             .in_switch_bandwidth_bytes_per_us = 12};
  const TopologyConstants constants{.collective_latency_ns = 1000,
                                    .message_latency_ns = 100,
                                    .copy_latency_ns = 200,
                                    .copy_bandwidth_bytes_per_us = 400};
  return *Topology::Create(
      {near, far}, constants,
      {{.name = "quick", .start_ns = 0, .bandwidth_percent = 30, .domain_percent = 20},
       {.name = "wide", .start_ns = 1500, .latency_percent = 200}});
}

TEST_P(OptimalTest, NoSequenceIsCheaperByProtocols) {
  Judge("protocols", 16, {.topology = TwoProtocols()});
}

TEST_P(OptimalTest, NoSequenceIsCheaperOnLargerMeshesByProtocols) {
  constexpr uint64_t kCases = 3200;
  Tally tally;
  const Topology h100 = *Topology::Parse("nvlink=8");
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    BruteForce brute_force;
    tally.Judge(brute_force, pair.from, pair.to, {.topology = TwoProtocols()});
    tally.Judge(brute_force, pair.from, pair.to, {.topology = h100});
  }
  tally.Report("random, protocols", GetParam());
}

// From and to one coordinate of a mesh dim.
TEST_P(OptimalTest, NoSequenceWithOwnersIsCheaper) {
  BruteForce brute_force;
  Tally tally;
  testkit::ForEachOwnerCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 32 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        if (!HasManyOwners(from) && !HasManyOwners(to)) tally.Judge(brute_force, from, to, {});
      });
  tally.Report("owners", GetParam());
}

TEST_P(OptimalTest, NoSequenceIsCheaperWithoutAPromise) {
  Judge("no promise", 16, {.reproducibility = Reproducibility::kNone});
}

TEST_P(OptimalTest, NoSequenceWithCastsIsCheaper) {
  BruteForce brute_force;
  Tally tally;
  testkit::ForEachCastCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = 16 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce_dtype) {
        tally.Judge(brute_force, from, to, {.reduce_dtype = reduce_dtype});
      });
  tally.Report("casts", GetParam());
}

// Meshes of up to four dims and 48 ranks, in any order, and tensors up to rank 5.
TEST_P(OptimalTest, NoSequenceIsCheaperOnLargerMeshes) {
  constexpr uint64_t kCases = 9600;
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    BruteForce brute_force;
    tally.Judge(brute_force, pair.from, pair.to, {});
  }
  tally.Report("random", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shards, OptimalTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
