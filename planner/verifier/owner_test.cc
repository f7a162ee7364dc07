// Plans written by hand with At before or after a step: right ones, and wrong ones with the finding
// of the verifier. exhaustive_test.cc has all steps of small meshes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

using ::testing::StartsWith;

constexpr auto kBroadcast = StepOp::kBroadcast;
constexpr auto kReduce = StepOp::kReduce;
constexpr auto kGather = StepOp::kGather;
constexpr auto kScatter = StepOp::kScatter;
constexpr auto kSend = StepOp::kSend;

void ExpectRight(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(c), "") << c.tensor << " on " << c.mesh << ": " << c.from << " -> " << c.to;
  }
}

struct Wrong {
  Case plan;
  std::string start;  // of the finding
};
void ExpectWrong(const std::vector<Wrong>& cases) {
  for (const Wrong& c : cases) {
    EXPECT_THAT(Judge(c.plan), StartsWith(c.start))
        << c.plan.tensor << " on " << c.plan.mesh << ": " << c.plan.from << " -> " << c.plan.to;
  }
}

TEST(VerifierOwnerTest, WithoutElementsAllPlacementsAreOne) {
  ExpectRight({{"a=2", "f32[0]", "S(0)", "R", {}, 0},
               {"a=2,b=2", "f32[2,0]", "P,At(1)", "S(0),P(avg)", {}, 0}});
  ExpectWrong({{{"a=2", "f32[1]", "P", "R", {}, 0}, "- target"},
               {{"a=2", "f32[0]", "P", "P(max)", {}, 0}, "- target"}});
}

TEST(VerifierOwnerTest, PlainCutsOfSingleRowsAreOwned) {
  ExpectRight({
      {"a=2,b=2", "f32[1]", "S(0),S(0)", "S(0)[1],S(0)[0]", {}, 0},
      {"a=2,b=2", "f32[1]", "S(0),S(0)", "At(0),At(0)", {}, 0},
      // After a come single rows.
      {"a=2,b=2", "f32[2]", "S(0),S(0)", "S(0),At(0)", {}, 0},
  });
  ExpectWrong({
      {{"a=2,b=2", "f32[2]", "S(0),S(0)", "At(0),S(0)", {}, 0}, "- target"},
      {{"a=2,b=2", "f32[3]", "S(0),S(0)", "S(0),At(0)", {}, 0}, "- target"},
      {{"a=2", "f32[1]", "S(0)", "At(1)", {}, 0}, "- target"},
  });
}

