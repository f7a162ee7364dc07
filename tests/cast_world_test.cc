// Casts between floats of 32, 16 and 8 bits over a small world (testing/small_world.h): planned,
// proven and run, with the right bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "meshift/dtype.h"
#include "meshift/planner.h"
#include "placement/op_table.h"
#include "testing/cast.h"
#include "testing/small_world.h"
#include "tests/world_tally.h"

namespace meshift {
namespace {

constexpr int kNumShards = 8;  // as shard_count in BUILD; a test case per shard

// Whether a contribution that stays partial would be rounded: such a target is refused.
bool RoundsWhatStays(const Sharding& from, const Sharding& to, std::optional<DType> reduce) {
  bool stays = false;
  bool reduces = false;
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (!from.placement(d).IsPartial() || from.mesh().dim(d).size == 1) continue;
    (to.placement(d).IsPartial() ? stays : reduces) = true;
  }
  const DType through =
      !reduces ? from.dtype() : reduce.value_or(testkit::ReduceDTypeOf(from.dtype(), to.dtype()));
  return stays &&
         !(testkit::IsExact(from.dtype(), through) && testkit::IsExact(through, to.dtype()));
}

class CastWorldTest : public testing::TestWithParam<int> {};

TEST_P(CastWorldTest, EveryCaseIsPlannedProvenAndRight) {
  Runners runners;
  WorldTally tally;
  int64_t impossible = 0;
  testkit::ForEachCastCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce_dtype) {
        const PlannerOptions options{.reduce_dtype = reduce_dtype};
        if (RoundsWhatStays(from, to, reduce_dtype)) {
          ++impossible;
          EXPECT_EQ(MakePlan(from, to, options).status().code(), absl::StatusCode::kInvalidArgument)
              << from.ToString() << " -> " << to.ToString();
          return;
        }
        JudgeCase(from, to, options, runners.For(from.mesh()), &tally);
      });
  EXPECT_GT(tally.ops["cast"], 0);
  fmt::print("shard {} of {}: {}; {} refused, as they would round what stays partial\n", GetParam(),
             kNumShards, tally.ToString(), impossible);
}

INSTANTIATE_TEST_SUITE_P(Shards, CastWorldTest, testing::Range(0, kNumShards));

// Every valid pair of dtypes on random cases: also integers, bool, f64 and complex numbers, reduced
// in the default dtype or in another that has the op.
class CastPairWorldTest : public testing::TestWithParam<int> {};

TEST_P(CastPairWorldTest, EveryCaseIsPlannedProvenAndRight) {
  WorldTally tally;
  const auto from_dtype = static_cast<DType>(GetParam());
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto to_dtype = static_cast<DType>(t);
    if (from_dtype == to_dtype || !testkit::CheckCastOf(from_dtype, to_dtype).ok()) continue;
    for (uint64_t i = 0; i < 24; i += testkit::TestFraction()) {
      const uint64_t seed = (GetParam() * 32 + t) * 1000 + i;
      const auto op = static_cast<ReduceOp>(i % kNumReduceOps);
      if (!CheckReduce(op, from_dtype).ok() || !CheckReduce(op, to_dtype).ok()) continue;
      const testkit::RandomPair pair = testkit::RandomCase(seed, from_dtype, op);
      const Sharding to = *pair.to.WithDType(to_dtype);
      PlannerOptions options;
      const auto reduce = static_cast<DType>(seed % 7 * 5 % kNumDTypes);
      if (i % 3 == 0 && CheckReduce(op, reduce).ok() &&
          testkit::CheckCastOf(from_dtype, reduce).ok() &&
          testkit::CheckCastOf(reduce, to_dtype).ok()) {
        options.reduce_dtype = reduce;
      }
      if (RoundsWhatStays(pair.from, to, options.reduce_dtype)) continue;
      PlanRunner runner(pair.from.mesh());
      JudgeCase(pair.from, to, options, runner, &tally);
    }
  }
  if (testkit::TestFraction() == 1) {
    EXPECT_GT(tally.cases, 5);  // complex numbers have only one other dtype
  }
  fmt::print("from {}: {}\n", Name(from_dtype), tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, CastPairWorldTest,
                         testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(Name(static_cast<DType>(info.param)));
                         });

}  // namespace
}  // namespace meshift
