// The oracle on tensors small enough to compute by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"

namespace meshift::testkit {
namespace {

using ::testing::StartsWith;

Sharding Of(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

Oracle OracleOf(std::string_view tensor, std::string_view mesh, std::string_view from,
                std::string_view to) {
  return Oracle::Create(Of(tensor, mesh, from), Of(tensor, mesh, to)).value();
}

template <typename V>
std::vector<V> SourceOf(const Oracle& oracle, const Fill& fill, int64_t position) {
  std::vector<V> values(oracle.SourceBytes(position) / sizeof(V));
  EXPECT_TRUE(oracle
                  .FillSource(fill, position,
                              absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                             values.size() * sizeof(V)))
                  .ok());
  return values;
}

template <typename V>
CheckResult Check(const Oracle& oracle, const Fill& fill,
                  const std::vector<std::vector<V>>& targets) {
  std::vector<absl::Span<const std::byte>> views;
  for (const std::vector<V>& target : targets) {
    views.emplace_back(reinterpret_cast<const std::byte*>(target.data()),
                       target.size() * sizeof(V));
  }
  return oracle.Check(fill, views).value();
}

template <typename V>
using Tensors = std::vector<std::vector<V>>;

TEST(OracleTest, SumOfTwo) {
  const Oracle oracle = OracleOf("i32[3]", "a=2", "P", "R");
  const Fill fill{.seed = 1};
  const auto x = SourceOf<int32_t>(oracle, fill, 0);
  const auto y = SourceOf<int32_t>(oracle, fill, 1);
  const std::vector<int32_t> sum = {x[0] + y[0], x[1] + y[1], x[2] + y[2]};
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {sum, sum}).ok());
  const CheckResult result = Check<int32_t>(oracle, fill, {x, x});
  EXPECT_EQ(result.wrong, 6);
  EXPECT_EQ(result.replicas_differ, 0);
}

TEST(OracleTest, MessagesNameRankIndexAndValues) {
  const Oracle oracle = OracleOf("f32[2,3]", "a=2,b=2@6,7,4,5", "P,R", "R,R");
  const Fill fill{.seed = 1};
  const auto x = SourceOf<float>(oracle, fill, 0);
  const auto y = SourceOf<float>(oracle, fill, 2);
  std::vector<float> sum;
  for (size_t i = 0; i < x.size(); ++i) sum.push_back(x[i] + y[i]);
  Tensors<float> targets = {sum, sum, sum, sum};
  EXPECT_EQ(Check(oracle, fill, targets).ToString(), "");
  targets[3][5] = 1.5;
  const CheckResult result = Check(oracle, fill, targets);
  EXPECT_EQ(result.wrong, 1);
  EXPECT_EQ(result.replicas_differ, 1);
  EXPECT_THAT(result.first_wrong, StartsWith("rank 5 holds 1.5 (0x3fc00000) at [1,2], not "));
  EXPECT_THAT(result.first_difference, StartsWith("ranks 6 and 5 differ at [1,2]: "));
  EXPECT_EQ(result.ToString(), "1 wrong elements: " + result.first_wrong +
                                   "; 1 replicated elements differ: " + result.first_difference);
}

TEST(OracleTest, SumToShards) {
  const Oracle oracle = OracleOf("i64[3,2]", "a=2", "P", "S(0)");
  const Fill fill{.values = Values::kRounding, .seed = 1};
  const auto x = SourceOf<uint64_t>(oracle, fill, 0);
  const auto y = SourceOf<uint64_t>(oracle, fill, 1);
  EXPECT_TRUE(Check<uint64_t>(oracle, fill,
                              {{x[0] + y[0], x[1] + y[1], x[2] + y[2], x[3] + y[3]},
                               {x[4] + y[4], x[5] + y[5]}})
                  .ok());
}

// 2x2, rows cut by b: the contributions to a row are those of ranks (0, b) and (1, b).
TEST(OracleTest, ReducesWhatIsSharded) {
  const Oracle oracle = OracleOf("i32[2]", "a=2,b=2", "P,S(0)", "S(0),R");
  const Fill fill{.seed = 1};
  std::vector<int32_t> v;
  for (int64_t p = 0; p < 4; ++p) v.push_back(SourceOf<int32_t>(oracle, fill, p).at(0));
  const std::vector<int32_t> row0 = {v[0] + v[2]};
  const std::vector<int32_t> row1 = {v[1] + v[3]};
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {row0, row0, row1, row1}).ok());
  EXPECT_FALSE(Check<int32_t>(oracle, fill, {row0, row1, row0, row1}).ok());
}

