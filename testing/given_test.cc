#include "testing/given.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "placement/op_table.h"
#include "testing/oracle_buffers.h"
#include "testing/random.h"
#include "testing/reference_engine.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

std::vector<absl::Span<const std::byte>> Views(const Buffers& buffers) {
  return {buffers.begin(), buffers.end()};
}

CheckResult Check(const Sharding& from, const Sharding& to, const Buffers& in, const Buffers& out) {
  return CheckGiven(from, to, Views(in), Views(out)).value();
}

std::string TextOf(const Sharding& from, const Sharding& to) {
  return fmt::format("{} -> {}", from.ToString(), to.PlacementsText());
}

class GivenDTypeTest : public ::testing::TestWithParam<int> {
 protected:
  // Random redistributions with every op of the dtype, in both directions.
  template <typename Visit>
  static void ForEachPair(uint64_t count, Visit visit) {
    const auto dtype = static_cast<DType>(GetParam());
    for (int op = 0; op < kNumReduceOps; ++op) {
      if (!CheckReduce(static_cast<ReduceOp>(op), dtype).ok()) continue;
      for (uint64_t i = 0; i < count / TestFraction() + 1; ++i) {
        const RandomPair pair = RandomCase(i * 8 + op, dtype, static_cast<ReduceOp>(op));
        if (NumElements(pair.from.shape()) > 300) continue;
        visit(pair.from, pair.to);
        if (Oracle::Create(pair.to, pair.from).ok()) visit(pair.to, pair.from);
      }
    }
  }
};

// The naive engine adds in a random order and rounds after each step.
TEST_P(GivenDTypeTest, RightTargetsPassInAnyOrder) {
  int64_t reduced = 0;
  uint64_t seed = 0;
  ForEachPair(40, [&](const Sharding& from, const Sharding& to) {
    const Oracle oracle = Oracle::Create(from, to).value();
    for (const Values values : {Values::kExact, Values::kRounding, Values::kSpecial}) {
      const Buffers in = SourcesOf(oracle, {.values = values, .seed = ++seed});
      EXPECT_TRUE(CheckReplicas(from, Views(in)).value().ok()) << from.ToString();
      const Buffers out = RunNaively(from, to, in, {.seed = seed});
      const CheckResult result = Check(from, to, in, out);
      ASSERT_TRUE(result.ok()) << TextOf(from, to) << " values " << static_cast<int>(values) << ": "
                               << result.ToString();
    }
    if (from.HasPartial() && !to.HasPartial()) ++reduced;
  });
  EXPECT_GT(reduced, 0);
}

TEST_P(GivenDTypeTest, FlippedBitsAreFound) {
  const auto dtype = static_cast<DType>(GetParam());
  const bool inexact = IsFloat(dtype) && BitWidth(dtype) == 8;
  Random random(3);
  int64_t flipped = 0;
  ForEachPair(40, [&](const Sharding& from, const Sharding& to) {
    // Not all averages of 8-bit floats are exact, and products of complex numbers are never treated
    // as exact; the sign of a sum that is zero does not matter.
    const bool product = std::ranges::any_of(from.placements(), [](const Placement& placement) {
      return placement.IsPartial() && placement.op() == ReduceOp::kProduct;
    });
    if (to.HasPartial() || inexact || (IsComplex(dtype) && product)) return;
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.values = Values::kExact, .seed = random.Next()};
    const Buffers in = SourcesOf(oracle, fill);
    Buffers out = RunNaively(from, to, in, {.seed = fill.seed});
    std::vector<std::byte>& target = out[random.Below(std::ssize(out))];
    if (target.empty()) return;
    const size_t at = random.Below(std::ssize(target));
    target[at] ^= static_cast<std::byte>(1 << random.Below(7));
    const CheckResult result = Check(from, to, in, out);
    ASSERT_EQ(result.wrong, 1) << TextOf(from, to);
    ++flipped;
  });
  EXPECT_EQ(flipped > 0, !inexact);
}

// All except f4e2m1, which has no arithmetic.
INSTANTIATE_TEST_SUITE_P(AllDTypes, GivenDTypeTest,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16,
                                           17),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return std::string(Name(static_cast<DType>(info.param)));
                         });

Sharding Of(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

template <typename T>
Buffers BytesOf(const std::vector<std::vector<T>>& tensors) {
  Buffers buffers;
  for (const std::vector<T>& tensor : tensors) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(tensor.data());
    buffers.emplace_back(bytes, bytes + tensor.size() * sizeof(T));
  }
  return buffers;
}