TEST(VerifierOwnerTest, RootedOps) {
  ExpectRight({
      // Rank 2 holds the block of 8 elements, the others have blocks of none.
      {"a=4", "f32[8]", "At(2)", "R", {{kBroadcast, "a", "R", 32, 32, 32, kExact}}, 0},
      {"a=4", "f32[8]", "At(2)", "R", {{kBroadcast, "a", "R", 32, 32, 96, kPadded}}, 160},
      {"a=4", "f32[8]", "P", "At(1)", {{kReduce, "a", "At(1)", 32, 32, 32, kExact}}, 0},
      {"a=4", "f32[8]", "P", "At(1)", {{kReduce, "a", "At(1)", 32, 32, 96, kPadded}}, 160},
      // Each rank sends its two elements; the owner keeps its own.
      {"a=4", "f32[8]", "S(0)", "At(3)", {{kGather, "a", "At(3)", 8, 32, 8, kExact}}, 0},
      {"a=4", "f32[8]", "At(0)", "S(0)", {{kScatter, "a", "S(0)", 32, 8, 24, kExact}}, 0},
      // Rank 3 has no part of 3 elements on 4 ranks, and sends all of them.
      {"a=4", "f32[3]", "At(3)", "S(0)", {{kScatter, "a", "S(0)", 12, 4, 12, kExact}}, 0},
      {"a=4", "f32[8]", "At(0)", "At(3)", {{kSend, "a", "At(3)", 32, 32, 32, kExact}}, 0},
      // The same ops by their other names.
      {"a=4", "f32[8]", "At(2)", "R", {{kAllGather, "a", "R", 32, 32, 32, kExact}}, 0},
      {"a=4", "f32[8]", "P", "At(1)", {{kReduceScatter, "a", "At(1)", 32, 32, 32, kExact}}, 0},
      {"a=4", "f32[8]", "S(0)", "At(3)", {{kAllToAll, "a", "At(3)", 8, 32, 8, kExact}}, 0},
      // Columns are apart in the owner's rows.
      {"a=2", "f32[2,4]", "S(1)", "At(0)", {{kGather, "a", "At(0)", 16, 32, 16, kExact}}, 16},
      {"a=2", "f32[2,4]", "At(0)", "S(1)", {{kScatter, "a", "S(1)", 32, 16, 16, kExact}}, 16},
      {"a=3", "f32[]", "At(1)", "R", {{kBroadcast, "a", "R", 4, 4, 4, kExact}}, 0},
      {"a=3", "f32[]", "At(1)", "At(2)", {{kSend, "a", "At(2)", 4, 4, 4, kExact}}, 0},
      // Rank (1, 0) sends to (0, 0), and (1, 1) to (0, 1).
      {"a=2,b=2",
       "f32[4,2]",
       "At(1),S(0)",
       "R,S(0)",
       {{kBroadcast, "a", "R,S(0)", 16, 16, 16, kExact}},
       0},
      {"a=2,b=2",
       "f32[4]",
       "At(0),At(1)",
       "R,R",
       {{kBroadcast, "a,b", "R,R", 16, 16, 16, kExact}},
       0},
      // Rank (0, 0) sends to (0, 1), which sends to (1, 1).
      {"a=2,b=2",
       "f32[4]",
       "At(0),S(0)",
       "S(0),At(1)",
       {{kExchange, "a,b", "S(0),At(1)", 8, 8, 8, kExact}},
       0},
  });
}

TEST(VerifierOwnerTest, OtherOps) {
  ExpectRight({
      {"a=4", "f32[8]", "At(2)", "At(2)", {}, 0},
      {"a=3", "f32[4]", "R", "At(2)", {{kSlice, "a", "At(2)", 16, 16, 0}}, 0},
      {"a=3", "f32[4]", "R", "At(0,2)", {{kSlice, "a", "At(0,2)", 16, 16, 0}}, 0},
      {"a=3", "f32[4]", "At(0,2)", "At(2)", {{kSlice, "a", "At(2)", 16, 16, 0}}, 0},
      {"a=3", "f32[4]", "At(1)", "P", {{kMask, "a", "P", 16, 16, 0}}, 0},
      // Ranks with other coordinates on a hold nothing and send nothing.
      {"a=3,b=2",
       "f32[4]",
       "At(0,2),S(0)",
       "At(0,2),R",
       {{kAllGather, "b", "At(0,2),R", 8, 16, 8}},
       0},
      {"a=3,b=2", "f32[4]", "At(1),P", "At(1),R", {{kAllReduce, "b", "At(1),R", 16, 16, 16}}, 0},
      {"dp=2,tp=2",
       "f32[4,2]",
       "P,R",
       "At(0),R",
       {{kSlice, "tp", "P,S(0)", 32, 16, 0},
        {kReduce, "dp", "At(0),S(0)", 16, 16, 16, kExact},
        {kAllGather, "tp", "At(0),R", 16, 32, 16}},
       32},
  });
  // In order, the owner gets four contributions.
  PlanFields plan = MakeFields(
      {"a=4", "f32[8]", "P", "At(1)", {{kReduce, "a", "At(1)", 32, 32, 32, kExact}}, 128});
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  plan.kept = Reproducibility::kOrdered;
  EXPECT_EQ(Judge(plan), "");
}

