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
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/internal/plan_cases.h"
#include "testing/internal/program_check.h"

namespace meshift {
namespace {

Plan MakeCase(const Case& c) {
  EXPECT_EQ(Judge(c), "") << "the case itself is wrong";
  return Plan::Seal(MakeFields(c));
}

std::string Text(const Case& c, int64_t rank) {
  const absl::StatusOr<Program> program = Lower(MakeCase(c), rank);
  return program.ok() ? program->ToString() : program.status().ToString();
}

TEST(LoweringTest, PlanWithoutStepsCopies) {
  EXPECT_EQ(Text({"a=2", "f32[4,3]", "S(0)", "S(0)", {}, 0}, 1),
            "rank 1: source f32[2,3], target f32[2,3], workspace 0\n"
            "0 copy f32 source+0 (6):(1) -> target+0 :(1)\n");
}

TEST(LoweringTest, AllReduceGoesFromSourceToTarget) {
  EXPECT_EQ(Text({"ddp=8,fsdp=5,tp=1",
                  "f32[64,40]",
                  "P,P,R",
                  "R,R,R",
                  {{kAllReduce, "ddp,fsdp", "R,R,R", 10240, 10240, 19968}},
                  0},
                 7)
                .substr(0, 90),
            "rank 7: source f32[64,40], target f32[64,40], workspace 0\n"
            "group 0 over 0,1: number 0 of {0");
}

// Slices of 2, 2, 1 and none of 5: to their owners, in order of coordinates, and from them.
TEST(LoweringTest, AllReduceInOrder) {
  PlanFields plan = MakeFields(
      {"a=2,b=2@0,2,1,3", "f32[5]", "P,P", "R,R", {{kAllReduce, "a,b", "R,R", 20, 20, 36}}, 32});
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  ASSERT_EQ(Judge(plan), "");
  const auto program = Lower(Plan::Seal(plan), 1);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(CheckProgram(*program), "");
  EXPECT_EQ(program->ToString(),
            "rank 1: source f32[5], target f32[5], workspace 32\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 copy f32 source+8 (2):(1) -> workspace+16 :(1)\n"
            "0 send_recv group 0: send [0: source+0 2, 2: source+16 1] recv [0: workspace+0 2, 2: "
            "workspace+8 2, 3: workspace+24 2] f32\n"
            "0 reduce_in_order 4 blocks at workspace+0 by 8 -> target+8, 2 f32 sum\n"
            "0 send_recv group 0: send [0: target+8 2, 2: target+8 2, 3: target+8 2] recv [0: "
            "target+0 2, 2: target+16 1] f32\n");
}

TEST(LoweringTest, AverageCarriesItsDivisor) {
  EXPECT_EQ(Text({"a=2,b=2",
                  "f32[4]",
                  "P(avg),P",
                  "R,R",
                  {{kAllReduce, "a,b", "R,R", 16, 16, 24, StepSizes::kEven, ReduceOp::kAvg, 2}},
                  0},
                 0),
            "rank 0: source f32[4], target f32[4], workspace 0\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 all_reduce group 0: source+0 -> target+0, 4 f32 avg / 2\n");
}

TEST(LoweringTest, SliceReduceGather) {
  EXPECT_EQ(Text(ThreeSteps(), 3),
            "rank 3: source f32[4,2], target f32[4,2], workspace 32\n"
            "group 0 over 0: number 1 of {1,3}\n"
            "group 1 over 1: number 1 of {2,3}\n"
            "0 copy f32 source+16 (4):(1) -> workspace+0 :(1)\n"
            "1 all_reduce group 0: workspace+0 -> workspace+16, 4 f32 sum\n"
            "2 all_gather group 1: workspace+16 -> target+0, 4 f32\n");
}

TEST(LoweringTest, PaddedGather) {
  const Case c = {"a=3", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 8, 20, 16, kPadded}}, 48};
  EXPECT_EQ(
      Text(c, 0),
      "rank 0: source f32[2], target f32[5], workspace 48\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 all_gather group 0: source+0 -> workspace+0, 2 f32\n"
      "0 copy f32 workspace+0 (2):(1) -> target+0 :(1); workspace+8 (2):(1) -> target+8 :(1); "
      "workspace+16 (1):(1) -> target+16 :(1)\n");
  EXPECT_EQ(
      Text(c, 2),
      "rank 2: source f32[1], target f32[5], workspace 48\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 copy f32 source+0 (1):(1) -> workspace+0 :(1)\n"
      "0 fill_zero workspace+4, 4 bytes\n"
      "0 all_gather group 0: workspace+0 -> workspace+16, 2 f32\n"
      "0 copy f32 workspace+16 (2):(1) -> target+0 :(1); workspace+24 (2):(1) -> target+8 :(1); "
      "workspace+32 (1):(1) -> target+16 :(1)\n");
}

