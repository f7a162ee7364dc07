#include "planner/plan/expanded_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

Plan PlanOf(const std::string& tensor, const std::string& mesh, const std::string& from,
            const std::string& to) {
  const DeviceMesh parsed = *DeviceMesh::Parse(mesh);
  return *MakePlan(*Sharding::Parse(tensor, parsed, from), *Sharding::Parse(tensor, parsed, to));
}

std::vector<std::string> StepsOf(const PlanFields& plan) {
  std::vector<std::string> steps;
  for (const Step& step : plan.steps) steps.push_back(step.ToString());
  return steps;
}

TEST(ExpandedPlanTest, OwnersBecomeCuts) {
  const Plan plan = PlanOf("f32[64,8]", "a=4,b=2", "At(2),S(1)", "R,S(1)");
  EXPECT_EQ(StepsOf(plan.fields()), std::vector<std::string>{"broadcast{a} -> R,S(1)"});
  const UnitDims units = UnitDimsOf(plan.fields());
  const PlanFields cuts = *ExpandPlan(plan.fields(), units);
  EXPECT_EQ(cuts.from.PlacementsText(), "S(0){0,0,1,0},S(2)");
  EXPECT_EQ(StepsOf(cuts), std::vector<std::string>{"all_gather{a} -> R,S(2)"});
  EXPECT_TRUE(plan.steps()[0].tensor_dims.empty());
  EXPECT_EQ(cuts.steps[0].tensor_dims, DimSet{0});
}

TEST(ExpandedPlanTest, NamesOfRootedOps) {
  for (const StepOp op :
       {StepOp::kBroadcast, StepOp::kReduce, StepOp::kGather, StepOp::kScatter, StepOp::kSend}) {
    EXPECT_TRUE(IsCollective(op));
    EXPECT_NE(OpOnCuts(op), op);
    EXPECT_EQ(IsReduction(op), op == StepOp::kReduce);
    EXPECT_EQ(*ParseStepOp(Name(op)), op);
  }
  EXPECT_EQ(OpOnCuts(StepOp::kExchange), StepOp::kExchange);
}

TEST(ExpandedPlanTest, APlanWithAtIsOfVersion2) {
  const Plan at = PlanOf("f32[64]", "a=4", "At(2)", "S(0)");
  const Plan cuts = PlanOf("f32[64]", "a=4", "R", "S(0)");
  EXPECT_TRUE(HasAt(at.fields()));
  EXPECT_FALSE(HasAt(cuts.fields()));
  EXPECT_NE(PlanToJson(at).find("\"version\": 2"), std::string::npos);
  EXPECT_NE(PlanToJson(cuts).find("\"version\": 1"), std::string::npos);
  EXPECT_EQ(PlanToText(at).rfind("# meshift plan 2: f32[64], At(2) -> S(0)", 0), 0);
  EXPECT_EQ(PlanToText(cuts).rfind("# meshift plan: ", 0), 0);
  EXPECT_EQ(*PlanFromJson(PlanToJson(at)), at);
  EXPECT_EQ(*PlanFromText(PlanToText(at)), at);
}

TEST(ExpandedPlanTest, RootedOpsNeedTheirPlacements) {
  const Plan plan = PlanOf("f32[64]", "a=4", "At(2)", "R");
  PlanFields fields = plan.fields();
  fields.steps[0].op = StepOp::kScatter;
  EXPECT_EQ(FindRootedFault(fields), std::nullopt);  // R is not At either
  fields.steps[0].op = StepOp::kSend;
  EXPECT_EQ(FindRootedFault(fields)->message,
            "send needs At on mesh dim a, which is R after the step");
  fields.steps[0].op = StepOp::kReduce;
  EXPECT_EQ(FindRootedFault(fields)->message,
            "reduce needs no At on mesh dim a, which is At(2) before the step");
}

// A ragged cut with one owner is read as At where it must be; its plans stay of version 1.
TEST(ExpandedPlanTest, NotationsOfOneOwnerHaveOnePlan) {
  const char* kMesh = "ep=4,tp=2";
  const char* kTensor = "bf16[128,64]";
  const Plan at = PlanOf(kTensor, kMesh, "At(1),S(0)", "R,S(0)");
  for (const char* from : {"S(0){0,128,0,0},S(0)", "S(1){0,64,0,0},S(0)"}) {
    const Plan plan = PlanOf(kTensor, kMesh, from, "R,S(0)");
    EXPECT_EQ(plan.total(), at.total()) << from;
    EXPECT_FALSE(HasAt(plan.fields()));
    EXPECT_TRUE(Verify(plan).ok()) << from << ": " << Verify(plan).fault->message;
  }
}

}  // namespace
}  // namespace meshift
