#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/testing.h"
#include "testing/plan_runner.h"
#include "testing/synthetic_mesh.h"

namespace meshift::testkit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Sharding Parsed(const std::string& text) { return *Sharding::Parse(text); }

// A plan with fields changed by `change`.
template <typename Change>
Plan Damaged(const Plan& plan, Change change) {
  PlanFields fields = plan.fields();
  change(fields);
  return Plan::Seal(std::move(fields));
}

TEST(RedistributeAndCheck, TheCaseThatStartedIt) {
  const Sharding from = Parsed("bf16[24,16] on ddp=8,fsdp=5,tp=1 as P,P,R");
  const Sharding to = *from.WithPlacements("R,R,R");
  const auto result = RedistributeAndCheck({.from = from, .to = to});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok()) << result->ToString();
  EXPECT_EQ(result->ToString(), "");
  EXPECT_THAT(result->plan, Takes({"all_reduce{ddp,fsdp}"}));
  EXPECT_EQ(result->bytes_planned, 2 * 24 * 16 * 2 * 39 / 40 + 1);  // rounded up
  EXPECT_EQ(result->bytes_counted, result->bytes_planned);
}

TEST(RedistributeAndCheck, DTypesShapesAndMeshesOfAnyKind) {
  for (const auto& [text, placements] : {
           std::pair{"f32[7,5] on a=2,b=3 as P,S(0)", "S(1),R"},
           std::pair{"f32[7,5] on a=2,b=3@5,0-4 as S(0),S(0)", "S(0)[1],S(0)[0]"},
           std::pair{"i8[9] on a=4 as P(avg)", "S(0)"},
           std::pair{"f16[9] on a=4 as P(min)", "R"},
           std::pair{"u64[3,3] on a=2,b=2 as P(xor),P(xor)", "R,S(0)"},
           std::pair{"f64[] on a=2,b=2 as P,R", "R,R"},
           std::pair{"bf16[0,4] on a=3 as S(0)", "R"},
           std::pair{"c64[5] on a=3 as R", "P(product)"},
       }) {
    const Sharding from = Parsed(text);
    const auto result =
        RedistributeAndCheck({.from = from, .to = *from.WithPlacements(placements), .seed = 7});
    ASSERT_TRUE(result.ok()) << text << ": " << result.status();
    EXPECT_TRUE(result->ok()) << text << " -> " << placements << ": " << result->ToString();
    EXPECT_EQ(result->bytes_counted, result->bytes_planned) << text;
  }
}

TEST(RedistributeAndCheck, FromOneMeshToAnother) {
  for (const auto& [from_text, to_text] : {
           std::pair{"f32[7,5] on a=2,b=3 as P,S(0)", "f32[7,5] on c=4@4-7 as S(1)"},
           std::pair{"f32[8] on a=8 as S(0)",
                     "f32[8] on b=2,c=4@5,1,0,7,2,3,4,6 as S(0)[1],S(0)[0]"},
           std::pair{"bf16[6,2] on a=3 as P(avg)", "f32[6,2] on b=1@2 as R"},
           std::pair{"i32[9] on a=4@1,9,5,3 as S(0){0,4,4,1}",
                     "i32[9] on b=2,c=2@3-6 as P(min),S(0)"},
           std::pair{"u8[0,4] on a=2 as S(0)", "u8[0,4] on b=2@2-3 as R"},
       }) {
    const Sharding from = Parsed(from_text);
    const Sharding to = Parsed(to_text);
    const auto result = RedistributeAndCheck({.from = from, .to = to, .seed = 7});
    ASSERT_TRUE(result.ok()) << from_text << " -> " << to_text << ": " << result.status();
    EXPECT_TRUE(result->ok()) << from_text << " -> " << to_text << ": " << result->ToString();
    EXPECT_EQ(result->bytes_counted, result->bytes_planned) << from_text << " -> " << to_text;
  }
}

// Ranks would have to send data, which a relabel does not.
TEST(RunAndCheck, RefusesARelabelThatLacksData) {
  const Sharding from = Parsed("i32[6] on a=3 as S(0)");
  const Sharding to = Parsed("i32[6] on b=3@2,0,1 as S(0)");
  const Plan plan = *MakePlan(from, to);
  const auto result = RunAndCheck(Damaged(plan, [](PlanFields& fields) {
    Step& step = fields.steps[0];
    step.op = StepOp::kRelabel;
    step.group_size = step.groups = std::nullopt;
    step.sizes = std::nullopt;
    step.wire_dtype = std::nullopt;
    step.bytes_sent = fields.total.bytes_sent = fields.total.collectives = 0;
  }));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
}

