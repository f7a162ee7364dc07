// A fixed tenth of the small world (testing/small_world.h), and random cases of a larger one, with
// many memory layouts: strided tensors, source and target in one buffer, consumed sources; also
// with tensors of f4e2m1.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/planner.h"
#include "placement/cast.h"
#include "testing/owner_world.h"
#include "testing/small_world.h"
#include "tests/layout_runner.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard
constexpr int kOneIn = 10;
constexpr std::array<const char*, kNumMemories> kNames = {"strided", "one buffer",
                                                          "strided one buffer", "consumed source"};

struct Tally {
  int64_t cases = 0;
  int64_t refused = 0;
  int64_t wrong = 0;
  int64_t spoiled = 0;
  int64_t miscounted = 0;
  int64_t more_workspace = 0;  // runs that needed more or less than planned
  int64_t less_workspace = 0;

  std::string ToString() const {
    return fmt::format(
        "{} cases: {} refused, {} wrong, {} that wrote where they must not, {} with other bytes "
        "than "
        "planned; {} runs with more workspace than the plan's, {} with less",
        cases, refused, wrong, spoiled, miscounted, more_workspace, less_workspace);
  }
};

// Runners by mesh, made on demand.
class Runners {
 public:
  LayoutRunner& For(const DeviceMesh& mesh) {
    std::unique_ptr<LayoutRunner>& runner = runners_[mesh.ToString()];
    if (runner == nullptr) runner = std::make_unique<LayoutRunner>(mesh);
    return *runner;
  }

 private:
  std::map<std::string, std::unique_ptr<LayoutRunner>> runners_;
};

// One case with every layout; reports the first few failures of a kind.
void Judge(const Sharding& from, const Sharding& to, LayoutRunner& runner, Tally* tally,
           std::optional<DType> reduce_dtype = std::nullopt) {
  const int64_t number = tally->cases++;
  const auto promise = number % 2 == 0 ? Reproducibility::kReplicas : Reproducibility::kOrdered;
  const absl::StatusOr<Plan> plan =
      MakePlan(from, to, {.reproducibility = promise, .reduce_dtype = reduce_dtype});
  for (int m = 0; m < kNumMemories; ++m) {
    const auto fail = [&](int64_t* count, const std::string& why) {
      if (++*count > 3) return;
      ADD_FAILURE() << from.ToString() << " -> " << to.ToString() << ", " << kNames[m] << ": "
                    << why;
    };
    if (!plan.ok()) return fail(&tally->refused, plan.status().ToString());
    const absl::StatusOr<LayoutOutcome> outcome =
        runner.Run(*plan, static_cast<Memory>(m), static_cast<uint64_t>(number * kNumMemories + m));
    if (!outcome.ok()) {
      fail(&tally->refused, outcome.status().ToString());
      continue;
    }
    if (outcome->wrong > 0) fail(&tally->wrong, outcome->message);
    if (outcome->spoiled > 0) fail(&tally->spoiled, outcome->message);
    if (outcome->bytes_differ > 0) fail(&tally->miscounted, outcome->message);
    const int64_t planned = plan->total().workspace_bytes;
    if (m == static_cast<int>(Memory::kConsumedSource)) {
      EXPECT_LE(outcome->workspace_bytes, planned);
    }
    tally->more_workspace += outcome->workspace_bytes > planned ? 1 : 0;
    tally->less_workspace += outcome->workspace_bytes < planned ? 1 : 0;
  }
}

class StridedTest : public testing::TestWithParam<int> {};

TEST_P(StridedTest, SmallWorld) {
  Runners runners;
  Tally tally;
  testkit::ForEachSmallWorldCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = kOneIn * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        Judge(from, to, runners.For(from.mesh()), &tally);
      });
  EXPECT_GT(tally.more_workspace, 0);
  EXPECT_GT(tally.less_workspace, 0);
  fmt::print("shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

// A value that stays partial can only be cast exactly; other casts are refused.
bool StaysPartial(const Sharding& from, const Sharding& to) {
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (from.placement(d).IsPartial() && to.placement(d).IsPartial()) return true;
  }
  return false;
}

TEST_P(StridedTest, SmallWorldWithCasts) {
  Runners runners;
  Tally tally;
  int64_t left_out = 0;
  testkit::ForEachCastCase(
      {.shard = GetParam(), .num_shards = kNumShards, .fraction = kOneIn * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce_dtype) {
        const DType reduced = reduce_dtype.value_or(DefaultReduceDType(from.dtype(), to.dtype()));
        const bool exact = IsExactCast(from.dtype(), to.dtype()) &&
                           IsExactCast(from.dtype(), reduced) && IsExactCast(reduced, to.dtype());
        if (StaysPartial(from, to) && !exact) {
          ++left_out;
          return;
        }
        Judge(from, to, runners.For(from.mesh()), &tally, reduce_dtype);
      });
  EXPECT_GT(tally.cases, left_out);
  fmt::print("casts, shard {} of {}: {}; {} left out, which stay partial\n", GetParam(), kNumShards,
             tally.ToString(), left_out);
}

// As tensors of f4e2m1, if no cut is inside a byte.
TEST_P(StridedTest, SmallWorldTwoToAByte) {
  Runners runners;
  Tally tally;
  const auto packed = [](const Sharding& sharding) {
    TensorType tensor{DType::kF4E2M1, sharding.shape()};
    tensor.shape.back() *= 2;
    std::vector<Cuts> cuts;
    for (size_t t = 0; t < tensor.shape.size(); ++t) {
      const auto of = sharding.CutsOf(static_cast<int>(t));
      cuts.emplace_back(of.begin(), of.end());
    }
    return Sharding::Create(sharding.mesh(), std::move(tensor),
                            {sharding.placements().begin(), sharding.placements().end()},
                            std::move(cuts));
  };
  testkit::ForEachSmallWorldCase({.shard = GetParam(),
                                  .num_shards = kNumShards,
                                  .fraction = 2 * kOneIn * testkit::TestFraction()},
                                 [&](const Sharding& from, const Sharding& to) {
                                   if (from.HasPartial() || to.HasPartial()) return;
                                   const auto source = packed(from);
                                   const auto target = packed(to);
                                   if (!source.ok() || !target.ok()) return;
                                   Judge(*source, *target, runners.For(from.mesh()), &tally);
                                 });
  EXPECT_GT(tally.cases, 0);
  fmt::print("f4e2m1, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

// Dims of size 1, up to 4 mesh dims and 48 ranks in any order, tensors up to rank 5.
TEST_P(StridedTest, RandomWorld) {
  constexpr uint64_t kCases = 2000;
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    // One in four from or to a part of the mesh.
    const testkit::RandomPair pair =
        seed % 4 == 3 ? testkit::RandomOwnerCase(seed) : testkit::RandomCase(seed);
    LayoutRunner runner(pair.from.mesh());
    Judge(pair.from, pair.to, runner, &tally);
  }
  fmt::print("random, shard {} of {}: {}\n", GetParam(), kNumShards, tally.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shards, StridedTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
