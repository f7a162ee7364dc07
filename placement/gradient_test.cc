#include "meshift/gradient.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

std::string Pair(const absl::StatusOr<RedistributionPair>& pair) {
  if (!pair.ok()) return Message(pair.status());
  return std::string(Name(pair->from.dtype())) + " " + pair->from.PlacementsText() + " -> " +
         std::string(Name(pair->to.dtype())) + " " + pair->to.PlacementsText();
}

class GradientTest : public ::testing::Test {
 protected:
  Sharding On(const char* tensor, const char* placements) {
    return Sharding::Parse(tensor, *DeviceMesh::Parse("dp=4,tp=2"), placements).value();
  }
};

TEST_F(GradientTest, GoesTheOtherWay) {
  EXPECT_EQ(Pair(GradientOf(On("f32[8,8]", "S(0),S(1)"), On("bf16[8,8]", "R,S(1)"))),
            "bf16 R,S(1) -> f32 S(0),S(1)");
}

TEST_F(GradientTest, EveryPartialIsReplicated) {
  EXPECT_EQ(Pair(GradientOf(On("f32[8]", "P,R"), On("f32[8]", "R,R"))), "f32 R,R -> f32 R,R");
  EXPECT_EQ(Pair(GradientOf(On("f32[8]", "R,S(0)"), On("f32[8]", "P,S(0)"))),
            "f32 R,S(0) -> f32 R,S(0)");
}

TEST_F(GradientTest, TheOrderOfCutsStays) {
  EXPECT_EQ(Pair(GradientOf(On("f32[8]", "S(0)[1],S(0)[0]"), On("f32[8]", "P,S(0)"))),
            "f32 R,S(0) -> f32 S(0)[1],S(0)[0]");
}

TEST_F(GradientTest, RanksWithOtherDataContribute) {
  const Sharding shard = On("f32[8,8]", "S(0),S(1)");
  const Sharding weight = On("bf16[8,8]", "R,S(1)");
  EXPECT_EQ(Pair(GradientOf(shard, weight, {.summed_over = {"dp"}})),
            "bf16 P,S(1) -> f32 S(0),S(1)");
  EXPECT_EQ(Pair(GradientOf(shard, weight, {.summed_over = {"dp"}, .op = ReduceOp::kAvg})),
            "bf16 P(avg),S(1) -> f32 S(0),S(1)");
}

TEST_F(GradientTest, RefusesWhatIsNoGradient) {
  const Sharding shard = On("f32[8,8]", "S(0),S(1)");
  const Sharding weight = On("bf16[8,8]", "R,S(1)");
  EXPECT_EQ(Pair(GradientOf(shard, weight, {.summed_over = {"pp"}})),
            "mesh dp=4,tp=2 has no dim 'pp'");
  EXPECT_EQ(Pair(GradientOf(shard, weight, {.summed_over = {"tp"}})),
            "mesh dim 'tp' is S(1) in bf16[8,8] on dp=4,tp=2 as R,S(1): its ranks hold different "
            "elements, not contributions to the same");
  EXPECT_EQ(Pair(GradientOf(shard, weight, {.summed_over = {"dp"}, .op = ReduceOp::kMax})),
            "a gradient is a sum or an avg of contributions, not max");
  EXPECT_EQ(Pair(GradientOf(shard, On("f32[8]", "R,R"))),
            "source f32[8,8] and target f32[8] differ in shape");
}

}  // namespace
}  // namespace meshift
