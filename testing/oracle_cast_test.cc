// The oracle if dtypes change: checked by hand, and against the naive engine, which has other
// casts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "testing/oracle_buffers.h"
#include "testing/random.h"
#include "testing/reference_engine.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

constexpr Values kAllValues[] = {Values::kExact, Values::kRounding, Values::kSpecial};

Sharding Of(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

// A pair from `tensor` with `from` to the same shape with `dtype` and `to`, on "a=2,b=3".
struct Pair {
  Sharding from;
  Sharding to;
};
Pair PairOf(std::string_view tensor, std::string_view from, DType dtype, std::string_view to) {
  const Sharding source = Of(tensor, "a=2,b=3", from);
  return {source, source.WithDType(dtype).value().WithPlacements(to).value()};
}

std::string TextOf(const Sharding& from, const Sharding& to, std::optional<DType> reduce) {
  return fmt::format("{} -> {} of {}, reduced in {}", from.ToString(), to.PlacementsText(),
                     Name(to.dtype()), reduce ? Name(*reduce) : "the default");
}

// The number of wrong elements if the naive engine uses another reduce dtype.
int64_t WrongWith(const Pair& pair, const Fill& fill, std::optional<DType> reduce,
                  const NaiveOptions& options) {
  const Oracle oracle = Oracle::Create(pair.from, pair.to, reduce).value();
  const Buffers in = SourcesOf(oracle, fill);
  return Check(oracle, fill, RunNaively(pair.from, pair.to, in, options)).wrong;
}

TEST(OracleCastTest, SumOfTwoInF32) {
  const Sharding from = Of("f32[64]", "a=2", "P");
  const Sharding to = from.WithDType(DType::kI8).value().WithPlacements("R").value();
  const Oracle oracle = Oracle::Create(from, to).value();
  EXPECT_EQ(oracle.SourceBytes(0), 256);
  EXPECT_EQ(oracle.TargetBytes(0), 64);
  const Fill fill{.seed = 1};
  const Buffers in = SourcesOf(oracle, fill);
  Buffers out(2, std::vector<std::byte>(64));
  for (size_t i = 0; i < 64; ++i) {
    float x, y;
    std::memcpy(&x, in[0].data() + 4 * i, 4);
    std::memcpy(&y, in[1].data() + 4 * i, 4);
    const float sum = x + y;
    const int whole = sum > 127 ? 127 : sum < -128 ? -128 : static_cast<int>(sum);
    out[0][i] = out[1][i] = static_cast<std::byte>(whole);
  }
  EXPECT_EQ(Check(oracle, fill, out).ToString(), "");
  out[1][3] ^= std::byte{1};
  const CheckResult result = Check(oracle, fill, out);
  EXPECT_EQ(result.wrong, 1);
  EXPECT_EQ(result.replicas_differ, 1);
}

// In a product of complex numbers, an identity leaves NaN and infinity unchanged.
TEST(OracleCastTest, IdentitiesOfComplexProductsChangeNothing) {
  const Sharding from = Of("f32[64]", "a=2,b=3", "P(max),R");
  const Sharding to = Sharding::Parse("c64[64]", from.mesh(), "R,P(product)").value();
  const Oracle oracle = Oracle::Create(from, to).value();
  for (const Values values : kAllValues) {
    const Fill fill{.values = values, .seed = 1};
    const Buffers in = SourcesOf(oracle, fill);
    Buffers out(6, std::vector<std::byte>(64 * 8));
    for (size_t i = 0; i < 64; ++i) {
      float x, y;
      std::memcpy(&x, in[0].data() + 4 * i, 4);
      std::memcpy(&y, in[3].data() + 4 * i, 4);
      const float max = std::isnan(x) || std::isnan(y) ? std::nanf("")
                        : x == y                       ? (std::signbit(x) ? y : x)
                        : x > y                        ? x
                                                       : y;
      for (size_t rank = 0; rank < 6; ++rank) {
        const float parts[] = {rank % 3 == i % 3 ? max : 1.0F, 0.0F};
        std::memcpy(out[rank].data() + 8 * i, parts, 8);
      }
    }
    EXPECT_EQ(Check(oracle, fill, out).ToString(), "") << static_cast<int>(values);
  }
}

// Every pair of dtypes, in both directions, with some reduce dtypes.
class CastPairTest : public ::testing::TestWithParam<int> {};

TEST_P(CastPairTest, RightTargetsPassInAnyOrder) {
  const auto source = static_cast<DType>(GetParam());
  int64_t visited = 0;
  int64_t reduced = 0;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto target = static_cast<DType>(t);
    if (target == DType::kF4E2M1 || !CheckCast(source, target).ok()) continue;
    const auto visit = [&](const Sharding& from, const Sharding& like, uint64_t seed) {
      const auto to = like.WithDType(target);
      if (!to.ok() || NumElements(from.shape()) > 200) return;
      Random random(seed);
      std::optional<DType> reduce;
      if (random.OneIn(2)) {
        reduce = random.OneIn(3) ? DType::kF32 : static_cast<DType>(random.Below(kNumDTypes));
        // The naive engine needs the target's partial ops in the reduce dtype, too.
        if (!from.WithDType(*reduce).ok() || !to->WithDType(*reduce).ok() ||
            !CheckCast(source, *reduce).ok() || !CheckCast(*reduce, target).ok()) {
          reduce.reset();
        }
      }
      if (!to->WithDType(DefaultReduceDType(source, target)).ok()) return;
      const auto created = Oracle::Create(from, *to, reduce);
      ASSERT_TRUE(created.ok()) << TextOf(from, *to, reduce) << ": " << created.status();
      const Oracle& oracle = *created;
      for (const Values values : kAllValues) {
        const Fill fill{.values = values, .seed = seed};
        const CheckResult made = Check(oracle, fill, TargetsOf(oracle, fill));
        ASSERT_TRUE(made.ok()) << TextOf(from, *to, reduce) << " values "
                               << static_cast<int>(values) << ": " << made.ToString();
        const Buffers in = SourcesOf(oracle, fill);
        const CheckResult run =
            Check(oracle, fill, RunNaively(from, *to, in, {.seed = seed, .reduce_dtype = reduce}));
        ASSERT_TRUE(run.ok()) << TextOf(from, *to, reduce) << " values " << static_cast<int>(values)
                              << ": " << run.ToString();
      }
      ++visited;
      reduced += from.HasPartial() ? 1 : 0;
    };
    for (int op = 0; op < kNumReduceOps; ++op) {
      if (!CheckReduce(static_cast<ReduceOp>(op), source).ok()) continue;
      for (uint64_t i = 0; i < 12; i += testkit::TestFraction()) {
        const uint64_t seed = ((static_cast<uint64_t>(GetParam()) * 32 + t) * 8 + op) * 1000 + i;
        const auto [from, to] = RandomCase(seed, source, static_cast<ReduceOp>(op));
        visit(from, to, seed);
        if (Oracle::Create(to, from).ok()) visit(to, from, seed + 500);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(visited, 2);
  EXPECT_GT(reduced, 0);
  fmt::print("{} pairs, {} with partial sources\n", visited, reduced);
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, CastPairTest,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16,
                                           17),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return std::string(Name(static_cast<DType>(info.param)));
                         });

TEST(WrongCastTest, RoundingTwiceIsFound) {
  struct Case {
    const char* tensor;
    DType target;
    DType detour;
  };
  for (const Case& c :
       {Case{"f64[600]", DType::kF16, DType::kF32}, Case{"f32[600]", DType::kF8E4M3, DType::kF16},
        Case{"f32[600]", DType::kF8E5M2, DType::kBF16}, Case{"i64[600]", DType::kF32, DType::kF64},
        Case{"i32[600]", DType::kI8, DType::kF64}, Case{"f32[600]", DType::kI16, DType::kBF16},
        Case{"f64[600]", DType::kBool, DType::kF32}}) {
    const Pair pair = PairOf(c.tensor, "S(0),R", c.target, "R,S(0)");
    const Fill fill{.seed = 2};
    EXPECT_EQ(WrongWith(pair, fill, std::nullopt, {}), 0) << c.tensor;
    EXPECT_GT(WrongWith(pair, fill, std::nullopt, {.detour = c.detour}), 4) << c.tensor;
  }
}

// Detects whether contributions were cast before or after the reduction.
TEST(WrongCastTest, AnotherReduceDTypeIsFound) {
  struct Case {
    const char* tensor;
    const char* placements;
    DType target;
    DType right;
    DType wrong;
  };
  for (const Case& c :
       {Case{"f32[600]", "P,P", DType::kBF16, DType::kF32, DType::kBF16},
        Case{"f32[600]", "P,P", DType::kBF16, DType::kBF16, DType::kF32},
        Case{"bf16[600]", "P,P", DType::kBF16, DType::kF32, DType::kBF16},
        Case{"f16[600]", "P(avg),P(avg)", DType::kF8E5M2, DType::kF32, DType::kF8E5M2},
        Case{"f32[600]", "P,P", DType::kI32, DType::kI32, DType::kF32},
        Case{"i32[600]", "P(max),P(max)", DType::kI8, DType::kI8, DType::kI32}}) {
    const Pair pair = PairOf(c.tensor, c.placements, c.target, "R,S(0)");
    const Fill fill{.seed = 2};
    EXPECT_EQ(WrongWith(pair, fill, c.right, {.reduce_dtype = c.right}), 0) << c.tensor;
    EXPECT_GT(WrongWith(pair, fill, c.right, {.reduce_dtype = c.wrong}), 10)
        << c.tensor << " " << Name(c.right) << " " << Name(c.wrong);
  }
}

TEST(WrongCastTest, LostContributionsAreFound) {
  for (const auto& [tensor, placements, target] :
       {std::tuple{"bf16[400]", "P,P", DType::kF32},
        {"f32[400]", "P,P", DType::kF8E4M3},
        {"f8e4m3[400]", "P,P(avg)", DType::kBF16},
        {"i8[400]", "P,P", DType::kF32},
        {"f32[400]", "P(avg),P(avg)", DType::kI32},
        {"u8[400]", "P(min),P(min)", DType::kF16},
        {"f16[400]", "P(product),P(product)", DType::kF32},
        {"f32[400]", "P,P", DType::kC64}}) {
    for (const char* to : {"R,R", "S(0),P"}) {
      if (std::string_view(to) == "S(0),P" && std::string_view(placements) != "P,P") continue;
      const Pair pair = PairOf(tensor, placements, target, to);
      for (int64_t lost = 0; lost < 6; ++lost) {
        EXPECT_GT(WrongWith(pair, {.seed = 3}, std::nullopt, {.lost = lost}), 8)
            << tensor << " " << to << " without " << lost;
      }
    }
  }
}

TEST(WrongCastTest, NanPayloadsAreFound) {
  const Pair pair = PairOf("f32[400]", "S(0),R", DType::kF16, "R,R");
  const Oracle oracle = Oracle::Create(pair.from, pair.to).value();
  const Fill fill{.values = Values::kSpecial, .seed = 1};
  Buffers out = TargetsOf(oracle, fill);
  EXPECT_TRUE(Check(oracle, fill, out).ok());
  int64_t nans = 0;
  for (size_t i = 0; i < out[0].size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, out[0].data() + i, 2);
    if (bits != 0x7e00) continue;
    ++nans;
    for (std::vector<std::byte>& buffer : out) buffer[i] = std::byte{1};
  }
  EXPECT_GT(nans, 10);
  EXPECT_EQ(Check(oracle, fill, out).wrong, nans * 6);
}

