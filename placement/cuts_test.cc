#include "placement/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "meshift/sharding.h"
#include "testing/random.h"

namespace meshift {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testkit::Random;

TEST(CutsTest, ChunksAreThoseOfTorch) {
  const auto lengths = [](int64_t extent, int64_t n) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < n; ++i) lengths.push_back(Chunk({0, extent}, n, i).Length());
    return lengths;
  };
  EXPECT_THAT(lengths(10, 4), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(lengths(5, 4), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(lengths(9, 4), ElementsAre(3, 3, 3, 0));
  EXPECT_THAT(lengths(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(lengths(0, 2), ElementsAre(0, 0));
}

TEST(CutsTest, ChunksLieOneBehindTheOtherAndCoverTheWhole) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const int64_t begin = random.Below(50);
    const Interval whole{begin, begin + random.Below(60)};
    const int64_t n = 1 + random.Below(20);
    const int64_t chunk = (whole.Length() + n - 1) / n;
    int64_t at = whole.begin;
    for (int64_t i = 0; i < n; ++i) {
      const Interval piece = Chunk(whole, n, i);
      EXPECT_EQ(piece.begin, at);
      EXPECT_EQ(piece.Length(), std::min(chunk, whole.end - at));
      at = piece.end;
    }
    EXPECT_EQ(at, whole.end);
    const Chunks chunks(whole.Length(), n);
    EXPECT_EQ(chunks.chunk * chunks.full + chunks.rest, whole.Length());
    EXPECT_LE(chunks.NotEmpty(), n);
  }
}

TEST(CutsTest, ChunksOfTheLongestDimsDoNotOverflow) {
  constexpr int64_t kHuge = INT64_MAX;
  constexpr int64_t kRanks = int64_t{1} << 31;
  EXPECT_EQ(Chunk({0, kHuge}, kRanks, kRanks - 1).end, kHuge);
  EXPECT_EQ(Chunk({0, kHuge}, 3, 2), (Interval{kHuge / 3 * 2 + 2, kHuge}));
  EXPECT_EQ(Chunk({0, kRanks + 1}, kRanks, kRanks - 1).Length(), 0);
}

TEST(CutsTest, CommonPartOfIntervals) {
  EXPECT_EQ(Intersect({0, 5}, {3, 9}), (Interval{3, 5}));
  EXPECT_EQ(CommonIndices({0, 5}, {3, 9}), 2);
  EXPECT_EQ(Intersect({0, 3}, {5, 9}).Length(), 0);
  EXPECT_EQ(CommonIndices({0, 3}, {5, 9}), 0);
  EXPECT_TRUE((Interval{2, 6}.Contains({3, 6})));
  EXPECT_FALSE((Interval{2, 6}.Contains({3, 7})));
  EXPECT_TRUE((Interval{2, 6}.Contains({9, 9})));
}

// All pieces, one cut after another, ordered by the coordinates of all cuts.
std::vector<Interval> PiecesOneByOne(const Interval& whole, absl::Span<const Cut> cuts) {
  if (cuts.empty()) return {whole};
  std::vector<Interval> pieces;
  for (int64_t i = 0; i < cuts[0].size; ++i) {
    const int64_t chunk = (whole.Length() + cuts[0].size - 1) / cuts[0].size;
    Interval piece{std::min(whole.begin + chunk * i, whole.end),
                   std::min(whole.begin + chunk * (i + 1), whole.end)};
    if (!cuts[0].begins.empty()) piece = {cuts[0].begins[i], cuts[0].begins[i + 1]};
    for (const Interval& part : PiecesOneByOne(piece, cuts.subspan(1))) pieces.push_back(part);
  }
  return pieces;
}

TEST(CutsTest, PiecesAndLengthsOfNestsAreThoseOneByOne) {
  EXPECT_THAT(PieceLengths(10, Nest{{4}, {2}}), ElementsAre(2, 1, 0));
  Random random(2);
  for (int round = 0; round < 5000 && !HasFailure(); ++round) {
    int64_t extent = random.Below(random.OneIn(2) ? 12 : 300);
    Nest cuts(random.Below(4));
    for (Cut& cut : cuts) cut.size = 1 + random.Below(6);
    std::vector<int64_t> lengths;
    std::vector<int64_t> begins;
    if (!cuts.empty() && random.OneIn(2)) {
      for (int64_t i = 0; i < cuts[0].size; ++i) lengths.push_back(random.Below(20));
      begins = BeginsOf(lengths);
      cuts[0].begins = begins;
      extent = begins.back();
    }
    const std::vector<Interval> expected = PiecesOneByOne({0, extent}, cuts);
    const PieceList pieces = AllPieces(extent, cuts);
    EXPECT_TRUE(std::equal(pieces.begin(), pieces.end(), expected.begin(), expected.end()));
    EXPECT_EQ(NumPieces(cuts), static_cast<int64_t>(expected.size()));
    std::set<int64_t, std::greater<>> distinct;
    for (const Interval& piece : expected) distinct.insert(piece.Length());
    const Lengths found = PieceLengths(extent, cuts);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), distinct.begin(), distinct.end()));
  }
}

