#include "planner/inter_mesh/near_ends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

using List = std::vector<std::string>;

DeviceMesh Mesh(const std::string& text) { return DeviceMesh::Parse(text).value(); }

Sharding Parse(const std::string& tensor, const std::string& mesh, const std::string& placements) {
  return Sharding::Parse(tensor, Mesh(mesh), placements).value();
}

// Near a replicated or owned tensor on the mesh `other`.
List Near(const Sharding& end, const std::string& other, const std::string& topology,
          const std::string& held = "R") {
  const Sharding there = Sharding::Parse(end.tensor(), Mesh(other), held).value();
  List texts;
  for (const Sharding& sharding :
       NearEnds(end, end.dtype(), there, Topology::Parse(topology).value(), /*owned=*/true)) {
    texts.push_back(sharding.PlacementsText());
  }
  return texts;
}

TEST(NearEnds, OneRankHoldsAll) {
  EXPECT_EQ(Near(Parse("f32[8,4]", "a=4", "R"), "one=1@2", "flat"), List{"At(2)"});
  EXPECT_EQ(Near(Parse("f32[]", "a=4", "R"), "one=1@0", "flat"), List{"At(0)"});
  // Then the ranks of one row, or of one column.
  EXPECT_EQ(Near(Parse("f32[8,4]", "a=2,b=2", "R,R"), "one=1@2", "flat"),
            (List{"At(1),At(0)", "At(1),R", "At(1),S(0)", "At(1),S(1)", "R,At(0)", "S(0),At(0)",
                  "S(1),At(0)"}));
}

TEST(NearEnds, TheRanksOfAHostHoldEvenShares) {
  // Hosts of 8 ranks: first the rank alone, then its host.
  const List list = Near(Parse("f32[10,4]", "a=4,b=8", "S(0),R"), "one=1@8", "h100");
  EXPECT_EQ(list[0], "At(1),At(0)");
  for (const char* const end : {"At(1),R", "At(1),S(0)", "At(1),S(1)"}) {
    EXPECT_NE(std::find(list.begin(), list.end(), end), list.end()) << end;
  }
  EXPECT_EQ(Near(Parse("f32[10]", "a=16", "S(0)"), "one=1@11", "h100"),
            (List{"At(11)", "S(0){0,0,0,0,0,0,0,0,2,2,2,2,2,0,0,0}", "At(8)"}));
}

// Whatever the order of the other mesh's ranks is, and whatever gaps they leave.
TEST(NearEnds, RanksComeInAnyOrder) {
  const Sharding end = Parse("f32[12,2]", "a=6", "R");
  for (const char* const other : {"b=3@1,3,4", "b=3@4,3,1", "b=3@3,1,4", "b=3@1,4,3"}) {
    EXPECT_EQ(Near(end, other, "flat"), (List{"S(0){0,4,0,4,4,0}", "S(1){0,1,0,1,0,0}", "At(1)"}))
        << other;
  }
}

// First the ranks that hold the tensor there, then all of that mesh.
TEST(NearEnds, OwnersAreNearer) {
  EXPECT_EQ(Near(Parse("f32[12]", "a=8", "R"), "b=4@2-5", "flat", "At(1)"),
            (List{"At(3)", "S(0){0,0,3,3,3,3,0,0}", "At(2)"}));
}

// An owner sends to one rank of another host, which sends on.
TEST(NearEnds, OneRankIsAnEndWhereAllOrNoneAreNear) {
  const Sharding end = Parse("f32[8,4]", "a=4", "R");
  EXPECT_EQ(Near(end, "b=4", "flat"), List{"At(0)"});
  EXPECT_EQ(Near(end, "b=4@8-11", "h100"), List{"At(0)"});
}

TEST(NearEnds, ThereAreNone) {
  EXPECT_EQ(Near(Parse("f32[0,4]", "a=4", "R"), "one=1@0", "flat"), List());
  // Two ranks need a tensor dim to divide.
  EXPECT_EQ(Near(Parse("f32[]", "a=4", "R"), "b=2@0-1", "flat"), List{"At(0)"});
  // A cut inside a byte is left out.
  EXPECT_EQ(Near(Parse("f4e2m1[3,2]", "a=4", "R"), "b=2@0-1", "flat"),
            (List{"S(0){2,1,0,0}", "At(0)"}));
}

struct Case {
  const char* mesh;
  const char* to_mesh;
  const char* tensor;
  const char* from;
  const char* to;
  int64_t most_us;
};

// Times of the cost model. Without near ends these plans take 1.7 to 5 times as long.
TEST(NearEnds, MakePlansOfFewRanksQuicker) {
  for (const auto& [mesh, to_mesh, tensor, from, to, most_us] : std::vector<Case>{
           {"one=1@0", "dp=4,tp=8", "bf16[8192,8192]", "R", "R,R", 740},
           {"one=1@0", "dp=4,tp=8", "bf16[8192,8192]", "R", "S(0),S(1)", 740},
           {"one=1@9", "dp=4,tp=8@8-39", "bf16[8192,8192]", "R", "R,R", 740},
           {"one=1@0", "d=8", "bf16[8192,8192]", "R", "R", 540},
           {"fsdp=32", "one=1@0", "bf16[8192,8192]", "S(0)", "R", 630},
       }) {
    const Sharding source = Parse(tensor, mesh, from);
    const Sharding target = Parse(tensor, to_mesh, to);
    const Plan plan =
        MakePlan(source, target, {.topology = Topology::Parse("h100").value()}).value();
    EXPECT_LE(plan.total().est_ns, most_us * 1000) << PlanToText(plan);
    EXPECT_TRUE(Verify(plan).ok()) << PlanToText(plan);
  }
}

}  // namespace
}  // namespace meshift