// The number of wrong elements if every rank of a mesh of n holds `held`, and the contributions are
// `in`, one element per rank.
template <typename T>
int64_t Wrong(std::string_view dtype, std::string_view partial, const std::vector<T>& in, T held) {
  const Sharding from = Of(fmt::format("{}[]", dtype), fmt::format("a={}", in.size()), partial);
  std::vector<std::vector<T>> sources;
  for (const T value : in) sources.push_back({value});
  const std::vector<std::vector<T>> targets(in.size(), {held});
  const auto n = static_cast<int64_t>(in.size());
  return Check(from, from.WithPlacements("R").value(), BytesOf(sources), BytesOf(targets)).wrong /
         n;
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(GivenTest, SmallIntegersAreComparedExactly) {
  EXPECT_EQ(Wrong<float>("f32", "P", {1, 2, 3}, 6), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1, 2, 3}, std::nextafter(6.0F, 7.0F)), 1);
  EXPECT_EQ(Wrong<float>("f32", "P(avg)", {3, 6, 9}, 6), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(avg)", {3, 6, 9}, std::nextafter(6.0F, 7.0F)), 1);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {3, 5, 7}, 105), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {3, 5, 7}, std::nextafter(105.0F, 0.0F)), 1);
}

TEST(GivenTest, RoundedSumsAreComparedWithinABound) {
  // 1 + 2^-24 + 2^-24 is 1 from the left, and 1 + 2^-23 from the right.
  const float half_ulp = std::ldexp(1.0F, -24);
  EXPECT_EQ(Wrong<float>("f32", "P", {1, half_ulp, half_ulp}, 1), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1, half_ulp, half_ulp}, 1 + 2 * half_ulp), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1, half_ulp, half_ulp}, 1.00001F), 1);
  // Cancellation leaves an error of the terms' magnitude, but no larger one.
  EXPECT_EQ(Wrong<float>("f32", "P", {1e8F, 1, -1e8F}, 0), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1e8F, 1, -1e8F}, 1), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1e8F, 1, -1e8F}, 1e4F), 1);
}

TEST(GivenTest, WhatMayOverflowMayBeInfinite) {
  EXPECT_EQ(Wrong<float>("f32", "P", {3e38F, 3e38F, -3e38F}, 3e38F), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {3e38F, 3e38F, -3e38F}, kInf), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {3e38F, 3e38F, -3e38F}, 2e38F), 1);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {1e30F, 1e30F, 1e-30F}, 1e30F), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {1e30F, 1e30F, 1e-30F}, kInf), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {1e30F, 1e-30F}, kInf), 1);
  EXPECT_EQ(Wrong<double>("f64", "P(product)", {1e300, 1e300, 1e-300}, 1e300), 0);
  EXPECT_EQ(Wrong<double>("f64", "P(product)", {1e300, 1e300, 1e-300}, 1e299), 1);
}