TEST(LoweringTest, PaddedScatter) {
  const Case c = {"a=3", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 16, kPadded}},
                  48};
  EXPECT_EQ(
      Text(c, 1),
      "rank 1: source f32[5], target f32[2], workspace 48\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 copy f32 source+0 (2):(1) -> workspace+0 :(1); source+8 (2):(1) -> workspace+8 :(1); "
      "source+16 (1):(1) -> workspace+16 :(1)\n"
      "0 fill_zero workspace+20, 4 bytes\n"
      "0 reduce_scatter group 0: workspace+0 -> target+0, 2 f32 sum\n");
  EXPECT_EQ(
      Text(c, 2),
      "rank 2: source f32[5], target f32[1], workspace 48\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 copy f32 source+0 (2):(1) -> workspace+0 :(1); source+8 (2):(1) -> workspace+8 :(1); "
      "source+16 (1):(1) -> workspace+16 :(1)\n"
      "0 fill_zero workspace+20, 4 bytes\n"
      "0 reduce_scatter group 0: workspace+0 -> workspace+32, 2 f32 sum\n"
      "0 copy f32 workspace+32 (1):(1) -> target+0 :(1)\n");
}

TEST(LoweringTest, PaddingRunsOverEmptyBlocks) {
  EXPECT_EQ(
      Text({"a=4", "f32[2]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 8, 4, 12, kPadded}}, 32},
           3),
      "rank 3: source f32[2], target f32[0], workspace 32\n"
      "group 0 over 0: number 0 of {0,1,2,3}\n"
      "0 copy f32 source+0 (1):(1) -> workspace+0 :(1); source+4 (1):(1) -> workspace+4 :(1)\n"
      "0 fill_zero workspace+8, 8 bytes\n"
      "0 reduce_scatter group 0: workspace+0 -> workspace+16, 1 f32 sum\n");
}

// The communicator counts ranks in ascending order, so blocks change places.
TEST(LoweringTest, ListedRanksPackByRank) {
  const Case c = {"a=4@2,0,1,3", "f32[8]", "S(0)", "R", {{kAllGather, "a", "R", 8, 32, 24}}, 32};
  EXPECT_EQ(
      Text(c, 2),
      "rank 2: source f32[2], target f32[8], workspace 32\n"
      "group 0 over 0: number 0 of {0,1,2,3}\n"
      "0 all_gather group 0: source+0 -> workspace+0, 2 f32\n"
      "0 copy f32 workspace+0 (2):(1) -> target+8 :(1); workspace+8 (2):(1) -> target+16 :(1); "
      "workspace+16 (2):(1) -> target+0 :(1); workspace+24 (2):(1) -> target+24 :(1)\n");
}

// Receivers want whole rows of what they will hold, which need no unpacking.
TEST(LoweringTest, AllToAllPacksAndKeepsItsOwn) {
  const Case c = {"a=3", "f32[5,3]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 20, 16, kExact}},
                  16};
  EXPECT_EQ(
      Text(c, 0),
      "rank 0: source f32[2,3], target f32[5,1], workspace 16\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 copy f32 source+4 (2):(3) -> workspace+0 :(1); source+8 (2):(3) -> workspace+8 :(1); "
      "source+0 (2):(3) -> target+0 :(1)\n"
      "0 send_recv group 0: send [1: workspace+0 2, 2: workspace+8 2] recv [1: target+8 2, 2: "
      "target+16 1] f32\n");
  // This rank has one row.
  EXPECT_EQ(
      Text(c, 2),
      "rank 2: source f32[1,3], target f32[5,1], workspace 16\n"
      "group 0 over 0: number 0 of {0,1,2}\n"
      "0 copy f32 source+8 (1):(1) -> target+16 :(1)\n"
      "0 send_recv group 0: send [0: source+0 1, 1: source+4 1] recv [0: target+0 2, 1: target+8 "
      "2] f32\n");
}

TEST(LoweringTest, AllToAllOfRunsCopiesItsOwnOnly) {
  const Case rows = {"a=3", "f32[3,6]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 24, 16}}, 0};
  EXPECT_EQ(Text(rows, 1),
            "rank 1: source f32[1,6], target f32[3,2], workspace 0\n"
            "group 0 over 0: number 0 of {0,1,2}\n"
            "0 copy f32 source+8 (2):(1) -> target+8 :(1)\n"
            "0 send_recv group 0: send [0: source+0 2, 2: source+16 2] recv [0: target+0 2, 2: "
            "target+16 2] f32\n");
  const Case back = {"a=3", "f32[3,6]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 24, 24, 16}}, 0};
  EXPECT_EQ(Text(back, 1),
            "rank 1: source f32[3,2], target f32[1,6], workspace 0\n"
            "group 0 over 0: number 0 of {0,1,2}\n"
            "0 copy f32 source+8 (2):(1) -> target+8 :(1)\n"
            "0 send_recv group 0: send [0: source+0 2, 2: source+16 2] recv [0: target+0 2, 2: "
            "target+16 2] f32\n");
}

// Rows are sent from where they lie, and end up in columns.
TEST(LoweringTest, AllToAllUnpacksColumns) {
  const Case c = {"a=2", "f32[4,4]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 32, 32, 16}}, 16};
  EXPECT_EQ(Text(c, 0),
            "rank 0: source f32[4,2], target f32[2,4], workspace 16\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 copy f32 source+0 (2,2):(2,1) -> target+0 :(4,1)\n"
            "0 send_recv group 0: send [1: source+16 4] recv [1: workspace+0 4] f32\n"
            "0 copy f32 workspace+0 (2,2):(2,1) -> target+8 :(4,1)\n");
}

// What is sent and what is received share memory: one of the two is copied as a whole.
TEST(LoweringTest, AllToAllInOneBufferGoesByWayOfACopy) {
  const Plan plan =
      MakeCase({"a=2", "f32[2,4]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 16, 16, 8}}, 0});
  const absl::StatusOr<Program> program = Lower(plan, 0, {.one_buffer = true});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->ToString(),
            "rank 0: source f32[1,4], target f32[2,2], workspace 16, one buffer\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 copy f32 source+0 (4):(1) -> workspace+0 :(1)\n"
            "0 copy f32 workspace+0 (2):(1) -> target+0 :(1)\n"
            "0 send_recv group 0: send [1: workspace+8 2] recv [1: target+8 2] f32\n");
  EXPECT_EQ(CheckProgram(*program), "");
}

// Memory that is still to be sent from takes nothing that is received.
TEST(LoweringTest, ConsumedSourceStaysUntilItIsSent) {
  const Case c = {"a=2", "f32[4,4]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 32, 32, 16}}, 16};
  const absl::StatusOr<Program> program = Lower(MakeCase(c), 0, {.consume_source = true});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->workspace_bytes, 16);
  EXPECT_EQ(CheckProgram(*program), "");
}

// Each message is a row of the target, which has gaps; the source has gaps between its elements.
TEST(LoweringTest, AllToAllOfStridedTensorsPacksWhatIsNoRun) {
  const Case c = {"a=3", "f32[3,6]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 24, 16}}, 0};
  const absl::StatusOr<Program> program =
      Lower(MakeCase(c), 1, {.source_strides = {12, 2}, .target_strides = {5, 1}});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->ToString(),
            "rank 1: source f32[1,6]:(12,2), target f32[3,2]:(5,1), workspace 16\n"
            "group 0 over 0: number 0 of {0,1,2}\n"
            "0 copy f32 source+0 (2):(2) -> workspace+0 :(1); source+32 (2):(2) -> workspace+8 "
            ":(1); source+16 (2):(2) -> target+20 :(1)\n"
            "0 send_recv group 0: send [0: workspace+0 2, 2: workspace+8 2] recv [0: target+0 2, "
            "2: target+40 2] f32\n");
}

TEST(LoweringTest, ExchangeSendsCopiesToReplicas) {
  const Case c = {"a=2,b=2", "f32[4]", "S(0),R", "R,S(0)", {{kExchange, "a,b", "R,S(0)", 8, 8, 8}},
                  0};
  EXPECT_EQ(Text(c, 0),
            "rank 0: source f32[2], target f32[2], workspace 0\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 copy f32 source+0 (2):(1) -> target+0 :(1)\n"
            "0 send_recv group 0: send [2: source+0 2] recv [] f32\n");
  EXPECT_EQ(Text(c, 1),
            "rank 1: source f32[2], target f32[2], workspace 0\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [] recv [3: target+0 2] f32\n");
}

TEST(LoweringTest, PermuteSendsWholeBoxes) {
  const Case c = {"a=2,b=2",
                  "f32[8]",
                  "S(0),S(0)",
                  "S(0)[1],S(0)[0]",
                  {{kPermute, "a,b", "S(0)[1],S(0)[0]", 8, 8, 8}},
                  0};
  EXPECT_EQ(Text(c, 0),
            "rank 0: source f32[2], target f32[2], workspace 0\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 copy f32 source+0 (2):(1) -> target+0 :(1)\n"
            "0 send_recv group 0: send [] recv [] f32\n");
  EXPECT_EQ(Text(c, 1),
            "rank 1: source f32[2], target f32[2], workspace 0\n"
            "group 0 over 0,1: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [2: source+0 2] recv [2: target+0 2] f32\n");
}

TEST(LoweringTest, MasksFillAndKeep) {
  const Case c = {"a=2,b=2", "f32[]", "P,R", "P,P", {{kMask, "b", "P,P", 4, 4, 0}}, 0};
  EXPECT_EQ(Text(c, 0),
            "rank 0: source f32[], target f32[], workspace 0\n"
            "0 copy f32 source+0 (1):(1) -> target+0 :(1)\n");
  EXPECT_EQ(Text(c, 1),
            "rank 1: source f32[], target f32[], workspace 0\n"
            "0 fill_identity target+0, 1 f32 sum\n");
  EXPECT_EQ(Text({"a=2", "f32[3]", "S(0)", "P", {{kMask, "a", "P", 8, 12, 0}}, 0}, 1),
            "rank 1: source f32[1], target f32[3], workspace 0\n"
            "0 fill_identity target+0, 3 f32 sum\n"
            "0 copy f32 source+0 (1):(1) -> target+8 :(1)\n");
  EXPECT_EQ(Text({"a=2", "f32[2]", "R", "P(avg)", {{kMask, "a", "P(avg)", 8, 8, 0}}, 0}, 1),
            "rank 1: source f32[2], target f32[2], workspace 0\n"
            "0 copy f32 source+0 (2):(1) -> target+0 :(1)\n");
}

std::string PlannedText(const std::string& mesh, const std::string& from, const std::string& to,
                        const std::string& placements, DType dtype, int64_t rank,
                        const LoweringOptions& options = {}, const PlannerOptions& planning = {}) {
  const Sharding source =
      Sharding::Parse(from, DeviceMesh::Parse(mesh).value(), placements).value();
  const Sharding target = source.WithPlacements(to).value().WithDType(dtype).value();
  const absl::StatusOr<Plan> plan = MakePlan(source, target, planning);
  if (!plan.ok()) return plan.status().ToString();
  const absl::StatusOr<Program> program = Lower(*plan, rank, options);
  return program.ok() ? program->ToString() : program.status().ToString();
}

TEST(LoweringTest, CastsComeBeforeMovesWhereTheyNarrow) {
  EXPECT_EQ(PlannedText("a=2", "f32[8]", "R", "S(0)", DType::kBF16, 1),
            "rank 1: source f32[4], target bf16[8], workspace 16\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 cast source+0 -> workspace+0, 4 f32 to bf16\n"
            "1 all_gather group 0: workspace+0 -> target+0, 4 bf16\n");
}

TEST(LoweringTest, CastsComeAfterMovesWhereTheyWiden) {
  EXPECT_EQ(PlannedText("a=2", "bf16[8]", "R", "S(0)", DType::kF32, 1),
            "rank 1: source bf16[4], target f32[8], workspace 16\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 all_gather group 0: source+0 -> workspace+0, 4 bf16\n"
            "1 cast workspace+0 -> target+0, 8 bf16 to f32\n");
}

TEST(LoweringTest, CastAlone) {
  EXPECT_EQ(PlannedText("a=2", "i64[3]", "R", "R", DType::kF8E4M3, 1),
            "rank 1: source i64[3], target f8e4m3[3], workspace 0\n"
            "0 cast source+0 -> target+0, 3 i64 to f8e4m3\n");
}

TEST(LoweringTest, F4e2m1IsMovedAsBytes) {
  EXPECT_EQ(
      PlannedText("a=2", "f4e2m1[4,8]", "S(1)", "S(0)", DType::kF4E2M1, 1, {}, {.max_value = 0}),
      "rank 1: source u8[2,4], target u8[4,2], workspace 16\n"
      "group 0 over 0: number 0 of {0,1}\n"
      "0 copy u8 source+0 (2,2):(4,1) -> workspace+0 :(2,1); source+2 (2,2):(4,1) -> target+4 "
      ":(2,1)\n"
      "0 send_recv group 0: send [0: workspace+0 4] recv [0: target+0 4] u8\n");
}

TEST(LoweringTest, TensorWithoutElementsNeedsNoGroup) {
  EXPECT_EQ(Text({"a=2", "f32[0]", "S(0)", "R", {{kAllGather, "a", "R", 0, 0, 0}}, 0}, 1),
            "rank 1: source f32[0], target f32[0], workspace 0\n");
}

// One rank's group has nothing to do, but every rank names the partition.
TEST(LoweringTest, IdleGroupMakesNoCall) {
  const Case c = {
      "a=4,b=2", "f32[3]", "S(0),S(0)", "S(0),R", {{kAllGather, "b", "S(0),R", 4, 4, 4, kPadded}},
      32};
  EXPECT_EQ(Text(c, 7),
            "rank 7: source f32[0], target f32[0], workspace 32\n"
            "group 0 over 1: number 3 of {6,7}\n");
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
  EXPECT_EQ(Refusal(wire), "UNIMPLEMENTED: all_gather{a} -> R: f32 cannot travel as bf16 yet");

  PlanFields meshes = MakeFields(gather);
  meshes.meshes.push_back(DeviceMesh::Parse("b=2").value());
  EXPECT_EQ(
      Refusal(meshes),
      "INVALID_ARGUMENT: the plan goes from mesh a=2 to mesh a=2, which are not its first and "
      "last");
  meshes.meshes.pop_back();
  meshes.meshes.push_back(meshes.meshes[0]);
  EXPECT_EQ(Refusal(meshes), "INVALID_ARGUMENT: the plan has 2 meshes, not one or two that differ");

  PlanFields cast = MakeFields(gather);
  cast.steps[0].op = StepOp::kCast;
  EXPECT_EQ(Refusal(cast), "INVALID_ARGUMENT: cast{f32} -> R is over mesh dims");
  cast.steps[0].mesh_dims = {};
  EXPECT_EQ(Refusal(cast), "INVALID_ARGUMENT: cast{f32} -> R moves mesh dim a");
  PlanFields target = MakeFields(gather);
  target.to = target.to.WithDType(DType::kBF16).value();
  EXPECT_EQ(Refusal(target), "INVALID_ARGUMENT: the plan ends with f32, not with bf16");
}

TEST(LoweringTest, RefusesStepsThatCannotBe) {
  const Case gather = {"a=2", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 12, 20, 12}}, 48};
  PlanFields small = MakeFields(gather);
  small.total.workspace_bytes = 32;
  EXPECT_EQ(Refusal(small, 1),
            "INVALID_ARGUMENT: step 0 needs 8 bytes beyond the workspace's 32 on rank 1");

  PlanFields wrong_op = MakeFields(gather);
  wrong_op.steps[0].op = StepOp::kReduceScatter;
  wrong_op.steps[0].reduce_op = ReduceOp::kSum;
  EXPECT_EQ(Refusal(wrong_op), "INVALID_ARGUMENT: reduce_scatter{a} -> R removes cuts");
  wrong_op.steps[0].op = StepOp::kSlice;
  EXPECT_EQ(Refusal(wrong_op),
            "INVALID_ARGUMENT: slice{a} -> R: rank 0 holds [0:3], which lacks part of [0:5]");
  wrong_op.steps[0].op = StepOp::kPermute;
  EXPECT_EQ(Refusal(wrong_op),
            "INVALID_ARGUMENT: permute{a} -> R is no permutation: tensor dim 0 has 1 cuts before "
            "and 0 after");
  wrong_op.steps[0].op = StepOp::kMask;
  EXPECT_EQ(Refusal(wrong_op),
            "INVALID_ARGUMENT: mask{a} -> R: mesh dim a does not become partial");
  wrong_op.steps[0].op = StepOp::kAllReduce;
  EXPECT_EQ(Refusal(wrong_op), "INVALID_ARGUMENT: all_reduce{a} -> R changes boxes");

  PlanFields elsewhere = MakeFields(gather);
  elsewhere.to = elsewhere.from;
  EXPECT_EQ(Refusal(elsewhere),
            "INVALID_ARGUMENT: the plan ends with [0:5] on rank 0, not with [0:3]");

  PlanFields dims =
      MakeFields({"a=2,b=2", "f32[4]", "S(0),R", "R,R", {{kAllGather, "b", "R,R", 8, 16, 8}}, 0});
  EXPECT_EQ(Refusal(dims),
            "INVALID_ARGUMENT: mesh dim a moves and is not among the mesh dims of all_gather{b} -> "
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