TEST(OracleTest, MovesBits) {
  const Oracle oracle = OracleOf("f32[4,2]", "a=2", "S(0)", "S(1)");
  const Fill fill{.seed = 1};
  const auto x = SourceOf<uint32_t>(oracle, fill, 0);
  const auto y = SourceOf<uint32_t>(oracle, fill, 1);
  const Tensors<uint32_t> right = {{x[0], x[2], y[0], y[2]}, {x[1], x[3], y[1], y[3]}};
  EXPECT_TRUE(Check(oracle, fill, right).ok());
  EXPECT_EQ(Check<uint32_t>(oracle, fill, {right[1], right[0]}).wrong, 8);
}

TEST(OracleTest, AverageTruncatesTowardZero) {
  const Oracle oracle = OracleOf("i32[64]", "a=3", "P(avg)", "R");
  const Fill fill{.values = Values::kRounding, .seed = 1};
  std::vector<std::vector<int32_t>> parts;
  for (int64_t p = 0; p < 3; ++p) parts.push_back(SourceOf<int32_t>(oracle, fill, p));
  std::vector<int32_t> truncated;
  std::vector<int32_t> floored;
  for (size_t i = 0; i < 64; ++i) {
    uint32_t sum = 0;  // wraps
    for (const auto& part : parts) sum += static_cast<uint32_t>(part[i]);
    const auto value = static_cast<int32_t>(sum);
    truncated.push_back(value / 3);
    floored.push_back(value / 3 - (value % 3 < 0 ? 1 : 0));
  }
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {truncated, truncated, truncated}).ok());
  EXPECT_GT(Check<int32_t>(oracle, fill, {floored, floored, floored}).wrong, 30);
}

TEST(OracleTest, AverageOfFloats) {
  const Oracle oracle = OracleOf("f32[16]", "a=2,b=3", "P,P(avg)", "R,R");
  const Fill fill{.seed = 1};
  std::vector<float> average(16, 0);
  for (int64_t p = 0; p < 6; ++p) {
    const auto part = SourceOf<float>(oracle, fill, p);
    for (size_t i = 0; i < 16; ++i) average[i] += part[i];
  }
  std::vector<float> halved = average;
  for (float& v : average) v /= 3;
  for (float& v : halved) v /= 6;
  EXPECT_TRUE(Check<float>(oracle, fill, {6, average}).ok());
  EXPECT_FALSE(Check<float>(oracle, fill, {6, halved}).ok());
}

TEST(OracleTest, MinMaxProductXor) {
  const auto expect = [](std::string_view op, auto fold) {
    const Oracle oracle = OracleOf("i8[9]", "a=3", op, "R");
    const Fill fill{.seed = 2};
    auto total = SourceOf<int8_t>(oracle, fill, 0);
    for (int64_t p = 1; p < 3; ++p) {
      const auto part = SourceOf<int8_t>(oracle, fill, p);
      for (size_t i = 0; i < 9; ++i) total[i] = static_cast<int8_t>(fold(total[i], part[i]));
    }
    EXPECT_TRUE(Check<int8_t>(oracle, fill, {3, total}).ok()) << op;
  };
  expect("P(min)", [](int a, int b) { return a < b ? a : b; });
  expect("P(max)", [](int a, int b) { return a > b ? a : b; });
  expect("P(product)", [](int a, int b) { return a * b; });
  expect("P(xor)", [](int a, int b) { return a ^ b; });
  expect("P(and)", [](int a, int b) { return a & b; });
  expect("P(or)", [](int a, int b) { return a | b; });
}

TEST(OracleTest, ReplicatedToPartial) {
  const Oracle oracle = OracleOf("f32[2]", "a=2", "R", "P");
  const Fill fill{.seed = 1};
  const auto x = SourceOf<float>(oracle, fill, 0);
  const std::vector<float> nothing = {-0.0F, -0.0F};
  EXPECT_TRUE(Check<float>(oracle, fill, {x, nothing}).ok());
  EXPECT_TRUE(Check<float>(oracle, fill, {nothing, x}).ok());  // only the sum matters
  EXPECT_EQ(Check<float>(oracle, fill, {x, x}).wrong, 2);
  EXPECT_EQ(Check<float>(oracle, fill, {nothing, nothing}).wrong, 2);
  const CheckResult result = Check<float>(oracle, fill, {x, {1, -0.0F}});
  EXPECT_EQ(result.wrong, 1);
  EXPECT_THAT(result.first_wrong, StartsWith("rank 0 and its partial group together hold "));
}

