#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/union_mesh.h"
#include "testing/random.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

Sharding Parse(const std::string& text) { return *Sharding::Parse(text); }

std::string Relabelled(const std::string& from, const std::string& to) {
  const auto mesh = RelabelRanks({{Parse(from), Parse(to)}});
  return mesh.ok() ? mesh->ToString() : Message(mesh.status());
}

// The sharding with its mesh dims over `ranks`.
Sharding On(const Sharding& sharding, std::vector<int64_t> ranks) {
  const absl::Span<const DeviceMesh::Dim> dims = sharding.mesh().dims();
  return *sharding.OnMesh(*DeviceMesh::Create({dims.begin(), dims.end()}, std::move(ranks)));
}

// Bytes of the target's parts that their ranks do not hold.
int64_t Moved(const Sharding& from, const Sharding& to) {
  int64_t moved = 0;
  for (const int64_t rank : to.mesh().Ranks()) {
    const Box part = to.LocalBox(rank);
    moved += part.NumElements();
    if (from.mesh().PositionOf(rank)) {
      moved -= Intersect(part, from.LocalBox(rank)).NumElements();
    }
  }
  return Bytes(from.dtype(), moved);
}

TEST(RelabelRanks, RanksKeepWhatTheyHave) {
  EXPECT_EQ(Relabelled("f32[8] on a=2 as S(0)", "f32[8] on b=2@1,0 as S(0)"), "b=2");
  // The second half of the trainer's ranks serves, wherever the server's mesh has them.
  EXPECT_EQ(Relabelled("f32[8] on a=4 as S(0)", "f32[8] on b=2@3,2 as S(0)"), "b=2@3,2");
  EXPECT_EQ(Relabelled("f32[4,4] on a=2,b=2 as S(0),S(1)", "f32[4,4] on c=2,d=2 as S(1),S(0)"),
            "c=2,d=2@0,2,1,3");
}

// A rank that holds no part of a scalar has a box with one dim.
TEST(RelabelRanks, OwnersOfScalars) {
  EXPECT_EQ(Relabelled("f32[] on a=1 as R", "f32[] on b=2 as At(1)"), "b=2@1,0");
  EXPECT_EQ(Relabelled("f32[] on a=2 as At(0)", "f32[] on b=2@1,0 as At(0)"), "b=2");
}

TEST(RelabelRanks, EqualOrdersStay) {
  EXPECT_EQ(Relabelled("f32[8] on a=4 as R", "f32[8] on b=4@2,0,3,1 as S(0)"), "b=4@2,0,3,1");
  EXPECT_EQ(Relabelled("f32[8] on a=2 as S(0)", "f32[8] on b=2@7,5 as S(0)"), "b=2@7,5");
}

TEST(RelabelRanks, OneOrderServesAllTensors) {
  const Sharding small = Parse("f32[2] on a=2 as S(0)");
  const Sharding small_to = Parse("f32[2] on b=2 as S(0)");
  const Sharding large = Parse("f32[8] on a=2@1,0 as S(0)");
  const Sharding large_to = Parse("f32[8] on b=2 as S(0)");
  EXPECT_EQ(RelabelRanks({{small, small_to}})->ToString(), "b=2");
  EXPECT_EQ(RelabelRanks({{small, small_to}, {large, large_to}})->ToString(), "b=2@1,0");
  EXPECT_EQ(RelabelRanks({{small, small_to, 5}, {large, large_to}})->ToString(), "b=2");
}

// Compares with every order of the ranks.
TEST(RelabelRanks, NoOrderMovesFewerBytes) {
  int64_t fewer = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    std::vector<int64_t> ranks = pair.to.mesh().Ranks();
    if (ranks.size() > 6) continue;
    testkit::Random random(seed);
    random.Shuffle(ranks);
    const Sharding to = On(pair.to, ranks);
    const auto mesh = RelabelRanks({{pair.from, to}});
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    const int64_t found = Moved(pair.from, On(to, mesh->Ranks()));
    fewer += found < Moved(pair.from, to) ? 1 : 0;
    std::sort(ranks.begin(), ranks.end());
    do {
      ASSERT_LE(found, Moved(pair.from, On(to, ranks))) << pair.from.ToString();
    } while (std::next_permutation(ranks.begin(), ranks.end()));
  }
  EXPECT_GT(fewer, 20);
}

TEST(RelabelRanks, BadInputIsNamed) {
  EXPECT_EQ(Message(RelabelRanks({}).status()), "no tensors are given");
  EXPECT_EQ(Relabelled("f32[8] on a=2 as S(0)", "f32[9] on b=2 as S(0)"),
            "source f32[8] and target f32[9] differ in shape");
  EXPECT_EQ(Relabelled("f32[8] on a=2 as S(0)", "f32[8] on b=4097 as R"),
            "the target mesh has 4097 ranks; at most 4096 can be reordered");
  const Sharding from = Parse("f32[8] on a=2 as S(0)");
  EXPECT_EQ(Message(RelabelRanks({{from, Parse("f32[8] on b=2 as R")},
                                  {from, Parse("f32[8] on b=2@1,0 as R")}})
                        .status()),
            "targets are on different meshes, b=2 and b=2@1,0");
}

}  // namespace
}  // namespace meshift
