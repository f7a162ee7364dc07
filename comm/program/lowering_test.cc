// Fields of programs that their text does not show, and plans that are refused. golden_test.txt has
// the texts.
#include "comm/program/lowering.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/program/program.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"
#include "testing/internal/program_check.h"

namespace meshift {
namespace {

Plan MakeCase(const Case& c) {
  EXPECT_EQ(Judge(c), "") << "the case itself is wrong";
  return Plan::Seal(MakeFields(c));
}

// Nothing is received into memory that is still to be sent.
TEST(LoweringTest, ConsumedSourceStaysUntilItIsSent) {
  const Case c = {"a=2", "f32[4,4]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 32, 32, 16}}, 16};
  const absl::StatusOr<Program> program = Lower(MakeCase(c), 0, {.consume_source = true});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->workspace_bytes, 16);
  EXPECT_EQ(CheckProgram(*program), "");
}

TEST(LoweringTest, SeveralPartitionsInPlanOrder) {
  const Case c = {"a=2,b=2,c=2",
                  "f32[4]",
                  "P,P,S(0)",
                  "R,R,R",
                  {{kReduceScatter, "a", "S(0)[1],P,S(0)[0]", 8, 4, 4},
                   {kAllReduce, "b", "S(0)[1],R,S(0)[0]", 4, 4, 4},
                   {kAllGather, "a", "R,R,S(0)", 4, 8, 4},
                   {kAllGather, "c", "R,R,R", 8, 16, 8}},
                  32};
  const Program program = Lower(MakeCase(c), 5).value();
  ASSERT_EQ(program.groups.size(), 3);
  EXPECT_EQ(program.groups[0].ranks, RankList({1, 5}));
  EXPECT_EQ(program.groups[0].number, 1);
  EXPECT_EQ(program.groups[1].ranks, RankList({5, 7}));
  EXPECT_EQ(program.groups[1].number, 3);
  EXPECT_EQ(program.groups[2].ranks, RankList({4, 5}));
  EXPECT_EQ(program.groups[2].number, 2);
  EXPECT_EQ(program.instructions.back().group, 2);
}

std::string Refusal(PlanFields fields, int64_t rank = 0) {
  const absl::StatusOr<Program> program = Lower(Plan::FromParts(std::move(fields), {}), rank);
  return program.ok() ? "lowered" : program.status().ToString();
}

TEST(LoweringTest, RefusesWhatItCannotRun) {
  const Case gather = {"a=2", "f32[4]", "S(0)", "R", {{kAllGather, "a", "R", 8, 16, 8}}, 0};
  EXPECT_EQ(Refusal(MakeFields(gather), -1), "INVALID_ARGUMENT: rank -1 is negative");

  PlanFields wire = MakeFields(gather);
  wire.steps[0].wire_dtype = DType::kBF16;
  EXPECT_EQ(Refusal(wire), "UNIMPLEMENTED: all_gather{a} -> R: f32 cannot be sent as bf16 yet");

  PlanFields meshes = MakeFields(gather);
  meshes.meshes.push_back(DeviceMesh::Parse("b=2").value());
  EXPECT_EQ(
      Refusal(meshes),
      "INVALID_ARGUMENT: the plan starts on mesh a=2 and ends on mesh a=2; expected its first and "
      "its last mesh");
  meshes.meshes.pop_back();
  meshes.meshes.push_back(meshes.meshes[0]);
  EXPECT_EQ(Refusal(meshes),
            "INVALID_ARGUMENT: the plan has 2 meshes; expected one, or two different ones");

  PlanFields cast = MakeFields(gather);
  cast.steps[0].op = StepOp::kCast;
  EXPECT_EQ(Refusal(cast), "INVALID_ARGUMENT: cast{f32} -> R must not name mesh dims");
  cast.steps[0].mesh_dims = {};
  EXPECT_EQ(Refusal(cast), "INVALID_ARGUMENT: cast{f32} -> R must not change mesh dim a");
  PlanFields relabel = MakeFields(gather);
  relabel.steps[0].op = StepOp::kRelabel;
  EXPECT_EQ(Refusal(relabel),
            "INVALID_ARGUMENT: relabel{onto mesh 0} -> R must lead to a mesh other than a=2");
  PlanFields target = MakeFields(gather);
  target.to = target.to.WithDType(DType::kBF16).value();
  EXPECT_EQ(Refusal(target), "INVALID_ARGUMENT: the plan ends with f32, not with bf16");
}

TEST(LoweringTest, RefusesStepsThatCannotBe) {
  const Case gather = {"a=2", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 12, 20, 12}}, 48};
  PlanFields small = MakeFields(gather);
  small.total.workspace_bytes = 32;
  EXPECT_EQ(Refusal(small, 1),
            "INVALID_ARGUMENT: step 0 needs 8 bytes more than the workspace of 32 bytes on rank 1");

  PlanFields wrong_op = MakeFields(gather);
  wrong_op.steps[0].op = StepOp::kReduceScatter;
  wrong_op.steps[0].reduce_op = ReduceOp::kSum;
  EXPECT_EQ(Refusal(wrong_op), "INVALID_ARGUMENT: reduce_scatter{a} -> R must not remove cuts");
  wrong_op.steps[0].op = StepOp::kSlice;
  EXPECT_EQ(Refusal(wrong_op),
            "INVALID_ARGUMENT: slice{a} -> R: rank 0 holds [0:3], which does not contain [0:5]");
  wrong_op.steps[0].op = StepOp::kPermute;
  EXPECT_EQ(
      Refusal(wrong_op),
      "INVALID_ARGUMENT: permute{a} -> R is not a permutation: tensor dim 0 has 1 cuts before "
      "and 0 after");
  wrong_op.steps[0].op = StepOp::kMask;
  EXPECT_EQ(Refusal(wrong_op),
            "INVALID_ARGUMENT: mask{a} -> R: mesh dim a does not become partial");
  wrong_op.steps[0].op = StepOp::kAllReduce;
  EXPECT_EQ(Refusal(wrong_op), "INVALID_ARGUMENT: all_reduce{a} -> R must not change boxes");

  PlanFields elsewhere = MakeFields(gather);
  elsewhere.to = elsewhere.from;
  EXPECT_EQ(Refusal(elsewhere),
            "INVALID_ARGUMENT: the plan ends with [0:5] on rank 0, not with [0:3]");

  PlanFields dims =
      MakeFields({"a=2,b=2", "f32[4]", "S(0),R", "R,R", {{kAllGather, "b", "R,R", 8, 16, 8}}, 0});
  EXPECT_EQ(
      Refusal(dims),
      "INVALID_ARGUMENT: mesh dim a changes, but is not among the mesh dims of all_gather{b} -> "
      "R,R");
}

TEST(LoweringTest, CheckProgramFindsFaults) {
  Program program =
      Lower(MakeCase(
                {"a=3", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 8, 20, 16, kPadded}}, 48}),
            2)
          .value();
  ASSERT_EQ(CheckProgram(program), "");
  Program unpadded = program;
  unpadded.instructions.erase(unpadded.instructions.begin() + 1);
  EXPECT_EQ(CheckProgram(unpadded), "workspace+4 is not written");
  Program short_copy = program;
  short_copy.copies.back().shape[0] = 0;
  short_copy.instructions.back().copies.size -= 1;
  EXPECT_EQ(CheckProgram(short_copy), "target+16 is never written");
  Program beyond = program;
  beyond.copies.back().dst.offset = 20;
  EXPECT_EQ(CheckProgram(beyond), "target+20 with 4 bytes is out of bounds");
}

}  // namespace
}  // namespace meshift
