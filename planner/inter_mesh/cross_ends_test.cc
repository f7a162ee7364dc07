#include "planner/inter_mesh/cross_ends.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"

namespace meshift {
namespace {

Sharding Parse(const std::string& tensor, const std::string& mesh, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

std::vector<std::string> Texts(const std::vector<Sharding>& list) {
  std::vector<std::string> texts;
  for (const Sharding& sharding : list) texts.push_back(sharding.PlacementsText());
  return texts;
}

using List = std::vector<std::string>;

// Large meshes get only a few ends.
TEST(CrossEnds, SourcesAreReducedScatteredOrSliced) {
  EXPECT_EQ(Texts(CrossSources(Parse("f32[80,80]", "a=20,b=4", "S(0),R"), DType::kF32)),
            (List{"S(0),R", "S(0),S(0)", "S(0),S(1)"}));
  EXPECT_EQ(Texts(CrossSources(Parse("f32[80,80]", "a=20,b=4", "P,S(0)"), DType::kF32)),
            (List{"R,S(0)", "S(0)[1],S(0)[0]", "S(1),S(0)"}));
  // Replicated dims are sliced before, so that no two groups reduce the same elements.
  EXPECT_EQ(Texts(CrossSources(Parse("f32[80]", "a=20,b=4", "P,R"), DType::kF32)),
            (List{"R,R", "S(0),R", "R,S(0)", "S(0)[1],S(0)[0]"}));
  // Only one dim of size 1 is cut: its owner has the whole tensor.
  EXPECT_EQ(Texts(CrossSources(Parse("f32[1,1]", "a=2", "P"), DType::kF32)), (List{"R", "S(0)"}));
  // No dim can be cut.
  EXPECT_EQ(Texts(CrossSources(Parse("f32[]", "a=2", "P"), DType::kF32)), (List{"R"}));
  EXPECT_EQ(Texts(CrossSources(Parse("f32[0]", "a=2", "P"), DType::kF32)), (List{"R"}));
}

TEST(CrossEnds, ContributionsMayCross) {
  const auto sources = [](const char* tensor, const char* mesh, const char* from, bool at_once) {
    return Texts(PartialSources(Parse(tensor, mesh, from), DType::kF32, at_once));
  };
  EXPECT_EQ(sources("f32[80,80]", "a=20,b=4", "P,S(0)", false), (List{"P,S(0)"}));
  EXPECT_EQ(sources("f32[80]", "a=20,b=4", "P,R", false), (List{"P,R", "P,S(0)"}));
  // Some of the partial mesh dims may be reduced before; those of an average must cross.
  EXPECT_EQ(sources("f32[80]", "a=20,b=4", "P,P", false),
            (List{"P,P", "P,R", "P,S(0)", "R,P", "S(0),P"}));
  EXPECT_EQ(sources("f32[80]", "a=20,b=4", "P(avg),P", false),
            (List{"P(avg),P", "P(avg),R", "P(avg),S(0)"}));
  EXPECT_EQ(sources("f32[80]", "a=20,b=4", "P,P", true), (List{"P,P"}));
  // On small meshes: all cuts of the mesh dims that are not P.
  EXPECT_EQ(sources("f32[8]", "a=2,b=2,c=2", "S(0),R,P", false),
            (List{"S(0),R,P", "S(0),S(0),P", "R,R,P", "R,S(0),P", "S(0)[1],S(0)[0],P"}));
  // No mesh dim of size > 1 is P, or the tensor is empty.
  EXPECT_EQ(sources("f32[8]", "a=2,b=1", "S(0),P", false), List());
  EXPECT_EQ(sources("f32[0]", "a=2", "P", false), List());
}

TEST(CrossEnds, TargetsAreGatheredOrMasked) {
  EXPECT_EQ(Texts(CrossTargets(Parse("f32[80,80]", "a=20,b=4", "R,S(1)"), DType::kF32)),
            (List{"R,S(1)", "S(0),S(1)", "S(1)[1],S(1)[0]"}));
  EXPECT_EQ(Texts(CrossTargets(Parse("f32[80]", "a=20,b=4", "P,R"), DType::kF32)),
            (List{"R,R", "S(0),R", "S(0),S(0)"}));
  // A mask cannot make P(avg) from a cut; a gather has to remove the cut before.
  EXPECT_EQ(Texts(CrossTargets(Parse("f32[80]", "a=20,b=4", "P(avg),R"), DType::kF32)),
            (List{"R,R", "S(0),R", "R,S(0)", "S(0),S(0)"}));
  EXPECT_EQ(Texts(CrossTargets(Parse("f32[80]", "a=20,b=4", "P(avg),P"), DType::kF32)),
            (List{"R,R", "R,S(0)", "S(0)[1],S(0)[0]"}));
}

TEST(CrossEnds, OnSmallMeshesAllCuts) {
  EXPECT_EQ(Texts(CrossTargets(Parse("f32[8,8]", "a=2,b=2", "R,S(1)"), DType::kF32)),
            (List{"R,S(1)", "S(0),S(1)", "S(1)[1],S(1)[0]", "R,R", "S(0),R", "S(1),R", "R,S(0)",
                  "S(0),S(0)", "S(0)[1],S(0)[0]", "S(1),S(0)", "S(1),S(1)"}));
}

// 27 ways in two orders are all tried; of 64 only those where the first or the last dims cut
// together.
TEST(CrossEnds, OfManyCutsThoseOfNeighbours) {
  EXPECT_EQ(CrossSources(Parse("f32[8,8]", "a=2,b=2,c=2", "R,R,R"), DType::kF32).size(), 41);
  EXPECT_EQ(Texts(CrossSources(Parse("f32[8,8,8]", "a=2,b=2,c=2", "S(1),S(1),S(1)"), DType::kF32)),
            (List{"S(1),S(1),S(1)", "R,R,R", "S(0),S(0),S(0)", "S(0),R,R", "R,S(0),S(0)",
                  "S(0),S(0),R", "R,R,S(0)", "S(1),R,R", "R,S(1),S(1)", "S(1),S(1),R", "R,R,S(1)",
                  "S(2),S(2),S(2)", "S(2),R,R", "R,S(2),S(2)", "S(2),S(2),R", "R,R,S(2)"}));
}

TEST(CrossEnds, NoneIsTwiceNoneIsPartial) {
  for (const char* placements : {"P,R,S(0)", "R,R,R", "P,P,R", "S(1),P,S(1)", "R,S(2),R"}) {
    const Sharding s = Parse("f32[8,1,12]", "a=2,b=3,c=2", placements);
    for (const auto& list : {CrossSources(s, DType::kBF16), CrossTargets(s, DType::kBF16)}) {
      std::set<std::string> seen;
      for (const Sharding& end : list) {
        EXPECT_TRUE(seen.insert(end.PlacementsText()).second) << end.ToString();
        EXPECT_FALSE(end.HasPartial()) << end.ToString();
        EXPECT_EQ(end.dtype(), DType::kBF16);
      }
    }
  }
}

TEST(CrossEnds, NoByteIsCut) {
  // A half of 4 elements, or a quarter of 2, is whole bytes; an eighth is not.
  EXPECT_EQ(Texts(CrossTargets(Parse("f4e2m1[8]", "a=4", "R"), DType::kF4E2M1)),
            (List{"R", "S(0)"}));
  EXPECT_EQ(Texts(CrossTargets(Parse("f4e2m1[8]", "a=8", "R"), DType::kF4E2M1)), (List{"R"}));
}

}  // namespace
}  // namespace meshift