TEST(VerifierOwnerTest, Crossings) {
  ExpectRight({
      Cross("a=2", "b=2@2-3", "f32[4]", "At(1)", "R", {Exchange("R", 16, 16, 32)}),
      Cross("a=2", "b=2@2-3", "f32[4]", "R", "At(0)", {Exchange("At(0)", 16, 16, 16)}),
      Cross("a=2", "b=2@2-3", "f32[4]", "S(0)", "At(1)", {Exchange("At(1)", 8, 16, 8)}),
      Cross("a=2", "b=2@2-3", "f32[]", "At(1)", "At(0)", {Exchange("At(0)", 4, 4, 4)}),
      // Two owners take turns.
      Cross("a=3", "b=2@3-4", "f32[4]", "At(0,2)", "R", {Exchange("R", 16, 16, 16)}),
      // Two receivers; each owner sends to one of them.
      Cross("a=3", "b=3@3-5", "f32[4]", "At(0,2)", "At(0,2)", {Exchange("At(0,2)", 16, 16, 16)}),
      Cross("a=4", "b=1@2", "f32[4]", "At(2)", "R", {Relabel("R", 16)}),
      Cross("a=4", "b=4@2,1,0,3", "f32[4]", "At(2)", "At(0)", {Relabel("At(0)", 16)}),
  });
  ExpectWrong({
      {Cross("a=4", "b=4", "f32[4]", "At(2)", "At(0)", {Relabel("At(0)", 16)}),
       "0 data: a relabel sends nothing; rank 0 needs 4 element(s) that rank 2 has"},
      {Cross("a=4", "b=4@2,1,0,3", "f32[4]", "At(2)", "At(0)", {Exchange("At(0)", 16, 16, 0)}),
       "0 op: the exchange sends nothing, since every rank holds its box already"},
  });
}

// S(0){0,0,4} leaves all to rank 2, as At(2) does.
TEST(VerifierOwnerTest, TwoNotationsOfOneOwner) {
  ExpectRight({
      {"a=3", "f32[4]", "At(2)", "S(0){0,0,4}", {}, 0},
      {"a=3", "f32[4]", "S(0){0,0,4}", "At(2)", {}, 0},
      {"a=3",
       "f32[4]",
       "At(0)",
       "S(0){0,0,4}",
       {{kExchange, "a", "S(0){0,0,4}", 16, 16, 16, kExact}},
       0},
      {"a=2,b=2", "f32[4]", "S(0){0,4},S(0)", "At(1),S(0)", {}, 0},
  });
}

