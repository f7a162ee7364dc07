// Where no rank receives anything, nothing is called: in every case of the small world
// (testing/small_world.h) and with ragged cuts, no step without bytes is a collective, so no group
// is made that is not used. And a problem in which each rank holds its target box already takes one
// local step. Boxes are those of the shardings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/conformance_cases.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard
constexpr int64_t kSmallWorldCases = 235'853;
constexpr int64_t kRaggedCases = 4000;

// Whether each rank's box of `after` is part of its box of `before`.
bool HoldsAll(const Sharding& before, const Sharding& after) {
  for (int64_t p = 0; p < before.mesh().NumRanks(); ++p) {
    const Coordinate at = before.mesh().CoordinateAt(p);
    if (!Contains(before.BoxAt(at), after.BoxAt(at))) return false;
  }
  return true;
}

bool HasPartial(const Sharding& sharding) {
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    if (sharding.mesh().dim(d).size > 1 && sharding.placement(d).IsPartial()) return true;
  }
  return false;
}

struct Tally {
  int64_t cases = 0;
  int64_t collectives = 0;
  int64_t local_cases = 0;  // each rank holds its target box

  void Judge(const Sharding& from, const Sharding& to, const PlannerOptions& options) {
    const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
    ASSERT_TRUE(plan.ok()) << from.ToString() << " -> " << to.ToString() << ": " << plan.status();
    ++cases;
    const std::string where = fmt::format("{} -> {}", from.ToString(), to.PlacementsText());
    const Sharding* before = &from;
    for (const Step& step : plan->steps()) {
      if (IsCollective(step.op)) {
        ++collectives;
        EXPECT_GT(step.bytes_sent, 0) << where << ": " << step.ToString();
        EXPECT_TRUE(IsReduction(step.op) || !HoldsAll(*before, step.after))
            << where << ": " << step.ToString();
      }
      before = &step.after;
    }
    if (HasPartial(from) || HasPartial(to) || from.dtype() != to.dtype()) return;
    if (!HoldsAll(from, to)) return;
    ++local_cases;
    EXPECT_EQ(plan->total().collectives, 0) << where;
    EXPECT_LE(plan->steps().size(), 1u) << where;
  }
  void Report(const char* name, int shard) const {
    if (testkit::TestFraction() <= 8) {
      EXPECT_GT(collectives, 0);
      EXPECT_GT(local_cases, 0);
    }
    fmt::print("{}, shard {} of {}: {} cases, {} collectives; {} cases need none\n", name, shard,
               kNumShards, cases, collectives, local_cases);
  }
};

class LocalMovesTest : public testing::TestWithParam<int> {};

TEST_P(LocalMovesTest, NoStepWithoutBytesIsACollective) {
  const int64_t fraction = testkit::TestFraction();
  Tally tally;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = fraction},
      [&](const Sharding& from, const Sharding& to) { tally.Judge(from, to, {}); });
  const int64_t in_shard = (kSmallWorldCases - GetParam() + kNumShards - 1) / kNumShards;
  EXPECT_EQ(tally.cases, (in_shard + fraction - 1) / fraction);
  tally.Report("small world", GetParam());
}

TEST_P(LocalMovesTest, NorWithRaggedCuts) {
  const int64_t stride = kNumShards * testkit::TestFraction();
  Tally tally;
  int64_t i = 0;
  for (const testkit::ConformanceCase& c : testkit::RaggedCases(8, kRaggedCases)) {
    if (i++ % stride != GetParam()) continue;
    tally.Judge(c.from, c.to, {.reduce_dtype = c.reduce_dtype});
  }
  EXPECT_EQ(tally.cases, (kRaggedCases - GetParam() + stride - 1) / stride);
  tally.Report("ragged", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shards, LocalMovesTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
