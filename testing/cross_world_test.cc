#include "testing/cross_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "placement/op_table.h"

namespace meshift::testkit {
namespace {

std::string TextOf(const Sharding& from, const Sharding& to) {
  return from.ToString() + " -> " + to.ToString();
}

std::set<int64_t> RanksOf(const Sharding& sharding) {
  const std::vector<int64_t> ranks = sharding.mesh().Ranks();
  return {ranks.begin(), ranks.end()};
}

// The relation of the two meshes' ranks: "the same", "nested", ...
std::string RelationOf(const Sharding& from, const Sharding& to) {
  const std::set<int64_t> a = RanksOf(from);
  const std::set<int64_t> b = RanksOf(to);
  if (a == b) {
    return from.mesh().Ranks() == to.mesh().Ranks() ? "the same" : "permuted";
  }
  if (std::includes(a.begin(), a.end(), b.begin(), b.end())) return "target inside";
  if (std::includes(b.begin(), b.end(), a.begin(), a.end())) return "source inside";
  const bool disjoint = std::none_of(a.begin(), a.end(), [&](int64_t r) { return b.contains(r); });
  return disjoint ? "disjoint" : "overlapping";
}

TEST(CrossWorldTest, MeetsEveryRelationOfTheMeshes) {
  std::map<std::string, int64_t> relations;
  int64_t partial_sources = 0;
  int64_t partial_targets = 0;
  int64_t other_ops = 0;
  const int64_t visited = ForEachCrossCase({}, [&](const Sharding& from, const Sharding& to) {
    ++relations[RelationOf(from, to)];
    if (from.HasPartial()) ++partial_sources;
    if (to.HasPartial()) ++partial_targets;
    for (const Placement& placement : from.placements()) {
      if (placement.IsPartial() && placement.op() != ReduceOp::kSum) {
        ++other_ops;
        break;
      }
    }
    ASSERT_FALSE(from.mesh() == to.mesh());
    ASSERT_EQ(from.shape(), to.shape());
    ASSERT_LE(to.mesh().NumRanks(), 6);
  });
  EXPECT_EQ(visited, 144936);
  for (const char* relation :
       {"the same", "permuted", "target inside", "source inside", "disjoint", "overlapping"}) {
    EXPECT_GT(relations[relation], 1000) << relation;
  }
  EXPECT_EQ(relations.size(), 6);
  EXPECT_GT(partial_sources, visited / 4);
  EXPECT_GT(partial_targets, visited / 32);
  EXPECT_GT(other_ops, visited / 256);
}

TEST(CrossWorldTest, CasesAreDistinct) {
  std::set<std::string> texts;
  const int64_t visited = ForEachCrossCase(
      {.fraction = 5},
      [&](const Sharding& from, const Sharding& to) { texts.insert(TextOf(from, to)); });
  // A case with a partial target may occur twice.
  EXPECT_GT(static_cast<int64_t>(texts.size()), visited * 98 / 100);
}

TEST(CrossWorldTest, ShardsAreAPartition) {
  int64_t visited = 0;
  for (int64_t shard = 0; shard < 3; ++shard) {
    visited += ForEachCrossCase({.shard = shard, .num_shards = 3},
                                [](const Sharding& /*from*/, const Sharding& /*to*/) {});
  }
  EXPECT_EQ(visited, ForEachCrossCase({}, [](const Sharding&, const Sharding&) {}));
}

TEST(CrossWorldTest, TheSampleHasAllDTypesAndIsTheSameEachTime) {
  const auto any = [](DType, ReduceOp) { return true; };
  std::map<DType, int64_t> dtypes;
  std::map<DType, int64_t> partial;
  std::set<ReduceOp> ops;
  int64_t casts = 0;
  std::vector<std::string> texts;
  ForEachCrossSample({}, any, [&](const Sharding& from, const Sharding& to) {
    ++dtypes[from.dtype()];
    if (from.HasPartial()) ++partial[from.dtype()];
    for (const Placement& placement : from.placements()) {
      if (placement.IsPartial()) ops.insert(placement.op());
    }
    if (from.dtype() != to.dtype()) ++casts;
    for (const Sharding* sharding : {&from, &to}) {
      for (const int64_t rank : sharding->mesh().Ranks()) ASSERT_LE(rank, 11);
    }
    texts.push_back(TextOf(from, to));
  });
  EXPECT_EQ(texts.size(), 2000);
  EXPECT_EQ(dtypes.size(), kNumDTypes);
  for (const auto& [dtype, count] : dtypes) {
    EXPECT_GT(count, 100) << Name(dtype);
    EXPECT_EQ(partial[dtype] > 10, dtype != DType::kF4E2M1) << Name(dtype);
  }
  EXPECT_EQ(ops.size(), kNumReduceOps);
  EXPECT_GT(casts, 50);

  // Skips the cases that an engine cannot reduce, and changes no others.
  size_t next = 0;
  int64_t same = 0;
  ForEachCrossSample(
      {}, [](DType dtype, ReduceOp op) { return dtype == DType::kF32 && op == ReduceOp::kSum; },
      [&](const Sharding& from, const Sharding& to) {
        const bool equal = TextOf(from, to) == texts[next++];
        if (equal) ++same;
        const bool reduces = from.HasPartial() || to.HasPartial();
        ASSERT_TRUE(!reduces || from.dtype() == DType::kF32) << TextOf(from, to);
      });
  EXPECT_EQ(next, 2000);
  EXPECT_GT(same, 1000);
}

TEST(CrossWorldTest, RandomCasesAreOfAllKinds) {
  std::map<std::string, int64_t> relations;
  int64_t partial_targets = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomPair pair = RandomCrossCase(seed);
    const RandomPair again = RandomCrossCase(seed);
    ASSERT_EQ(TextOf(pair.from, pair.to), TextOf(again.from, again.to));
    ++relations[RelationOf(pair.from, pair.to)];
    if (pair.to.HasPartial()) ++partial_targets;
  }
  EXPECT_EQ(relations.size(), 6);
  EXPECT_GT(partial_targets, 100);
}

}  // namespace
}  // namespace meshift::testkit
