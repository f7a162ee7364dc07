// The triangle inequality: no detour is cheaper than a plan. For shardings A, B and C of one
// tensor, B no larger than the larger of A and C, cost(A, C) <= cost(A, B) + cost(B, C): 10,000
// random triples, and more on topologies with domains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "mesh/topology.h"
#include "placement/sharding.h"
#include "planner/planner.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard

std::string StepsOf(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps()) text += step.ToString() + "; ";
  return fmt::format("{}{} ns", text, plan.total().est_ns);
}

// `sharding` of a tensor that is `factor` times as long along every dim.
Sharding Longer(const Sharding& sharding, int64_t factor) {
  TensorType tensor = sharding.tensor();
  std::vector<Cuts> cuts;
  for (size_t k = 0; k < tensor.shape.size(); ++k) {
    tensor.shape[k] *= factor;
    const absl::Span<const int> dims = sharding.CutsOf(static_cast<int>(k));
    cuts.emplace_back(dims.begin(), dims.end());
  }
  const absl::Span<const Placement> placements = sharding.placements();
  return Sharding::Create(sharding.mesh(), std::move(tensor),
                          {placements.begin(), placements.end()}, std::move(cuts))
      .value();
}

struct Tally {
  int64_t triples = 0;
  int64_t longer = 0;

  // Whether the triple has plans.
  bool Judge(const Sharding& a, const Sharding& b, const Sharding& c,
             const PlannerOptions& options) {
    for (int d = 0; d < a.mesh().NumDims(); ++d) {
      const bool stays = a.placement(d).IsPartial() && c.placement(d).IsPartial();
      if (stays && !b.placement(d).IsPartial()) return false;
    }
    if (b.MaxLocalElements() > std::max(a.MaxLocalElements(), c.MaxLocalElements())) return false;
    const absl::StatusOr<Plan> direct = MakePlan(a, c, options);
    const absl::StatusOr<Plan> to = MakePlan(a, b, options);
    const absl::StatusOr<Plan> from = MakePlan(b, c, options);
    // Where B is partial and A is not, or in another op, not every triple has plans.
    if (!direct.ok() || !to.ok() || !from.ok()) return false;
    ++triples;
    if (direct->total().est_ns <= to->total().est_ns + from->total().est_ns) return true;
    if (++longer <= 3) {
      ADD_FAILURE() << a.ToString() << " -> " << c.PlacementsText() << " on "
                    << options.topology.ToString() << ": " << StepsOf(*direct) << "; by way of "
                    << b.PlacementsText() << ": " << StepsOf(*to) << " and " << StepsOf(*from);
    }
    return true;
  }
};

class TriangleTest : public testing::TestWithParam<int> {
 protected:
  // Every tensor dim `factor` times as long.
  static void Judge(std::string_view name, int64_t triples, const PlannerOptions& options,
                    int64_t factor = 1) {
    Tally tally;
    for (uint64_t seed = GetParam(); tally.triples * kNumShards * testkit::TestFraction() < triples;
         seed += kNumShards) {
      const testkit::RandomPair pair = testkit::RandomCase(seed);
      const Sharding stop = testkit::RandomStop(pair, seed);
      tally.Judge(Longer(pair.from, factor), Longer(stop, factor), Longer(pair.to, factor),
                  options);
    }
    EXPECT_EQ(tally.longer, 0);
    fmt::print("triangle, {}, shard {} of {}: {} triples, {} longer than the detour\n", name,
               GetParam(), kNumShards, tally.triples, tally.longer);
  }
};

TEST_P(TriangleTest, NoDetourIsCheaper) { Judge("flat", 10000, {}); }

TEST_P(TriangleTest, NoDetourIsCheaperWhereBytesMatter) { Judge("long", 4000, {}, 100); }

TEST_P(TriangleTest, NoDetourIsCheaperAcrossDomains) {
  Judge("domains", 2000, {.topology = *Topology::Parse("nvlink=4")});
}

TEST_P(TriangleTest, NoDetourIsCheaperWithoutAPromise) {
  Judge("no promise", 2000, {.reproducibility = Reproducibility::kNone});
}

INSTANTIATE_TEST_SUITE_P(Shards, TriangleTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
