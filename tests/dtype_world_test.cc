// A tenth of the small world in each of the dtypes (testing/small_world.h): planned, proven and
// run, with the right bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "meshift/dtype.h"
#include "testing/small_world.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 16;  // as shard_count in BUILD; a test case per shard

class DTypeWorldTest : public testing::TestWithParam<int> {};

TEST_P(DTypeWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  std::set<DType> dtypes;
  testkit::ForEachDTypeCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        dtypes.insert(from.dtype());
        JudgeCase(from, to, {}, runners.For(from.mesh()), &tally);
      });
  fmt::print("shard {} of {}: {} dtypes, {}\n", GetParam(), kNumShards, dtypes.size(),
             tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, DTypeWorldTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
