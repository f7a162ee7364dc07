#include "planner/search/ties.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {
namespace {

class TiesTest : public testing::Test {
 protected:
  // A state of u8[24,24], by its placements.
  State StateOf(const std::string& placements) const {
    const Sharding target = from_.WithPlacements(placements).value();
    return Problem::Create(from_, target).value().target();
  }
  Leg LegOf(StepOp op, const std::string& before, const std::string& after) const {
    return {op, StateOf(before), StateOf(after)};
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2,b=3").value();
  const Sharding from_ = Sharding::Parse("u8[24,24]", mesh_, "R,R").value();
  const Problem problem_ =
      Problem::Create(from_.WithPlacements("S(0),S(1)").value(), from_).value();
  const CostModel model_{problem_, Topology::Flat()};
  Ties ties_{problem_, model_};
};

TEST_F(TiesTest, CountsEveryRank) {
  // Each of 6 ranks sends its box, a sixth of the tensor, to one other rank.
  EXPECT_EQ(ties_.TotalBytes(LegOf(StepOp::kAllGather, "S(0),S(1)", "R,S(1)")), 6 * 96);
  EXPECT_EQ(ties_.TotalBytes(LegOf(StepOp::kSlice, "R,R", "R,S(1)")), 0);
  // Each rank holds half of the 24 x 4 elements that it needs.
  EXPECT_EQ(ties_.TotalBytes(LegOf(StepOp::kAllToAll, "S(0),S(1)", "S(1)[1],S(1)[0]")), 6 * 48);
  // Each rank needs a third of the rows. Two ranks hold it, two hold half of it, two none of it.
  EXPECT_EQ(ties_.TotalBytes(LegOf(StepOp::kExchange, "S(0),R", "R,S(0)")), 2 * (4 + 8) * 24);
}

TEST_F(TiesTest, FewerBytesThenFewerStepsThenTheText) {
  const Leg both = LegOf(StepOp::kAllGather, "S(0),S(1)", "R,R");
  const std::vector<Leg> by_a = {LegOf(StepOp::kAllGather, "S(0),S(1)", "R,S(1)"),
                                 LegOf(StepOp::kAllGather, "R,S(1)", "R,R")};
  const std::vector<Leg> by_b = {LegOf(StepOp::kAllGather, "S(0),S(1)", "S(0),R"),
                                 LegOf(StepOp::kAllGather, "S(0),R", "R,R")};
  // In each path every rank sends 5/6 of the tensor; in two steps 1/6 and 2/3, or 1/3 and 1/2.
  EXPECT_EQ(ties_.TotalBytes(both), ties_.TotalBytes(by_a[0]) + ties_.TotalBytes(by_a[1]));
  EXPECT_TRUE(ties_.IsBefore({both}, by_a));
  EXPECT_FALSE(ties_.IsBefore(by_a, {both}));
  EXPECT_TRUE(ties_.IsBefore(by_a, by_b));  // "all_gather a" before "all_gather b"
  EXPECT_FALSE(ties_.IsBefore(by_b, by_a));
  EXPECT_FALSE(ties_.IsBefore(by_a, by_a));
}

}  // namespace
}  // namespace meshift