TEST(OracleTest, ReplicatedToOtherPartials) {
  const Fill fill{.seed = 1};
  const auto expect = [&](std::string_view op, int16_t identity) {
    const Oracle oracle = OracleOf("i16[2]", "a=3", "R", op);
    const auto x = SourceOf<int16_t>(oracle, fill, 0);
    const std::vector<int16_t> nothing = {identity, identity};
    EXPECT_TRUE(Check<int16_t>(oracle, fill, {x, nothing, nothing}).ok()) << op;
    const std::vector<int16_t> other = {x[0], static_cast<int16_t>(~x[1])};
    EXPECT_FALSE(Check<int16_t>(oracle, fill, {other, nothing, nothing}).ok()) << op;
  };
  expect("P", 0);
  expect("P(product)", 1);
  expect("P(min)", std::numeric_limits<int16_t>::max());
  expect("P(max)", std::numeric_limits<int16_t>::min());
  expect("P(and)", -1);
  expect("P(or)", 0);
  expect("P(xor)", 0);
  const Oracle oracle = OracleOf("i16[2]", "a=3", "R", "P(avg)");
  const auto x = SourceOf<int16_t>(oracle, fill, 0);
  EXPECT_TRUE(Check<int16_t>(oracle, fill, {x, x, x}).ok());
  EXPECT_FALSE(Check<int16_t>(oracle, fill, {x, {0, 0}, {0, 0}}).ok());
}

TEST(OracleTest, ShardToPartial) {
  const Oracle oracle = OracleOf("i32[3]", "a=2", "S(0)", "P");
  const Fill fill{.seed = 1};
  const auto x = SourceOf<int32_t>(oracle, fill, 0);
  const auto y = SourceOf<int32_t>(oracle, fill, 1);
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {{x[0], x[1], 0}, {0, 0, y[0]}}).ok());
  EXPECT_EQ(Check<int32_t>(oracle, fill, {{x[0], x[1], 0}, {0, 0, 0}}).wrong, 1);
}

TEST(OracleTest, PartialKept) {
  const Oracle oracle = OracleOf("i32[1]", "a=2,b=2", "P,P", "P,R");
  const Fill fill{.seed = 1};
  std::vector<int32_t> v;
  for (int64_t p = 0; p < 4; ++p) v.push_back(SourceOf<int32_t>(oracle, fill, p).at(0));
  const std::vector<int32_t> first = {v[0] + v[1]};
  const std::vector<int32_t> second = {v[2] + v[3]};
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {first, first, second, second}).ok());
  // The replicas are (0, 0) and (0, 1).
  const CheckResult result =
      Check<int32_t>(oracle, fill, {first, {v[0] + v[1] + 1}, second, second});
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.replicas_differ, 1);
}

// A sum of 1 and -1 is +0 in any order.
TEST(OracleTest, TheSignOfAPartialZeroCounts) {
  const Oracle oracle = OracleOf("f8e5m2[400]", "a=2", "P", "P");
  const Fill fill{.seed = 1};
  auto x = SourceOf<uint8_t>(oracle, fill, 0);
  auto y = SourceOf<uint8_t>(oracle, fill, 1);
  EXPECT_TRUE(Check<uint8_t>(oracle, fill, {x, y}).ok());
  int64_t zeros = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if ((x[i] ^ 0x80) != y[i] && (x[i] != 0 || y[i] != 0)) continue;
    x[i] = y[i] = 0x80;  // -0.0
    ++zeros;
  }
  EXPECT_GT(zeros, 10);
  EXPECT_EQ(Check<uint8_t>(oracle, fill, {x, y}).wrong, zeros);
}

TEST(OracleTest, TwoMeshes) {
  const Oracle oracle =
      Oracle::Create(Of("i32[3]", "a=2", "P"), Of("i32[3]", "x=3@5,4,3", "S(0)")).value();
  const Fill fill{.seed = 1};
  const auto x = SourceOf<int32_t>(oracle, fill, 0);
  const auto y = SourceOf<int32_t>(oracle, fill, 1);
  EXPECT_TRUE(Check<int32_t>(oracle, fill, {{x[0] + y[0]}, {x[1] + y[1]}, {x[2] + y[2]}}).ok());
}

