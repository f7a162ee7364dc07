// The oracle against a naive engine, on random redistributions of every dtype and op: right results
// pass in any order of evaluation, and wrong ones are found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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

constexpr Values kAllValues[] = {Values::kExact, Values::kRounding, Values::kSpecial};

std::string TextOf(const Sharding& from, const Sharding& to) {
  return fmt::format("{} -> {}", from.ToString(), to.PlacementsText());
}

// `sharding` with P(avg) changed to P(sum) on the mesh dims in `mask`.
Sharding Mixed(const Sharding& sharding, uint64_t mask) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  std::vector<Cuts> cuts;
  for (size_t d = 0; d < sharding.shape().size(); ++d) {
    const auto list = sharding.CutsOf(static_cast<int>(d));
    cuts.emplace_back(list.begin(), list.end());
  }
  for (size_t d = 0; d < placements.size(); ++d) {
    if (placements[d].IsPartial() && (mask >> d & 1) != 0) placements[d] = Placement::Partial();
  }
  return Sharding::Create(sharding.mesh(), sharding.tensor(), placements, cuts).value();
}

// In both directions, so that targets may be newly partial too. Mixes sum and avg.
template <typename Visit>
void ForEachRandomPair(DType dtype, ReduceOp op, uint64_t count, Visit visit) {
  const auto start = static_cast<uint64_t>(dtype) * 8 + static_cast<uint64_t>(op);
  for (uint64_t i = 0; i < count; ++i) {
    auto [from, to] = RandomCase(start * 100000 + i, dtype, op);
    if (NumElements(from.shape()) > 300) continue;
    if (op == ReduceOp::kAvg) {
      from = Mixed(from, i);
      to = Mixed(to, i);
    }
    visit(from, to);
    if (Oracle::Create(to, from).ok()) visit(to, from);
  }
}

class DTypeOpTest : public ::testing::TestWithParam<int> {};

TEST_P(DTypeOpTest, RightTargetsPassInAnyOrder) {
  const auto dtype = static_cast<DType>(GetParam());
  int64_t visited = 0;
  for (int op = 0; op < kNumReduceOps; ++op) {
    if (!CheckReduce(static_cast<ReduceOp>(op), dtype).ok()) continue;
    ForEachRandomPair(dtype, static_cast<ReduceOp>(op), 40 / TestFraction() + 1,
                      [&](const Sharding& from, const Sharding& to) {
                        const Oracle oracle = Oracle::Create(from, to).value();
                        for (const Values values : kAllValues) {
                          const Fill fill{.values = values, .seed = static_cast<uint64_t>(visited)};
                          const CheckResult made = Check(oracle, fill, TargetsOf(oracle, fill));
                          ASSERT_TRUE(made.ok()) << TextOf(from, to) << ": " << made.ToString();
                          const Buffers in = SourcesOf(oracle, fill);
                          const Buffers out = RunNaively(from, to, in, {.seed = fill.seed});
                          const CheckResult run = Check(oracle, fill, out);
                          ASSERT_TRUE(run.ok())
                              << TextOf(from, to) << " values " << static_cast<int>(values) << ": "
                              << run.ToString();
                        }
                        ++visited;
                      });
  }
  EXPECT_GE(visited, 2);
}

TEST(SmallWorldTest, RightTargetsPass) {
  int64_t seed = 0;
  const SmallWorldOptions options{.fraction = 20 * TestFraction()};
  ForEachSmallWorldCase(options, [&](const Sharding& from, const Sharding& to) {
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.values = kAllValues[seed % 2], .seed = static_cast<uint64_t>(++seed)};
    const CheckResult made = Check(oracle, fill, TargetsOf(oracle, fill));
    ASSERT_TRUE(made.ok()) << TextOf(from, to) << ": " << made.ToString();
    const Buffers out = RunNaively(from, to, SourcesOf(oracle, fill), {.seed = fill.seed});
    const CheckResult run = Check(oracle, fill, out);
    ASSERT_TRUE(run.ok()) << TextOf(from, to) << ": " << run.ToString();
  });
}

