// The triangle inequality: no detour is cheaper than a plan. For shardings A, B and C of one
// tensor, with B no larger than the larger of A and C, cost(A, C) <= cost(A, B) + cost(B, C):
// 10,000 random triples of small tensors, more on topologies with domains, and 10,000 of a wide
// distribution. A detour may be cheaper only by an action that plans never take (Unplanned of
// tests/triples.h); the number of those is printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/small_world.h"
#include "tests/triples.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard

std::string StepsOf(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps()) text += step.ToString() + "; ";
  return fmt::format("{}{} ns", text, plan.total().est_ns);
}

// `sharding` for a tensor that is `factor` times as long along every dim.
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

// Whether B is larger than both A and C.
bool IsLargest(const Triple& triple) {
  return triple.b.MaxLocalElements() >
         std::max(triple.a.MaxLocalElements(), triple.c.MaxLocalElements());
}

struct Tally {
  int64_t triples = 0;
  int64_t longer = 0;
  std::array<int64_t, kNumUnplanned> unplanned =
      {};  // cheaper detours by an action that plans never take

  // Returns whether the triple has plans.
  bool Judge(const Triple& triple) {
    const std::optional<TriplePlans> plans = PlansOf(triple);
    if (!plans) return false;
    ++triples;
    if (!plans->IsLonger()) return true;
    if (const auto why = UnplannedOf(triple.a, triple.b, triple.c)) {
      ++unplanned[static_cast<size_t>(*why)];
      return true;
    }
    if (++longer <= 3) {
      ADD_FAILURE() << triple.a.ToString() << " -> " << triple.c.PlacementsText() << " on "
                    << triple.options.topology.ToString() << ": " << StepsOf(plans->direct)
                    << "; by way of " << triple.b.PlacementsText() << ": " << StepsOf(plans->to)
                    << " and " << StepsOf(plans->from);
    }
    return true;
  }

  void Report(std::string_view name, int shard) const {
    EXPECT_EQ(longer, 0);
    int64_t excepted = 0;
    std::string text;
    for (int i = 0; i < kNumUnplanned; ++i) {
      excepted += unplanned[i];
      if (unplanned[i] == 0) continue;
      text += fmt::format(", and {} by one that {}", unplanned[i], Name(static_cast<Unplanned>(i)));
    }
    EXPECT_LE(excepted, 3 + triples / 1000);  // rare, but one of a few triples may be
    fmt::print("triangle, {}, shard {} of {}: {} triples, {} longer than the detour{}\n", name,
               shard, kNumShards, triples, longer, text);
  }
};

class TriangleTest : public testing::TestWithParam<int> {
 protected:
  // Makes every tensor dim `factor` times as long.
  static void Judge(std::string_view name, int64_t triples, const PlannerOptions& options,
                    int64_t factor = 1) {
    Tally tally;
    for (uint64_t seed = GetParam(); tally.triples * kNumShards * testkit::TestFraction() < triples;
         seed += kNumShards) {
      const testkit::RandomPair pair = testkit::RandomCase(seed);
      const Sharding stop = testkit::RandomStop(pair, seed);
      const Triple triple{Longer(pair.from, factor), Longer(stop, factor), Longer(pair.to, factor),
                          options};
      if (IsLargest(triple)) continue;
      tally.Judge(triple);
    }
    tally.Report(name, GetParam());
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

TEST_P(TriangleTest, NoDetourIsCheaperOnWideTriples) {
  constexpr int64_t kTriples = 10000;
  Tally tally;
  for (uint64_t seed = GetParam(); tally.triples * kNumShards * testkit::TestFraction() < kTriples;
       seed += kNumShards) {
    tally.Judge(WideTriple(seed));
  }
  tally.Report("wide", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shards, TriangleTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