TEST(VerifierOwnerTest, WrongOwners) {
  ExpectWrong({
      {{"a=3", "f32[4]", "At(0)", "R", {}, 0},
       "- target: the source leaves At(0); the target is R"},
      {{"a=3", "f32[4]", "At(0)", "At(1)", {}, 0},
       "- target: the source leaves At(0); the target is At(1)"},
      {{"a=3", "f32[4]", "At(0)", "At(1)", {{kSlice, "a", "At(1)", 16, 16, 0}}, 0},
       "0 data: the rank at a=1 should hold the value, but gets it from no owner"},
      {{"a=3", "f32[4]", "At(0)", "R", {{kSlice, "a", "R", 16, 16, 0}}, 0},
       "0 data: the rank at a=1 should hold the value, but gets it from no owner"},
      {{"a=3", "f32[4]", "P", "At(0)", {{kSlice, "a", "At(0)", 16, 16, 0}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      {{"a=3", "f32[4]", "P", "At(0)", {{kExchange, "a", "At(0)", 16, 16, 16, kExact}}, 0},
       "0 data: mesh dim a is P before the step: contributions would be lost"},
      // All ranks are their own source.
      {{"a=3", "f32[4]", "At(0)", "At(1)", {{kPermute, "a", "At(1)", 16, 16, 16, kExact}}, 0},
       "0 data: the cuts before and after do not have equal sizes pairwise"},
      {{"a=4", "f32[8]", "At(2)", "R", {{kBroadcast, "a", "R", 32, 32, 96, kExact}}, 0},
       "0 bytes: bytes_sent is 96; it should be 32"},
  });
}

TEST(VerifierOwnerTest, WrongNamesOfRootedOps) {
  ExpectWrong({
      {{"a=3", "f32[4]", "R", "R", {{kBroadcast, "a", "R", 16, 16, 16}}, 0},
       "0 op: broadcast needs At on mesh dim a, which is R before the step"},
      {{"a=2,b=2", "f32[4]", "At(0),R", "R,R", {{kBroadcast, "a,b", "R,R", 16, 16, 16, kExact}}, 0},
       "0 op: broadcast needs At on mesh dim b, which is R before the step"},
      {{"a=2", "f32[4]", "S(0)", "R", {{kBroadcast, "a", "R", 8, 16, 8}}, 0},
       "0 op: broadcast needs At on mesh dim a, which is S(0) before the step"},
      {{"a=2", "f32[4]", "P", "S(0)", {{kReduce, "a", "S(0)", 16, 8, 8}}, 0},
       "0 op: reduce needs At on mesh dim a, which is S(0) after the step"},
      {{"a=2,b=2",
        "f32[4]",
        "S(0),S(0)",
        "At(0),S(0)",
        {{kGather, "a,b", "At(0),S(0)", 4, 8, 4, kExact}},
        0},
       "0 op: gather needs At on mesh dim b, which is S(0) after the step"},
      {{"a=2", "f32[4]", "R", "S(0)", {{kScatter, "a", "S(0)", 16, 8, 0}}, 0},
       "0 op: scatter needs At on mesh dim a, which is R before the step"},
      {{"a=3", "f32[4]", "At(0)", "R", {{kSend, "a", "R", 16, 16, 32, kExact}}, 0},
       "0 op: send needs At on mesh dim a, which is R after the step"},
      {{"a=3", "f32[4]", "At(0)", "At(1)", {{kGather, "a", "At(1)", 16, 16, 16, kExact}}, 0},
       "0 op: gather needs no At on mesh dim a, which is At(0) before the step"},
  });
}

// Only a slice changes an At of several coordinates.
TEST(VerifierOwnerTest, SeveralOwnersChangeInSlicesOnly) {
  ExpectWrong({
      {{"a=3", "f32[4]", "At(0,1)", "R", {{kAllGather, "a", "R", 16, 16, 16, kExact}}, 0},
       "0 op: mesh dim a goes from At(0,1) to R, by"},
      {{"a=3", "f32[4]", "At(0,1)", "R", {{kBroadcast, "a", "R", 16, 16, 16, kExact}}, 0},
       "0 op: mesh dim a goes from At(0,1) to R, by"},
      {{"a=8", "f32[4]", "At(3,7)", "At(3)", {{kExchange, "a", "At(3)", 16, 16, 0, kExact}}, 0},
       "0 op: mesh dim a goes from At(3,7) to At(3), by"},
      {{"a=8", "f32[4]", "At(3,7)", "S(0)", {{kExchange, "a", "S(0)", 16, 4, 12, kExact}}, 0},
       "0 op: mesh dim a goes from At(3,7) to S(0), by"},
      {{"a=8", "f32[4]", "At(3,7)", "At(4)", {{kSlice, "a", "At(4)", 16, 16, 0}}, 0},
       "0 op: mesh dim a goes from At(3,7) to At(4), by slice"},
      {{"a=8", "f32[4]", "At(3,7)", "P", {{kMask, "a", "P", 16, 16, 0}}, 0},
       "0 op: mesh dim a goes from At(3,7) to P, by mask"},
      {{"a=8", "f32[4]", "P", "At(3,7)", {{kReduce, "a", "At(3,7)", 16, 16, 16, kExact}}, 0},
       "0 op: mesh dim a goes from P to At(3,7), by reduce"},
      {{"a=8", "f32[4]", "At(3,7)", "At(3,7)", {{kSlice, "a", "At(3,7)", 16, 16, 0}}, 0},
       "0 mesh_dims: mesh_dims are a, but no cut changes"},
  });
}

// Two owners form each sum twice, and their bits may differ.
TEST(VerifierOwnerTest, SeveralOwnersAreReplicas) {
  PlanFields plan = MakeFields({"a=3,b=2",
                                "f32[4]",
                                "At(0,2),P",
                                "At(0,2),R",
                                {{kAllReduce, "b", "At(0,2),R", 16, 16, 16}},
                                0});
  EXPECT_THAT(Judge(plan), StartsWith("0 promise: mesh dim a"));
  plan.kept = Reproducibility::kNone;
  EXPECT_EQ(Judge(plan), "");
}

}  // namespace
}  // namespace meshift