TEST(GivenTest, InfinitiesAndNanStay) {
  EXPECT_EQ(Wrong<float>("f32", "P", {1, kInf}, kInf), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {1, kInf}, 1), 1);
  EXPECT_EQ(Wrong<float>("f32", "P", {kInf, -kInf}, kNan), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {kNan, 1}, kNan), 0);
  EXPECT_EQ(Wrong<float>("f32", "P", {kNan, 1}, 1), 1);
  EXPECT_EQ(Wrong<float>("f32", "P(max)", {kNan, 1}, kNan), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(max)", {kNan, 1}, -kNan), 1);  // not the canonical NaN
  EXPECT_EQ(Wrong<float>("f32", "P(min)", {0.0F, -0.0F}, -0.0F), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(min)", {0.0F, -0.0F}, 0.0F), 1);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {0, kInf}, kNan), 0);
  EXPECT_EQ(Wrong<float>("f32", "P(product)", {0, kInf}, 0), 1);
}

TEST(GivenTest, IntegersWrapAndTruncate) {
  EXPECT_EQ(Wrong<int8_t>("i8", "P", {100, 100}, -56), 0);
  EXPECT_EQ(Wrong<int8_t>("i8", "P", {100, 100}, 100), 1);
  EXPECT_EQ(Wrong<int32_t>("i32", "P(avg)", {-3, -4}, -3), 0);
  EXPECT_EQ(Wrong<int32_t>("i32", "P(avg)", {-3, -4}, -4), 1);
  EXPECT_EQ(Wrong<uint8_t>("u8", "P(xor)", {0x0f, 0x3c}, 0x33), 0);
  EXPECT_EQ(Wrong<uint8_t>("bool", "P(and)", {1, 0}, 0), 0);
  EXPECT_EQ(Wrong<uint8_t>("bool", "P(or)", {1, 0}, 0), 1);
}

TEST(GivenTest, APartialTargetIsPutTogether) {
  const Sharding from = Of("i32[2]", "a=2,b=2", "P,P");
  const Sharding to = from.WithPlacements("R,P").value();
  const Buffers in = BytesOf<int32_t>({{1, 2}, {10, 20}, {100, 200}, {1000, 2000}});
  const auto run = [&](const std::vector<std::vector<int32_t>>& out) {
    return Check(from, to, in, BytesOf(out));
  };
  EXPECT_TRUE(run({{101, 202}, {1010, 2020}, {101, 202}, {1010, 2020}}).ok());
  EXPECT_TRUE(run({{1111, 2222}, {0, 0}, {1111, 2222}, {0, 0}}).ok());
  EXPECT_EQ(run({{101, 202}, {1010, 2021}, {101, 202}, {1010, 2021}}).first_wrong,
            "rank 0 and its partial group together do not hold 2222 at [1]; the rank holds 202");
  EXPECT_EQ(run({{101, 202}, {1010, 2020}, {101, 202}, {1010, 2021}}).first_difference,
            "ranks 1 and 3 differ at [1]: 2020 and 2021");
}

// The target's op may differ from the source's: the sum is split into factors.
TEST(GivenTest, ASumMayBecomeAPartialProduct) {
  const Sharding from = Of("c64[2]", "a=2,b=2", "P,R");
  const Sharding to = from.WithPlacements("R,P(product)").value();
  // (2,1) + (1,-1) = (3,0), and (0,0) + (0,2) = (0,2).
  const std::vector<float> first = {2, 1, 0, 0};
  const std::vector<float> second = {1, -1, 0, 2};
  const Buffers in = BytesOf<float>({first, first, second, second});
  const auto run = [&](const std::vector<float>& held, const std::vector<float>& other) {
    return Check(from, to, in, BytesOf<float>({held, other, held, other}));
  };
  EXPECT_TRUE(run({3, 0, 0, 2}, {1, 0, 1, 0}).ok());
  EXPECT_TRUE(run({1, 0, 0, 2}, {3, 0, 1, 0}).ok());
  EXPECT_TRUE(run({0, 3, 1, 0}, {0, -1, 0, 2}).ok());
  EXPECT_FALSE(run({3, 1, 0, 2}, {1, 0, 1, 0}).ok());
  // The product of the contributions is wrong.
  EXPECT_FALSE(run({3, -1, 0, 0}, {1, 0, 1, 0}).ok());
}

TEST(GivenTest, MessagesNameRankIndexAndValues) {
  const Sharding from = Of("f32[2,2]", "a=2@7,3", "S(0)");
  const Sharding to = from.WithPlacements("R").value();
  const Buffers in = BytesOf<float>({{1, 2}, {3, 4}});
  EXPECT_TRUE(Check(from, to, in, BytesOf<float>({{1, 2, 3, 4}, {1, 2, 3, 4}})).ok());
  const CheckResult result = Check(from, to, in, BytesOf<float>({{1, 2, 3, 4}, {1, 2, 3, 5}}));
  EXPECT_EQ(result.wrong, 1);
  EXPECT_EQ(result.replicas_differ, 1);
  EXPECT_EQ(result.first_wrong, "rank 3 holds 5 (0x40a00000) at [1,1], not 4 (0x40800000)");
  EXPECT_EQ(result.first_difference,
            "ranks 7 and 3 differ at [1,1]: 4 (0x40800000) and 5 (0x40a00000)");
}

TEST(GivenTest, PairsOfF4AreMovedAsBytes) {
  const Sharding from = Of("f4e2m1[4]", "a=2", "S(0)");
  const Sharding to = from.WithPlacements("R").value();
  const Buffers in = BytesOf<uint8_t>({{0x12}, {0x34}});
  EXPECT_TRUE(Check(from, to, in, BytesOf<uint8_t>({{0x12, 0x34}, {0x12, 0x34}})).ok());
  EXPECT_EQ(Check(from, to, in, BytesOf<uint8_t>({{0x12, 0x34}, {0x12, 0x43}})).first_wrong,
            "rank 1 holds 67 at [2], not 52");
}

TEST(GivenTest, ReplicasOfTheSource) {
  const Sharding sharding = Of("i16[2]", "a=2,b=2,c=2", "S(0),P,R");
  Buffers buffers = BytesOf<int16_t>({{1}, {1}, {2}, {2}, {3}, {3}, {4}, {4}});
  EXPECT_TRUE(CheckReplicas(sharding, Views(buffers)).value().ok());
  buffers[7][0] = std::byte{9};
  const CheckResult result = CheckReplicas(sharding, Views(buffers)).value();
  EXPECT_EQ(result.replicas_differ, 1);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.first_difference, "ranks 6 and 7 differ at [1]: 4 and 9");
}