TEST_P(DTypeOpTest, FlippedBitsAreFound) {
  const auto dtype = static_cast<DType>(GetParam());
  Random random(5);
  for (int op = 0; op < kNumReduceOps; ++op) {
    if (!CheckReduce(static_cast<ReduceOp>(op), dtype).ok()) continue;
    // For these the signs of zeros do not matter.
    const bool lenient = IsComplex(dtype) && static_cast<ReduceOp>(op) == ReduceOp::kProduct;
    ForEachRandomPair(dtype, static_cast<ReduceOp>(op), 40 / TestFraction() + 1,
                      [&](const Sharding& from, const Sharding& to) {
                        if (to.HasPartial() || lenient) return;
                        const Oracle oracle = Oracle::Create(from, to).value();
                        const Fill fill{.values = Values::kExact, .seed = random.Next()};
                        Buffers targets = TargetsOf(oracle, fill);
                        std::vector<std::byte>& target = targets[random.Below(std::ssize(targets))];
                        if (target.empty()) return;
                        target[random.Below(std::ssize(target))] ^=
                            static_cast<std::byte>(1 << random.Below(8));
                        const CheckResult result = Check(oracle, fill, targets);
                        ASSERT_EQ(result.wrong, 1) << TextOf(from, to);
                        const int64_t replicas = [&] {
                          int64_t count = 1;
                          for (int d = 0; d < to.mesh().NumDims(); ++d) {
                            if (to.placement(d).IsReplicate()) count *= to.mesh().dim(d).size;
                          }
                          return count;
                        }();
                        ASSERT_EQ(result.replicas_differ, replicas > 1 ? 1 : 0) << TextOf(from, to);
                      });
  }
}

std::string DTypeName(const ::testing::TestParamInfo<int>& info) {
  return std::string(Name(static_cast<DType>(info.param)));
}
// All except f4e2m1, which has no arithmetic.
INSTANTIATE_TEST_SUITE_P(AllDTypes, DTypeOpTest,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16,
                                           17),
                         DTypeName);

Sharding Of(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

// A lost contribution is found in exactly those elements that it contributes to.
TEST(LostContributionTest, IsFoundWhereItIsNotZero) {
  for (const char* tensor :
       {"f8e4m3[400]", "f8e5m2[400]", "bf16[400]", "f32[400]", "i8[400]", "u16[400]", "c64[400]"}) {
    for (const char* placements : {"P,P,R", "P(avg),P(avg),R", "P,P(avg),R"}) {
      const Sharding from = Of(tensor, "a=8,b=5,c=2", placements);
      const Sharding to = from.WithPlacements("S(0),S(0),R").value();
      const Oracle oracle = Oracle::Create(from, to).value();
      const Fill fill{.values = Values::kExact, .seed = 11};
      const Buffers in = SourcesOf(oracle, fill);
      const size_t width = in[0].size() / 400;
      for (int64_t lost = 0; lost < 40; ++lost) {
        int64_t nonzero = 0;
        const std::vector<std::byte>& part = in[2 * lost];
        for (size_t i = 0; i < part.size(); i += width) {
          nonzero += std::any_of(part.begin() + static_cast<int64_t>(i),
                                 part.begin() + static_cast<int64_t>(i + width),
                                 [](std::byte b) { return b != std::byte{0}; })
                         ? 1
                         : 0;
        }
        const CheckResult result =
            Check(oracle, fill, RunNaively(from, to, in, {.seed = 1, .lost = lost}));
        ASSERT_EQ(result.wrong, nonzero * 2) << tensor << " " << placements << " without " << lost;
        ASSERT_GT(nonzero, 0) << tensor << " " << placements << " without " << lost;
        ASSERT_EQ(result.replicas_differ, 0);
      }
    }
  }
}

TEST(LostContributionTest, IsFoundByEveryOp) {
  struct Case {
    const char* tensor;
    const char* placement;
  };
  for (const Case& c :
       {Case{"f8e4m3[500]", "P(product)"}, Case{"i32[500]", "P(product)"},
        Case{"c64[500]", "P(product)"}, Case{"f32[500]", "P(min)"}, Case{"i16[500]", "P(max)"},
        Case{"u8[500]", "P(and)"}, Case{"bool[500]", "P(or)"}, Case{"bool[500]", "P(min)"},
        Case{"i64[500]", "P(xor)"}, Case{"f64[500]", "P(avg)"}}) {
    const Sharding from = Of(c.tensor, "a=6", c.placement);
    const Sharding to = from.WithPlacements("S(0)").value();
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.values = Values::kExact, .seed = 3};
    const Buffers in = SourcesOf(oracle, fill);
    for (int64_t lost = 0; lost < 6; ++lost) {
      const CheckResult result =
          Check(oracle, fill, RunNaively(from, to, in, {.seed = 1, .lost = lost}));
      EXPECT_GT(result.wrong, 4) << c.tensor << " " << c.placement;
    }
  }
}

