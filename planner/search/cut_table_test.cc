#include "planner/search/cut_table.h"

#include <vector>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "planner/graph/state.h"

namespace meshift {
namespace {

Problem MakeProblem(const char* mesh, const char* tensor, const char* from, const char* to) {
  const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
  return *Problem::Create(source, *source.WithPlacements(to));
}

TEST(CutTableTest, ListsAreMadeOnce) {
  const Problem problem = MakeProblem("a=2,b=3", "f32[12,7]", "S(0),S(1)", "R,R");
  CutTable table(problem);
  const CutTable::List a = table.Append(CutTable::kNoCuts, 0);
  const CutTable::List ab = table.Append(a, 1);
  EXPECT_EQ(table.Append(CutTable::kNoCuts, 0), a);
  EXPECT_EQ(table.Append(a, 1), ab);
  EXPECT_EQ(table.Parent(ab), a);
  EXPECT_EQ(table.size(ab), 2);
  EXPECT_EQ(table.last(ab), 1);
  EXPECT_EQ(table.dims(ab), 0b11u);
}

TEST(CutTableTest, CommonIsTheLongestBeginningOfBoth) {
  const Problem problem = MakeProblem("a=2,b=2,c=2", "f32[8]", "S(0),R,R", "R,R,R");
  CutTable table(problem);
  const auto list = [&](std::vector<int> dims) {
    CutTable::List made = CutTable::kNoCuts;
    for (const int d : dims) made = table.Append(made, d);
    return made;
  };
  EXPECT_EQ(table.Common(list({0, 1}), list({0, 2})), list({0}));
  EXPECT_EQ(table.Common(list({0, 1}), list({1, 0})), CutTable::kNoCuts);
  EXPECT_EQ(table.Common(list({0, 1, 2}), list({0, 1})), list({0, 1}));
}

TEST(CutTableTest, TheCodeIsThatOfTheState) {
  const Problem problem = MakeProblem("a=2,b=3", "f32[12,7]", "S(1)[1],S(1)[0]", "R,R");
  CutTable table(problem);
  const CutTable::List ba = table.Append(table.Append(CutTable::kNoCuts, 1), 0);
  EXPECT_EQ(table.Code(ba, 1), problem.source().code());
}

TEST(CutTableTest, PiecesAreThoseOfTheRanks) {
  const Problem problem = MakeProblem("a=2,b=3", "f32[10]", "S(0),S(0)", "R,S(0)");
  CutTable table(problem);
  const CutTable::List ab = table.Append(table.Append(CutTable::kNoCuts, 0), 1);
  const CutTable::Pieces& pieces = table.Along(ab, 0);
  EXPECT_EQ(pieces.longest, 2);  // 10 in two pieces, then 5 in three
  // Sample 0 is the rank at first coordinates only. Each other sample has some last coordinates.
  EXPECT_EQ(pieces.begin[0], 0);
  EXPECT_EQ(pieces.length[0], 2);
  ASSERT_EQ(table.num_samples(), 2);
  EXPECT_EQ(pieces.begin[1], 4);
  EXPECT_EQ(pieces.length[1], 1);
  EXPECT_EQ(pieces.wanted[0], 2);  // in [0, 4), its piece of the target
}

TEST(CutTableTest, AnyTwoMeshDimsDifferInSomeSample) {
  const Problem problem =
      MakeProblem("a=2,b=2,c=2,d=2,e=2", "f32[64]", "S(0),S(0),S(0),S(0),S(0)", "R,R,R,R,R");
  CutTable table(problem);
  for (int d = 0; d < 5; ++d) {
    for (int e = 0; e < d; ++e) {
      const CutTable::Pieces& one = table.Along(table.Append(CutTable::kNoCuts, d), 0);
      const CutTable::Pieces& other = table.Along(table.Append(CutTable::kNoCuts, e), 0);
      bool differ = false;
      for (int s = 0; s < table.num_samples(); ++s) differ |= one.begin[s] != other.begin[s];
      EXPECT_TRUE(differ) << d << " " << e;
    }
  }
}

TEST(CutTableTest, OwnerCutsDivideNothing) {
  const Problem problem = MakeProblem("a=2,b=3,c=2", "f32[2,8]", "R,S(1){0,8,0},R", "R,R,R");
  CutTable table(problem);
  const CutTable::List a = table.Append(CutTable::kNoCuts, 0);
  const CutTable::List ac = table.Append(a, 2);
  // Tensor dim 0 is the unit dim of b; the tensor's own follow.
  EXPECT_EQ(table.Along(a, 1).owners, 0u);
  EXPECT_EQ(table.Along(ac, 1).owners, 0b100u);  // a row on a=0, and one on a=1, both on c=0
  EXPECT_EQ(table.Along(ac, 1).core, a);
  EXPECT_EQ(table.Along(ac, 2).owners, 0u);
  EXPECT_EQ(table.Along(ac, 2).core, ac);
  const CutTable::List b = table.Append(CutTable::kNoCuts, 1, CutSizes::kSource);
  EXPECT_EQ(table.Along(b, 0).owners, 1u << 9);  // b=1
  EXPECT_EQ(table.Along(b, 0).core, CutTable::kNoCuts);
}

TEST(CutTableTest, AcrossAreDimsThatTheTargetDoesNotCut) {
  const Problem problem = MakeProblem("a=2,b=2", "f32[8,8]", "S(0),S(0)", "R,S(0)");
  CutTable table(problem);
  const CutTable::List ab = table.Append(table.Append(CutTable::kNoCuts, 0), 1);
  EXPECT_EQ(table.Across(ab, 0), 0b01u);
  // A rank whose target piece is empty needs nothing: 4 in three pieces is 2, 2 and 0.
  const Problem empty = MakeProblem("a=2,b=3", "f32[4]", "S(0),R", "R,S(0)");
  CutTable of_empty(empty);
  EXPECT_EQ(of_empty.Across(of_empty.Append(CutTable::kNoCuts, 0), 0), 0u);
  // Only b=0 holds something, whatever tensor dim b cuts, and all ranks need something.
  const Problem owned = MakeProblem("a=2,b=2", "f32[1,8]", "R,P", "R,S(1)");
  CutTable of_owned(owned);
  const CutTable::List b = of_owned.Append(CutTable::kNoCuts, 1);
  EXPECT_EQ(of_owned.Across(b, 0), 0b10u);
  EXPECT_EQ(of_owned.Across(b, 1), 0u);
}

}  // namespace
}  // namespace meshift