// Casts with and without a reduction, by the naive engine, which has other casts.
TEST(GivenTest, CastsAreRightInAnyReduceDType) {
  Random random(17);
  int64_t visited = 0;
  int64_t damaged = 0;
  int64_t found = 0;
  for (int i = 0; i < 4000 / TestFraction(); ++i) {
    const auto dtype = static_cast<DType>(random.Below(kNumDTypes));
    const auto target = static_cast<DType>(random.Below(kNumDTypes));
    const auto op = static_cast<ReduceOp>(random.Below(kNumReduceOps));
    if (dtype == DType::kF4E2M1 || !CheckReduce(op, dtype).ok()) continue;
    const RandomPair pair = RandomCase(i, dtype, op);
    const absl::StatusOr<Sharding> to = pair.to.WithDType(target);
    if (!to.ok() || NumElements(pair.from.shape()) > 60) continue;
    std::optional<DType> reduce;
    if (i % 3 == 0) reduce = static_cast<DType>(random.Below(kNumDTypes));
    const absl::StatusOr<Oracle> oracle = Oracle::Create(pair.from, *to, reduce);
    if (!oracle.ok()) continue;
    const Fill fill{.values = i % 2 == 0 ? Values::kExact : Values::kRounding, .seed = 5};
    const Buffers in = SourcesOf(*oracle, fill);
    Buffers out = RunNaively(pair.from, *to, in, {.seed = fill.seed, .reduce_dtype = reduce});
    const auto check = [&] {
      return CheckGiven(pair.from, *to, Views(in), Views(out), reduce).value();
    };
    const CheckResult right = check();
    ASSERT_TRUE(right.ok()) << TextOf(pair.from, *to) << " of " << Name(target) << " reduced in "
                            << (reduce ? Name(*reduce) : "default") << ": " << right.ToString();
    ++visited;
    // A value that is far off is wrong, unless it is one of several contributions.
    std::vector<std::byte>& buffer = out[random.Below(std::ssize(out))];
    if (to->HasPartial() || buffer.empty()) continue;
    const int64_t width = BitWidth(target) / 8;
    const int64_t at = random.Below(std::ssize(buffer) / width) * width + width - 1;
    buffer[at] ^= target == DType::kBool ? std::byte{1} : std::byte{64};
    ++damaged;
    if (!check().ok()) ++found;
  }
  EXPECT_GT(visited, 100 / TestFraction());
  // The others are sums that may overflow, and bits that no bound excludes.
  EXPECT_GT(found, damaged * 8 / 10);
}

TEST(GivenTest, TheReduceDTypeSaysHowASumRounds) {
  const Sharding from = Of("bf16[1]", "a=2", "P");
  const Sharding to = Of("f32[1]", "a=2", "R");
  // 1 + 2^-9 is not a bf16.
  const Buffers in = BytesOf<uint16_t>({{0x3f80}, {0x3b00}});
  const auto in_f32 = [&](const Buffers& out) {
    return CheckGiven(from, to, Views(in), Views(out), DType::kF32).value();
  };
  EXPECT_TRUE(in_f32(BytesOf<float>({{1.001953125F}, {1.001953125F}})).ok());
  EXPECT_EQ(in_f32(BytesOf<float>({{1.001953125F}, {1}})).first_wrong,
            "rank 1 holds 1 at [0], not 1.001953125");
  // By default the sum is in bf16, which rounds.
  EXPECT_TRUE(Check(from, to, in, BytesOf<float>({{1}, {1}})).ok());
}

TEST(GivenTest, Refusals) {
  const Sharding from = Of("i32[4]", "a=2", "S(0)");
  const Buffers good = BytesOf<int32_t>({{1, 2}, {3, 4}});
  const auto error = [&](const Sharding& to, const Buffers& in, const Buffers& out) {
    return CheckGiven(from, to, Views(in), Views(out)).status().ToString();
  };
  EXPECT_EQ(error(Of("i32[5]", "a=2", "S(0)"), good, good),
            "INVALID_ARGUMENT: The source is i32[4] and the target i32[5]: they must be one "
            "tensor");
  EXPECT_EQ(error(from, good, {good[0]}),
            "INVALID_ARGUMENT: 1 buffers were given for a mesh of 2 ranks");
  EXPECT_EQ(error(from, {good[0], {}}, good),
            "INVALID_ARGUMENT: The buffer of rank 1 has 0 bytes; its part has 8");
  EXPECT_EQ(
      CheckGiven(Of("c64[4]", "a=2", "S(0)"), Of("f32[4]", "a=2", "S(0)"), {}, {}).status().code(),
      absl::StatusCode::kInvalidArgument);
  const Sharding max = Of("i32[4]", "a=2", "P(max)");
  EXPECT_EQ(CheckGiven(max, max.WithPlacements("P").value(), {}, {}).status().ToString(),
            "INVALID_ARGUMENT: P(max) -> P on mesh dim a is refused");
}

}  // namespace
}  // namespace meshift::testkit