TEST(LostContributionTest, IsFoundWherePartialsAreKept) {
  const Sharding from = Of("bf16[16,4]", "a=4,b=3", "P,P");
  for (const char* placements : {"P,R", "P,S(0)", "S(1),P", "P,P"}) {
    const Sharding to = from.WithPlacements(placements).value();
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.seed = 4};
    const Buffers in = SourcesOf(oracle, fill);
    for (int64_t lost = 0; lost < 12; ++lost) {
      EXPECT_GT(Check(oracle, fill, RunNaively(from, to, in, {.seed = 1, .lost = lost})).wrong, 10);
    }
  }
}

TEST(SwappedShardsTest, AreFound) {
  int64_t swaps = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto [from, to] = RandomCase(seed, DType::kI32);
    if (to.HasPartial()) continue;
    const Oracle oracle = Oracle::Create(from, to).value();
    const Fill fill{.values = Values::kRounding, .seed = seed};
    Buffers targets = TargetsOf(oracle, fill);
    Random random(seed);
    auto& one = targets[random.Below(std::ssize(targets))];
    auto& two = targets[random.Below(std::ssize(targets))];
    if (one == two || one.size() != two.size()) continue;
    int64_t differ = 0;
    for (size_t i = 0; i < one.size(); i += 4) {
      differ += std::memcmp(one.data() + i, two.data() + i, 4) != 0 ? 1 : 0;
    }
    std::swap(one, two);
    EXPECT_EQ(Check(oracle, fill, targets).wrong, 2 * differ) << TextOf(from, to);
    ++swaps;
  }
  EXPECT_GT(swaps, 20);
}

// The wrong order of cuts: every rank has a piece of the right size, but another rank's.
TEST(SwappedShardsTest, AnotherOrderOfCutsIsFound) {
  const Sharding from = Of("u8[24]", "a=2,b=3", "R,R");
  const Sharding right = from.WithPlacements("S(0),S(0)").value();
  const Sharding other = from.WithPlacements("S(0)[1],S(0)[0]").value();
  const Oracle oracle = Oracle::Create(from, right).value();
  const Fill fill{.seed = 1};
  const Buffers out = RunNaively(from, other, SourcesOf(oracle, fill), {});
  EXPECT_GE(Check(oracle, fill, out).wrong, 15);
}

TEST(ReplicasTest, OneUlpIsADifferenceAndNotWrong) {
  const Sharding from = Of("f32[64]", "a=16,b=2", "P,R");
  const Sharding to = from.WithPlacements("R,S(0)").value();
  const Oracle oracle = Oracle::Create(from, to).value();
  const Fill fill{.values = Values::kRounding, .seed = 9};
  Buffers targets = TargetsOf(oracle, fill);
  targets[6][20] ^= std::byte{1};   // element 5, at a=3, b=0
  targets[10][20] ^= std::byte{1};  // the same element at a=5
  targets[7][24] ^= std::byte{1};   // element 38, at a=3, b=1
  const CheckResult result = Check(oracle, fill, targets);
  EXPECT_EQ(result.wrong, 0) << result.ToString();
  EXPECT_EQ(result.replicas_differ, 2);
}

// Replicas of a partial target are the ranks with the same partial coordinate.
TEST(ReplicasTest, OfPartialTargetsAreComparedPerCoordinate) {
  const Sharding from = Of("f32[8]", "a=3,b=4", "P,R");
  const Oracle oracle = Oracle::Create(from, from).value();
  const Fill fill{.values = Values::kRounding, .seed = 9};
  Buffers targets = TargetsOf(oracle, fill);
  EXPECT_TRUE(Check(oracle, fill, targets).ok());
  targets[2][4] ^= std::byte{1};
  targets[7][4] ^= std::byte{1};
  const CheckResult result = Check(oracle, fill, targets);
  EXPECT_EQ(result.wrong, 0);
  EXPECT_EQ(result.replicas_differ, 2);
}

}  // namespace
}  // namespace meshift::testkit