// One collective per mesh dim sums twice; the plan promises nothing.
TEST(RedistributeAndCheck, ShowsReplicasThatDiffer) {
  const Sharding from = Parsed("f32[16,4] on ddp=4,fsdp=2 as P,P");
  const Sharding to = *from.WithPlacements("R,R");
  const auto result =
      RedistributeAndCheck({.from = from, .to = to, .planner = {.planner = PlannerKind::kPerDim}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->plan.kept(), Reproducibility::kNone);
  EXPECT_EQ(result->wrong, 0);
  EXPECT_EQ(result->replicas_differ, 16 * 4);
  EXPECT_THAT(result->first_difference, HasSubstr(" differ at ["));
  EXPECT_TRUE(result->ok());

  // The same steps with a promise that they do not keep.
  const auto lying = RunAndCheck(
      Damaged(result->plan, [](PlanFields& fields) { fields.kept = Reproducibility::kReplicas; }));
  ASSERT_TRUE(lying.ok()) << lying.status();
  EXPECT_EQ(lying->replicas_differ, 16 * 4);
  EXPECT_FALSE(lying->ok());
  EXPECT_THAT(lying->ToString(), StartsWith("refused by the verifier: step 1: promise: "));
  EXPECT_THAT(lying->ToString(), HasSubstr("\n64 replicated elements differ: ranks "));
}

TEST(RunAndCheck, FindsAPlanThatDoesNothing) {
  const Sharding from = Parsed("i32[6] on a=3 as P");
  const Plan plan = *MakePlan(from, *from.WithPlacements("R"));
  const auto result =
      RunAndCheck(Damaged(plan, [](PlanFields& fields) { fields.steps.clear(); }), 3);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->wrong, 0);
  EXPECT_THAT(result->first_wrong, StartsWith("rank "));
  EXPECT_EQ(result->bytes_counted, 0);
  EXPECT_FALSE(result->ok());
  EXPECT_THAT(result->ToString(), StartsWith("refused by the verifier: target: "));
  EXPECT_THAT(result->ToString(), HasSubstr(" wrong elements: rank "));
}

TEST(RunAndCheck, FindsBytesThatWereNotPlanned) {
  const Sharding from = Parsed("i32[6] on a=3 as S(0)");
  const Plan plan = *MakePlan(from, *from.WithPlacements("R"));
  const auto result =
      RunAndCheck(Damaged(plan, [](PlanFields& fields) { fields.steps[0].bytes_sent = 15; }));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->wrong, 0);
  EXPECT_EQ(result->bytes_planned, 15);
  EXPECT_EQ(result->bytes_counted, 16);
  EXPECT_EQ(result->first_bytes_differ, "step 0 (all_gather{a}) sends 16 bytes, planned 15");
  EXPECT_FALSE(result->ok());
  EXPECT_THAT(result->ToString(), HasSubstr(result->first_bytes_differ));
}

TEST(RedistributeAndCheck, SaysWhyThereIsNoPlan) {
  const Sharding from = Parsed("f32[6] on a=3 as P");
  const auto refused = RedistributeAndCheck({.from = from, .to = *from.WithPlacements("P(max)")});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
}

// A runner may have more ranks than the plan, and a mesh with other dims.
TEST(PlanRunner, RunsPlansOnSomeOfItsRanks) {
  const auto runner = PlanRunner::Create(*DeviceMesh::Parse("ranks=5@0-2,6,8"));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const Sharding from = Parsed("f32[6] on a=5@8,0-2,6 as P");
  const Plan plan = *MakePlan(from, *from.WithPlacements("S(0)"));
  const Pass passes[] = {{.fill = {.values = Values::kExact, .seed = 1}}};
  const auto run = (*runner)->Run(plan, passes);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->data.ok()) << run->data.ToString();
  ASSERT_EQ(run->rank_bytes_sent.size(), 5);
}

TEST(PlanRunner, RefusesOtherRanksAndHugeWorlds) {
  const auto runner = PlanRunner::Create(*SyntheticMesh({3}));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const Sharding from = Parsed("f32[6] on a=4 as S(0)");
  const Plan plan = *MakePlan(from, *from.WithPlacements("R"));
  const absl::Status other = (*runner)->Run(plan, {}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(other), "rank 3 of f32[6] on a=4 as S(0) is not in mesh d0=3");

  const auto huge = PlanRunner::Create(*DeviceMesh::Parse("a=2@0,1048576"));
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(huge.status()),
            "rank 1048576 needs a world of 1048577 ranks; a test may have at most 1048576");
}

}  // namespace
}  // namespace meshift::testkit
