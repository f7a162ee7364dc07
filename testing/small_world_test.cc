#include "testing/small_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "placement/op_table.h"

namespace meshift::testkit {
namespace {

std::string TextOf(const Sharding& from, const Sharding& to) {
  return from.ToString() + " -> " + to.PlacementsText();
}

TEST(SmallWorldTest, Has235853Cases) {
  std::map<size_t, int64_t> by_rank;
  const int64_t visited = ForEachSmallWorldCase(
      {}, [&](const Sharding& from, const Sharding& /*to*/) { ++by_rank[from.shape().size()]; });
  EXPECT_EQ(visited, 235853);
  EXPECT_EQ(by_rank, (std::map<size_t, int64_t>{{1, 9128}, {2, 63450}, {3, 163275}}));
}

TEST(SmallWorldTest, Has93ScalarCases) {
  int64_t count = 0;
  EXPECT_EQ(
      ForEachScalarCase({}, [&](const Sharding& /*from*/, const Sharding& /*to*/) { ++count; }),
      93);
  EXPECT_EQ(count, 93);
}

TEST(SmallWorldTest, CasesAreDistinct) {
  std::set<std::string> texts;
  const auto add = [&](const Sharding& from, const Sharding& to) {
    texts.insert(TextOf(from, to));
  };
  int64_t visited = ForEachScalarCase({}, add);
  visited += ForEachSmallWorldCase({.fraction = 5}, add);
  EXPECT_EQ(static_cast<int64_t>(texts.size()), visited);
}

TEST(SmallWorldTest, TargetsAreNewlyPartialNowhere) {
  ForEachSmallWorldCase({.fraction = 7}, [](const Sharding& from, const Sharding& to) {
    for (int d = 0; d < from.mesh().NumDims(); ++d) {
      if (to.placement(d).IsPartial()) {
        ASSERT_TRUE(from.placement(d).IsPartial());
      }
    }
  });
}

TEST(SmallWorldTest, ShardsAndFractionsPartTheWorld) {
  std::vector<std::string> all;
  ForEachScalarCase(
      {}, [&](const Sharding& from, const Sharding& to) { all.push_back(TextOf(from, to)); });
  for (int64_t shard = 0; shard < 4; ++shard) {
    std::vector<std::string> want;
    for (size_t i = 0; i < all.size(); ++i) {
      if (static_cast<int64_t>(i) % 4 == shard && i / 4 % 3 == 0) want.push_back(all[i]);
    }
    std::vector<std::string> got;
    const int64_t visited = ForEachScalarCase(
        {.shard = shard, .num_shards = 4, .fraction = 3},
        [&](const Sharding& from, const Sharding& to) { got.push_back(TextOf(from, to)); });
    EXPECT_EQ(got, want);
    EXPECT_EQ(visited, static_cast<int64_t>(want.size()));
  }
}

TEST(SmallWorldTest, TakesDtypeAndOp) {
  ForEachScalarCase({.dtype = DType::kI8, .op = ReduceOp::kMax},
                    [](const Sharding& from, const Sharding& /*to*/) {
                      ASSERT_EQ(from.dtype(), DType::kI8);
                      for (const Placement& placement : from.placements()) {
                        if (placement.IsPartial()) {
                          ASSERT_EQ(placement.op(), ReduceOp::kMax);
                        }
                      }
                    });
}

TEST(SmallWorldTest, EveryDTypeMeetsEveryMesh) {
  std::map<DType, int64_t> by_dtype;
  std::set<std::pair<DType, std::string>> meshes;
  std::set<std::pair<DType, ReduceOp>> ops;
  int64_t sums = 0, partials = 0;
  const int64_t visited = ForEachDTypeCase({}, [&](const Sharding& from, const Sharding& to) {
    ASSERT_EQ(from.tensor(), to.tensor());
    ++by_dtype[from.dtype()];
    meshes.insert({from.dtype(), from.mesh().ToString()});
    for (const Placement& placement : from.placements()) {
      if (!placement.IsPartial()) continue;
      ops.insert({from.dtype(), placement.op()});
      sums += placement.op() == ReduceOp::kSum ? 1 : 0;
      ++partials;
    }
  });
  EXPECT_EQ(visited, 405848);
  EXPECT_EQ(by_dtype.size(), static_cast<size_t>(kNumDTypes));
  for (const auto& [dtype, count] : by_dtype) {
    EXPECT_EQ(count, dtype == DType::kF4E2M1 ? 4036 : 23636) << Name(dtype);
  }
  EXPECT_EQ(meshes.size(), static_cast<size_t>(kNumDTypes) * 13);
  EXPECT_GT(sums * 10, partials * 6);
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      const auto dtype = static_cast<DType>(d);
      const auto reduce_op = static_cast<ReduceOp>(op);
      EXPECT_EQ(ops.count({dtype, reduce_op}) == 1, CheckReduce(reduce_op, dtype).ok());
    }
  }
}