// Sums in another order round differently; a cast of sums may change their last bits.
TEST(WrongCastTest, RoundingValuesAreBounded) {
  const Pair pair = PairOf("f32[400]", "P,P", DType::kBF16, "R,R");
  const Oracle oracle = Oracle::Create(pair.from, pair.to).value();
  const Fill fill{.values = Values::kRounding, .seed = 1};
  Buffers out = TargetsOf(oracle, fill);
  EXPECT_TRUE(Check(oracle, fill, out).ok());
  for (std::vector<std::byte>& buffer : out) buffer[1] ^= std::byte{1};  // twice or half
  EXPECT_EQ(Check(oracle, fill, out).wrong, 6);
}

TEST(OracleCastTest, RefusesWhatHasNoDefinition) {
  const auto refusal = [](std::string_view tensor, std::string_view from, DType dtype,
                          std::optional<DType> reduce) {
    const Pair pair = PairOf(tensor, from, dtype, "R,R");
    return Message(Oracle::Create(pair.from, pair.to, reduce).status());
  };
  EXPECT_EQ(refusal("c64[2]", "R,R", DType::kF32, {}), "Cannot cast c64 to f32");
  EXPECT_EQ(refusal("f32[2]", "R,R", DType::kF4E2M1, {}), "Cannot cast f32 to f4e2m1");
  EXPECT_EQ(refusal("f32[2]", "P,R", DType::kF32, DType::kC64), "Cannot cast c64 to f32");
  EXPECT_EQ(refusal("i32[2]", "P(xor),R", DType::kI32, DType::kF32),
            "xor of f32 is refused: 'and', 'or' and 'xor' need bool or integers");
  // No reduction.
  EXPECT_EQ(refusal("f32[2]", "S(0),R", DType::kF16, DType::kBool), "");
}

}  // namespace
}  // namespace meshift::testkit