Sharding Make(const char* tensor, const char* mesh, const char* placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

TEST(CutsTest, CutsOfAShardingLeaveItsBoxes) {
  for (const Sharding& sharding :
       {Make("f32[11,7]", "a=2,b=1,c=3,d=2", "S(0)[1],S(0)[2],S(0)[0],S(1)"),
        Make("f32[11,7]", "a=3,b=2,c=2", "S(0){2,0,9},S(0),R"), Make("f32[0,7]", "a=2", "S(0)")}) {
    SCOPED_TRACE(sharding.ToString());
    const DeviceMesh& mesh = sharding.mesh();
    for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
      const Coordinate at = mesh.CoordinateAt(position);
      const Box box = sharding.BoxAt(at);
      for (int k = 0; k < 2; ++k) {
        const Interval piece = CutsOf(sharding, k).Piece({0, sharding.shape()[k]}, at);
        EXPECT_EQ(piece, (Interval{box.offset[k], box.offset[k] + box.size[k]}));
      }
    }
  }
  const CutList cuts = CutsOf(Make("f32[11]", "a=2,b=1,c=3", "S(0)[1],S(0)[2],S(0)[0]"), 0);
  EXPECT_THAT(cuts.mesh_dims, ElementsAre(2, 0));
  EXPECT_THAT(cuts.sizes, ElementsAre(3, 2));
}

TEST(CutsTest, AStepKeepsTheCutsThatBothSidesBeginWith) {
  const StepCuts cuts = CutsOfStep(Make("f32[48]", "a=2,b=2,c=2", "S(0),S(0),S(0)"),
                                   Make("f32[48]", "a=2,b=2,c=2", "S(0),R,S(0)"), 0);
  EXPECT_THAT(cuts.common.mesh_dims, ElementsAre(0));
  EXPECT_THAT(cuts.before.mesh_dims, ElementsAre(1, 2));
  EXPECT_THAT(cuts.after.mesh_dims, ElementsAre(2));
}

TEST(CutsTest, RaggedCutsStayWhereTheirSizesAreAlike) {
  const Sharding before = Make("f32[10]", "a=2,b=2", "S(0){7,3},S(0)");
  const StepCuts alike = CutsOfStep(before, Make("f32[10]", "a=2,b=2", "S(0){7,3},R"), 0);
  EXPECT_THAT(alike.common.mesh_dims, ElementsAre(0));
  EXPECT_THAT(alike.common.begins, ElementsAre(0, 7, 10));
  EXPECT_THAT(alike.before.mesh_dims, ElementsAre(1));
  EXPECT_THAT(alike.before.begins, IsEmpty());
  const StepCuts unlike = CutsOfStep(before, Make("f32[10]", "a=2,b=2", "S(0){6,4},R"), 0);
  EXPECT_EQ(unlike.common.size(), 0);
  EXPECT_THAT(unlike.before.begins, ElementsAre(0, 7, 10));
  EXPECT_THAT(unlike.after.begins, ElementsAre(0, 6, 10));
}

// By place; then what cuts on one side alone, by size.
TEST(CutsTest, PermutesPairMeshDims) {
  const std::vector<int64_t> sizes = {3, 2, 2, 3};
  const auto size_of = [&](int d) { return sizes[d]; };
  const std::vector<MovedMeshDims> swapped = {{{0}, {3}}, {{3}, {0}}};
  EXPECT_THAT(PermutePairs(swapped, size_of), ElementsAre(Pair(0, 3), Pair(3, 0)));
  const std::vector<MovedMeshDims> moved = {{{0}, {3}}, {{1}, {2}}};
  EXPECT_THAT(PermutePairs(moved, size_of),
              ElementsAre(Pair(0, 3), Pair(1, 2), Pair(2, 1), Pair(3, 0)));
}

}  // namespace
}  // namespace meshift