TEST(SmallWorldTest, EveryCastMeetsEveryMesh) {
  using Kind = std::tuple<DType, DType, std::optional<DType>>;
  std::map<Kind, int64_t> by_kind;
  std::set<std::pair<Kind, std::string>> meshes;
  const int64_t visited = ForEachCastCase(
      {}, [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce) {
        ASSERT_NE(from.dtype(), to.dtype());
        ASSERT_EQ(from.shape(), to.shape());
        const Kind kind = {from.dtype(), to.dtype(), reduce};
        ++by_kind[kind];
        meshes.insert({kind, from.mesh().ToString()});
      });
  EXPECT_EQ(visited, 94236);
  EXPECT_EQ(by_kind.size(), 40u);
  for (const auto& [kind, count] : by_kind) EXPECT_GT(count, 2000);
  EXPECT_EQ(meshes.size(), 40u * 13);
}

TEST(SmallWorldTest, ShardsPartTheCastsToo) {
  int64_t visited = 0;
  for (int64_t shard = 0; shard < 3; ++shard) {
    visited += ForEachCastCase({.shard = shard, .num_shards = 3, .fraction = 50},
                               [](const Sharding&, const Sharding&, std::optional<DType>) {});
  }
  EXPECT_NEAR(static_cast<double>(visited), 94236.0 / 50, 3);
}

TEST(TestFractionTest, ReadsTheEnvironment) {
  const char* before = std::getenv("MESHIFT_TEST_FRACTION");
  const std::string kept = before == nullptr ? "" : before;
  setenv("MESHIFT_TEST_FRACTION", "20", 1);
  EXPECT_EQ(TestFraction(), 20);
  setenv("MESHIFT_TEST_FRACTION", "none", 1);
  EXPECT_EQ(TestFraction(), 1);
  unsetenv("MESHIFT_TEST_FRACTION");
  EXPECT_EQ(TestFraction(), 1);
  if (before != nullptr) setenv("MESHIFT_TEST_FRACTION", kept.c_str(), 1);
}

TEST(RandomCaseTest, DependsOnTheSeedOnly) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RandomPair one = RandomCase(seed);
    const RandomPair two = RandomCase(seed);
    EXPECT_EQ(TextOf(one.from, one.to), TextOf(two.from, two.to));
  }
  EXPECT_NE(RandomCase(1).from.ToString(), RandomCase(2).from.ToString());
}

TEST(RandomCaseTest, MeetsEveryKindOfCase) {
  constexpr int kCases = 2000;
  int shuffled = 0, with_one = 0, partial = 0, kept = 0, empty = 0, reordered = 0;
  std::set<int> mesh_dims;
  std::set<size_t> tensor_ranks;
  int64_t most_ranks = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const auto [from, to] = RandomCase(seed);
    const DeviceMesh& mesh = from.mesh();
    mesh_dims.insert(mesh.NumDims());
    tensor_ranks.insert(from.shape().size());
    most_ranks = std::max(most_ranks, mesh.NumRanks());
    shuffled += mesh.IsRowMajor() ? 0 : 1;
    partial += from.HasPartial() ? 1 : 0;
    kept += to.HasPartial() ? 1 : 0;
    empty += NumElements(from.shape()) == 0 ? 1 : 0;
    with_one += std::any_of(mesh.dims().begin(), mesh.dims().end(),
                            [](const DeviceMesh::Dim& dim) { return dim.size == 1; })
                    ? 1
                    : 0;
    for (size_t d = 0; d < to.shape().size(); ++d) {
      const auto cuts = to.CutsOf(static_cast<int>(d));
      reordered += std::is_sorted(cuts.begin(), cuts.end()) ? 0 : 1;
    }
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (to.placement(d).IsPartial()) {
        ASSERT_TRUE(from.placement(d).IsPartial());
      }
    }
  }
  EXPECT_EQ(mesh_dims, (std::set<int>{1, 2, 3, 4}));
  EXPECT_EQ(tensor_ranks, (std::set<size_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(most_ranks, 48);
  EXPECT_GT(shuffled, kCases / 4);
  EXPECT_GT(with_one, kCases / 4);
  EXPECT_GT(partial, kCases / 4);
  EXPECT_GT(kept, kCases / 20);
  EXPECT_GT(empty, kCases / 20);
  EXPECT_GT(reordered, kCases / 20);
}

}  // namespace
}  // namespace meshift::testkit
