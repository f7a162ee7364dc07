#include "testing/geometry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

using Interval = std::pair<int64_t, int64_t>;

Sharding Of(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

// The rows of tensor dim 0 at each position.
std::vector<Interval> RowsOf(const Sharding& sharding) {
  std::vector<Interval> rows;
  for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
    const Region region = RegionAt(sharding, sharding.mesh().CoordinateAt(p));
    rows.emplace_back(region.lo[0], region.hi[0]);
  }
  return rows;
}

using Rows = std::vector<Interval>;

TEST(RegionTest, IsTorchChunk) {
  EXPECT_EQ(RowsOf(Of("f32[10]", "a=4", "S(0)")), (Rows{{0, 3}, {3, 6}, {6, 9}, {9, 10}}));
  EXPECT_EQ(RowsOf(Of("f32[5]", "a=4", "S(0)")), (Rows{{0, 2}, {2, 4}, {4, 5}, {5, 5}}));
  EXPECT_EQ(RowsOf(Of("f32[2]", "a=3", "S(0)")), (Rows{{0, 1}, {1, 2}, {2, 2}}));
  EXPECT_EQ(RowsOf(Of("f32[0]", "a=2", "S(0)")), (Rows{{0, 0}, {0, 0}}));
}

TEST(RegionTest, NestedCutsCutThePiece) {
  EXPECT_EQ(RowsOf(Of("f32[10]", "a=2,b=2", "S(0),S(0)")), (Rows{{0, 3}, {3, 5}, {5, 8}, {8, 10}}));
  EXPECT_EQ(RowsOf(Of("f32[10]", "a=2,b=2", "S(0)[1],S(0)[0]")),
            (Rows{{0, 3}, {5, 8}, {3, 5}, {8, 10}}));
  // Not one cut into 6, but chunks of 3 and 2, each cut in three.
  EXPECT_EQ(RowsOf(Of("f32[5]", "a=2,b=3", "S(0),S(0)")),
            (Rows{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 5}}));
  EXPECT_EQ(RowsOf(Of("f32[5]", "a=2,b=3", "S(0)[1],S(0)[0]")),
            (Rows{{0, 1}, {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 5}}));
}

TEST(RegionTest, RaggedCuts) {
  EXPECT_EQ(RowsOf(Of("f32[8]", "a=3", "S(0){3,0,5}")), (Rows{{0, 3}, {3, 3}, {3, 8}}));
  EXPECT_EQ(RowsOf(Of("f32[8]", "a=2,b=2", "S(0){3,5},S(0)")),
            (Rows{{0, 2}, {2, 3}, {3, 6}, {6, 8}}));
}

// Two ways to compute the same boxes; the offset of an empty box does not matter.
TEST(RegionTest, AgreesWithShardingOnRandomCases) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Sharding sharding = RandomCase(seed).to;
    const DeviceMesh& mesh = sharding.mesh();
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      const Region region = RegionAt(sharding, mesh.CoordinateAt(p));
      const Box box = sharding.LocalBox(mesh.RankAt(p));
      ASSERT_EQ(region.NumElements(), box.NumElements()) << sharding.ToString();
      for (size_t d = 0; !box.IsEmpty() && d < region.lo.size(); ++d) {
        ASSERT_EQ(region.lo[d], box.offset[d]) << sharding.ToString();
        ASSERT_EQ(region.hi[d] - region.lo[d], box.size[d]) << sharding.ToString();
      }
    }
  }
}

TEST(PositionsTest, AreSortedByPlacement) {
  const Positions positions = PositionsOf(Of("f32[8,8]", "a=2,b=3,c=2,d=2", "S(0),P,R,S(1)"));
  EXPECT_EQ(positions.shards, (std::vector<int64_t>{0, 1, 12, 13}));
  EXPECT_EQ(positions.partials, (std::vector<int64_t>{0, 4, 8}));
  EXPECT_EQ(positions.replicas, (std::vector<int64_t>{0, 2}));
}

using Triple = std::vector<int64_t>;

std::vector<Triple> RunsOf(const Shape& shape, const Region& region) {
  std::vector<Triple> runs;
  ForEachRun(shape, region, [&](int64_t global, int64_t local, int64_t length) {
    runs.push_back({global, local, length});
  });
  return runs;
}

TEST(ForEachRunTest, JoinsWholeInnerDims) {
  EXPECT_EQ(RunsOf({4, 6}, {{1, 0}, {3, 6}}), (std::vector<Triple>{{6, 0, 12}}));
  EXPECT_EQ(RunsOf({4, 6}, {{1, 2}, {3, 5}}), (std::vector<Triple>{{8, 0, 3}, {14, 3, 3}}));
  EXPECT_EQ(RunsOf({2, 3, 4}, {{0, 1, 0}, {2, 3, 4}}),
            (std::vector<Triple>{{4, 0, 8}, {16, 8, 8}}));
  EXPECT_EQ(RunsOf({2, 2, 4}, {{0, 0, 1}, {2, 2, 3}}),
            (std::vector<Triple>{{1, 0, 2}, {5, 2, 2}, {9, 4, 2}, {13, 6, 2}}));
  EXPECT_EQ(RunsOf({}, {}), (std::vector<Triple>{{0, 0, 1}}));
  EXPECT_EQ(RunsOf({4, 6}, {{2, 0}, {2, 6}}), (std::vector<Triple>{}));
}

}  // namespace
}  // namespace meshift::testkit
