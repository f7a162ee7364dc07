#include "placement/unit_dims.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/owner_world.h"

namespace meshift {
namespace {

Sharding Parsed(const std::string& text) { return *Sharding::Parse(text); }

TEST(UnitDimsTest, AnOwnerIsACutOfAUnitDim) {
  const Sharding sharding = Parsed("f32[8,4] on a=2,b=2 as At(1),S(0)");
  const UnitDims units = UnitDims::Of({&sharding});
  const Sharding cuts = *units.Expand(sharding);
  EXPECT_EQ(cuts.ToString(), "f32[1,8,4] on a=2,b=2 as S(0){0,1},S(1)");
  EXPECT_EQ(units.Collapse(cuts), sharding);
}

TEST(UnitDimsTest, TwoNotationsOfOneOwnerAreOneSharding) {
  const Sharding at = Parsed("f32[8,4] on a=2,b=2 as At(1),S(1)");
  const Sharding rows = Parsed("f32[8,4] on a=2,b=2 as S(0){0,8},S(1)");
  const Sharding columns = Parsed("f32[8,4] on a=2,b=2 as S(1){0,4},S(1)");
  const UnitDims units = UnitDims::Of({&at, &rows, &columns});
  EXPECT_EQ(units.size(), 1);
  EXPECT_EQ(*units.Expand(rows), *units.Expand(at));
  EXPECT_EQ(*units.Expand(columns), *units.Expand(at));
  EXPECT_EQ(units.Collapse(*units.Expand(at), {&columns}), columns);
}

TEST(UnitDimsTest, UnitDimsOfTwoMeshesDoNotMeet) {
  const Sharding from = Parsed("f32[8] on a=2 as At(1)");
  const Sharding to = Parsed("f32[8] on b=3@2-4 as At(0)");
  const UnitDims units = UnitDims::Of({&from, &to});
  EXPECT_EQ(units.Expand(from)->ToString(), "f32[1,1,8] on a=2 as S(0){0,1}");
  // The one index of a ceil cut is coordinate 0's.
  EXPECT_EQ(units.Expand(to)->ToString(), "f32[1,1,8] on b=3@2-4 as S(1)");
}

TEST(UnitDimsTest, RefusesTooManyDims) {
  const Sharding sharding = Parsed("f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] on a=2 as At(1)");
  const UnitDims units = UnitDims::Of({&sharding});
  EXPECT_EQ(units.Expand(sharding).status().message(),
            "f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] has 16 dims, and 1 mesh dims are owned by one "
            "coordinate; this version plans for at most 16 in all");
}

TEST(UnitDimsTest, OneOwnerIsOneThatTheOtherEndHas) {
  const Sharding several = Parsed("f32[8] on a=4 as At(0,2,3)");
  const Sharding other = Parsed("f32[8] on a=4 as At(1,2)");
  EXPECT_EQ(WithOneOwner(several).PlacementsText(), "At(0)");
  EXPECT_EQ(WithOneOwner(several, &other).PlacementsText(), "At(2)");
}

// Boxes with the same elements in the same order.
TEST(UnitDimsTest, BoxesStay) {
  int64_t boxes = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const testkit::RandomPair pair = testkit::RandomOwnerCase(seed);
    for (const Sharding* sharding : {&pair.from, &pair.to}) {
      const UnitDims units = UnitDims::Of({&pair.from, &pair.to});
      const absl::StatusOr<Sharding> cuts = units.Expand(*sharding);
      ASSERT_TRUE(cuts.ok()) << cuts.status();
      EXPECT_EQ(units.Collapse(*cuts, {sharding}), *sharding) << sharding->ToString();
      for (const int64_t rank : sharding->mesh().Ranks()) {
        const Box box = sharding->LocalBox(rank);
        Box expanded = cuts->LocalBox(rank);
        ++boxes;
        ASSERT_EQ(expanded.NumElements(), box.NumElements()) << sharding->ToString();
        if (box.IsEmpty()) continue;
        expanded.offset.erase(expanded.offset.begin(), expanded.offset.begin() + units.size());
        expanded.size.erase(expanded.size.begin(), expanded.size.begin() + units.size());
        EXPECT_EQ(expanded, box) << sharding->ToString();
      }
    }
  }
  EXPECT_GT(boxes, 20000);
}

}  // namespace
}  // namespace meshift