TEST(OracleTest, F4IsMovedInPairs) {
  const Oracle oracle = OracleOf("f4e2m1[2,4]", "a=2", "S(0)", "S(1)");
  const Fill fill{.seed = 1};
  EXPECT_EQ(oracle.SourceBytes(0), 2);
  const auto x = SourceOf<uint8_t>(oracle, fill, 0);
  const auto y = SourceOf<uint8_t>(oracle, fill, 1);
  EXPECT_TRUE(Check<uint8_t>(oracle, fill, {{x[0], y[0]}, {x[1], y[1]}}).ok());
  const uint8_t other = static_cast<uint8_t>(y[1] ^ 0x10);
  const CheckResult result = Check<uint8_t>(oracle, fill, {{x[0], y[0]}, {x[1], other}});
  EXPECT_EQ(result.wrong, 1);
  EXPECT_NE(result.first_wrong.find("at [1,2]"), std::string::npos) << result.first_wrong;
}

TEST(OracleTest, AnEmptyTensorIsRight) {
  const Oracle oracle = OracleOf("f32[0,3]", "a=2", "P", "R");
  EXPECT_EQ(oracle.SourceBytes(0), 0);
  EXPECT_TRUE(Check<float>(oracle, {}, {{}, {}}).ok());
}

TEST(OracleTest, ABoolIsZeroOrOne) {
  const Oracle oracle = OracleOf("bool[200]", "a=2", "S(0)", "R");
  std::vector<uint8_t> all;
  for (int64_t p = 0; p < 2; ++p) {
    for (const uint8_t b : SourceOf<uint8_t>(oracle, {}, p)) all.push_back(b);
  }
  for (const uint8_t b : all) EXPECT_LE(b, 1);
  EXPECT_TRUE(Check<uint8_t>(oracle, {}, {all, all}).ok());
  for (uint8_t& b : all) b = b == 0 ? 0 : 255;
  EXPECT_GT(Check<uint8_t>(oracle, {}, {all, all}).wrong, 100);
}

TEST(OracleTest, RefusesWhatHasNoDefinition) {
  const auto refusal = [](std::string_view tensor, std::string_view from, std::string_view other,
                          std::string_view to) {
    return Message(Oracle::Create(Of(tensor, "a=2,b=2", from), Of(other, "a=2,b=2", to)).status());
  };
  EXPECT_EQ(refusal("f32[2]", "P,R", "f32[3]", "R,R"),
            "The source is f32[2] and the target f32[3]: they must be one tensor");
  EXPECT_EQ(refusal("f32[2]", "P,R", "f32[2]", "P(max),R"), "P -> P(max) on mesh dim a is refused");
  EXPECT_EQ(refusal("f32[2]", "R,S(0)", "f32[2]", "R,P(avg)"),
            "S(0) -> P(avg) on mesh dim b is refused");
  EXPECT_EQ(refusal("f32[0]", "R,S(0)", "f32[0]", "R,P(avg)"), "");
}

TEST(OracleTest, RefusesBuffersOfOtherSizes) {
  const Oracle oracle = OracleOf("f32[3]", "a=2", "P", "S(0)");
  std::vector<std::byte> four(4), eight(8);
  EXPECT_EQ(Message(oracle.FillSource({}, 1, absl::MakeSpan(eight))),
            "The buffer of rank 1 has 8 bytes; its part of f32[3] on a=2 as P has 12");
  EXPECT_EQ(Message(oracle.MakeTarget({}, 1, absl::MakeSpan(eight))),
            "The buffer of rank 1 has 8 bytes; its part of f32[3] on a=2 as S(0) has 4");
  EXPECT_EQ(Message(oracle.MakeTarget({}, 2, absl::MakeSpan(eight))),
            "Position 2 is not in a mesh of 2 ranks");
  EXPECT_EQ(Message(oracle.Check({}, {absl::MakeConstSpan(eight)}).status()),
            "1 buffers were given for a mesh of 2 ranks");
  EXPECT_EQ(
      Message(oracle.Check({}, {absl::MakeConstSpan(four), absl::MakeConstSpan(four)}).status()),
      "The buffer of rank 0 has 4 bytes; its part of f32[3] on a=2 as S(0) has 8");
}

}  // namespace
}  // namespace meshift::testkit
