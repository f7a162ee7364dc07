// Oracle and CheckGiven for sources and targets on different meshes, against the naive engine, in
// every dtype and op.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "placement/op_table.h"
#include "testing/cross_world.h"
#include "testing/given.h"
#include "testing/oracle_buffers.h"
#include "testing/random.h"
#include "testing/reference_engine.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

constexpr Values kAllValues[] = {Values::kExact, Values::kRounding, Values::kSpecial};

std::string TextOf(const Sharding& from, const Sharding& to) {
  return fmt::format("{} -> {}", from.ToString(), to.ToString());
}

Sharding Parsed(const std::string& text) { return Sharding::Parse(text).value(); }

std::vector<absl::Span<const std::byte>> Views(const Buffers& buffers) {
  return {buffers.begin(), buffers.end()};
}

// Both checks accept the naive engine's result, and that of the oracle.
void ExpectRight(const Sharding& from, const Sharding& to, const Fill& fill) {
  const auto oracle = Oracle::Create(from, to);
  ASSERT_TRUE(oracle.ok()) << TextOf(from, to) << ": " << oracle.status();
  const CheckResult made = Check(*oracle, fill, TargetsOf(*oracle, fill));
  ASSERT_TRUE(made.ok()) << TextOf(from, to) << ": " << made.ToString();
  const Buffers in = SourcesOf(*oracle, fill);
  const Buffers out = RunNaively(from, to, in, {.seed = fill.seed});
  const CheckResult run = Check(*oracle, fill, out);
  ASSERT_TRUE(run.ok()) << TextOf(from, to) << ": " << run.ToString();
  const auto given = CheckGiven(from, to, Views(in), Views(out));
  ASSERT_TRUE(given.ok()) << given.status();
  ASSERT_TRUE(given->ok()) << TextOf(from, to) << ": " << given->ToString();
}

class CrossDTypeTest : public ::testing::TestWithParam<int> {};

TEST_P(CrossDTypeTest, RightTargetsPassAndFlippedBitsAreFound) {
  const auto dtype = static_cast<DType>(GetParam());
  Random random(GetParam());
  int64_t flipped = 0;
  for (int o = 0; o < kNumReduceOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (!CheckReduce(op, dtype).ok()) continue;
    for (uint64_t seed = o; seed < 24; seed += 8 * TestFraction()) {
      for (uint64_t i = 0; i < 8; ++i) {
        const RandomPair pair = RandomCrossCase(seed * 8 + i, dtype, op);
        if (NumElements(pair.from.shape()) > 300) continue;
        const Fill fill{.values = kAllValues[seed % 3], .seed = seed * 8 + i};
        ExpectRight(pair.from, pair.to, fill);
        if (HasFatalFailure()) return;
        if (pair.to.HasPartial() || IsComplex(dtype)) continue;
        const Oracle oracle = Oracle::Create(pair.from, pair.to).value();
        const Fill exact{.values = Values::kExact, .seed = seed};
        Buffers targets = TargetsOf(oracle, exact);
        std::vector<std::byte>& target = targets[random.Below(std::ssize(targets))];
        if (target.empty()) continue;
        target[random.Below(std::ssize(target))] ^= static_cast<std::byte>(1 << random.Below(8));
        ASSERT_EQ(Check(oracle, exact, targets).wrong, 1) << TextOf(pair.from, pair.to);
        ++flipped;
      }
    }
  }
  EXPECT_EQ(flipped > 0, !IsComplex(dtype));
}

// All except f4e2m1, which has no arithmetic.
INSTANTIATE_TEST_SUITE_P(AllDTypes, CrossDTypeTest,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16,
                                           17),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return std::string(Name(static_cast<DType>(info.param)));
                         });

TEST(DefinitionCrossTest, RightTargetsPassInTheSmallWorld) {
  uint64_t seed = 0;
  const CrossWorldOptions options{.fraction = 97 * TestFraction()};
  ForEachCrossCase(options, [&](const Sharding& from, const Sharding& to) {
    if (HasFatalFailure()) return;
    ExpectRight(from, to, {.values = kAllValues[seed % 2], .seed = seed});
    ++seed;
  });
  EXPECT_GT(seed, 0);
}

TEST(DefinitionCrossTest, LostContributionsAreFound) {
  const Sharding from = Parsed("f32[16,4] on a=3,b=2 as P,P");
  for (const char* text : {"f32[16,4] on c=4@4-7 as S(0)", "f32[16,4] on c=2,d=2@9,1,7,3 as R,S(1)",
                           "f32[16,4] on c=1@8 as R", "f32[16,4] on c=2,d=3 as P,S(0)",
                           "f32[16,4] on c=2,d=3 as P(max),R"}) {
    const Sharding to = Parsed(text);
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.seed = 4};
    const Buffers in = SourcesOf(oracle, fill);
    for (int64_t lost = 0; lost < 6; ++lost) {
      const Buffers out = RunNaively(from, to, in, {.seed = 1, .lost = lost});
      EXPECT_GT(Check(oracle, fill, out).wrong, 10) << text;
      EXPECT_GT(CheckGiven(from, to, Views(in), Views(out))->wrong, 10) << text;
    }
  }
}

// Messages name ranks of the target's mesh.
TEST(DefinitionCrossTest, NamesTheRanksOfTheTarget) {
  const Sharding from = Parsed("i32[4] on a=2 as S(0)");
  const Sharding to = Parsed("i32[4] on b=3@7,9,5 as R");
  const Oracle oracle = Oracle::Create(from, to).value();
  EXPECT_EQ(oracle.SourceBytes(1), 8);
  EXPECT_EQ(oracle.TargetBytes(2), 16);
  const Fill fill{.seed = 1};
  Buffers targets = TargetsOf(oracle, fill);
  targets[2][12] ^= std::byte{1};
  const CheckResult result = Check(oracle, fill, targets);
  EXPECT_EQ(result.wrong, 1);
  EXPECT_THAT(result.first_wrong, ::testing::StartsWith("rank 5 holds "));
  EXPECT_EQ(result.replicas_differ, 1);
  EXPECT_THAT(result.first_difference, ::testing::StartsWith("ranks 7 and 5 differ at [3]: "));
}

}  // namespace
}  // namespace meshift::testkit
