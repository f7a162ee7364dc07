#include "planner/search/value_rule.h"

#include <cstdint>
#include <optional>
#include <string>

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

TEST(ValueRuleTest, SourceAndTargetMayBeHeld) {
  const Problem problem = MakeProblem("a=2,b=2", "f32[4096,4096]", "S(0),R", "R,S(1)");
  const ValueRule rule(problem, std::nullopt);
  EXPECT_TRUE(rule.MayHold(problem.source()));
  EXPECT_TRUE(rule.MayHold(problem.target()));
  EXPECT_EQ(rule.WhyNot(problem.target()), "");
}

TEST(ValueRuleTest, AQuarterMoreThanTheEndsAndFourMebibytes) {
  State whole;
  // 64 KiB on each rank of source and target; the whole tensor has 256 KiB.
  const Problem small = MakeProblem("a=2,b=2", "f32[256,256]", "S(0),S(0)", "S(1),S(1)");
  EXPECT_TRUE(ValueRule(small, std::nullopt).MayHold(whole));
  const Problem large = MakeProblem("a=2,b=2", "f32[4096,4096]", "S(0),S(0)", "S(1),S(1)");
  EXPECT_FALSE(ValueRule(large, std::nullopt).MayHold(whole));
  EXPECT_EQ(ValueRule(large, std::nullopt).WhyNot(whole),
            "the intermediate value R,R in f32 takes 64 MiB, more than 1.25 times the larger of "
            "source and target (16 MiB)");
  const Problem middle = MakeProblem("a=2,b=2", "f32[1024,2048]", "S(0),S(0)", "S(1),S(1)");
  EXPECT_EQ(ValueRule(middle, std::nullopt).WhyNot(whole),
            "the intermediate value R,R in f32 takes 8 MiB, more than 4 MiB, the default of "
            "max_value for a small source and target");
}

TEST(ValueRuleTest, ANumberIsAskedFor) {
  const Problem problem = MakeProblem("a=2,b=2", "f32[4096,4096]", "S(0),S(0)", "S(1),S(1)");
  State whole;
  EXPECT_TRUE(ValueRule(problem, INT64_MAX).MayHold(whole));
  EXPECT_TRUE(ValueRule(problem, 64 << 20).MayHold(whole));
  EXPECT_EQ(ValueRule(problem, (64 << 20) - 1).WhyNot(whole),
            "the intermediate value R,R in f32 takes 64 MiB, more than max_value (67108863 B)");
  // The limit does not apply to source and target.
  EXPECT_TRUE(ValueRule(problem, 0).MayHold(problem.source()));
  EXPECT_TRUE(ValueRule(problem, 0).MayHold(problem.target()));
}

TEST(ValueRuleTest, UnlikePiecesAreNoMoreThanAClosedFormNeeds) {
  const Problem problem = MakeProblem("a=128,b=64", "f32[8193,64]", "S(0),R", "R,S(1)");
  const ValueRule rule(problem, std::nullopt);
  State state;
  state.SetShard(0, 0, 0);
  state.SetShard(1, 0, 1);
  EXPECT_FALSE(rule.MayHold(state));
  EXPECT_NE(rule.WhyNot(state).find("into 8192 pieces of unequal size; the limit is 4096"),
            std::string::npos)
      << rule.WhyNot(state);
  const Problem even = MakeProblem("a=128,b=64", "f32[8192,64]", "S(0),R", "R,S(1)");
  EXPECT_TRUE(ValueRule(even, std::nullopt).MayHold(state));
}

TEST(ValueRuleTest, NoCutIsInsideAByte) {
  const Problem problem = MakeProblem("a=2,b=2", "f4e2m1[8,4]", "S(0),S(0)", "R,S(0)");
  const ValueRule rule(problem, std::nullopt);
  State state;
  state.SetShard(0, 1, 0);
  state.SetShard(1, 1, 1);
  EXPECT_FALSE(rule.MayHold(state));
  EXPECT_EQ(rule.WhyNot(state), "an intermediate value is cut inside a byte");
}

}  // namespace
}  // namespace meshift
