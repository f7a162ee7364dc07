// Merged programs, the decision which plans to merge, and the split of programs into streams.
#include "comm/program/merge_programs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/program/coalesce.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "comm/program/program_segments.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;

Plan PlanOf(const std::string& mesh, const std::string& tensor, const std::string& from,
            const std::string& to) {
  const DeviceMesh m = DeviceMesh::Parse(mesh).value();
  const Sharding source = Sharding::Parse(tensor, m, from).value();
  return MakePlan(source, source.WithPlacements(to).value(), {.max_value = 0}).value();
}

std::string Merged(const std::vector<Plan>& plans, int64_t rank) {
  std::vector<Program> programs;
  for (const Plan& plan : plans) programs.push_back(Lower(plan, rank).value());
  std::vector<MergePart> parts;
  for (size_t i = 0; i < plans.size(); ++i) {
    parts.push_back({.program = &programs[i], .calls = CoalesceTraitsOf(plans[i], kNoLimit).steps});
  }
  const auto merged = MergePrograms(parts);
  return merged.ok() ? merged->ToString() : merged.status().ToString();
}

// The more aligned piece goes first; the pieces of both are sent as bytes.
TEST(MergeProgramsTest, Gathers) {
  EXPECT_EQ(Merged({PlanOf("a=2", "u8[6]", "S(0)", "R"), PlanOf("a=2", "f32[8]", "S(0)", "R")}, 1),
            "rank 1: source u8[3], target u8[6], workspace 48\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 copy u8 source 1+0 (16):(1) -> workspace+19 :(1); "
            "source+0 (3):(1) -> workspace+35 :(1)\n"
            "0 all_gather group 0: workspace+19 -> workspace+0, 19 u8\n"
            "0 copy u8 workspace+0 (2,16):(19,1) -> target 1+0 :(16,1); "
            "workspace+16 (2,3):(19,1) -> target+0 :(3,1)\n");
}

TEST(MergeProgramsTest, SumsStayTheirDType) {
  EXPECT_EQ(Merged({PlanOf("a=2", "f32[4]", "P", "R"), PlanOf("a=2", "f32[2]", "P", "R")}, 0),
            "rank 0: source f32[4], target f32[4], workspace 32\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "0 copy u8 source+0 (16):(1) -> workspace+0 :(1); "
            "source 1+0 (8):(1) -> workspace+16 :(1)\n"
            "0 all_reduce group 0: workspace+0 -> workspace+0, 6 f32 sum\n"
            "0 copy u8 workspace+0 (16):(1) -> target+0 :(1); "
            "workspace+16 (8):(1) -> target 1+0 :(1)\n");
}

TEST(MergeProgramsTest, MessagesOfOnePeerAreOne) {
  EXPECT_EQ(
      Merged({PlanOf("a=2", "u8[2,2]", "S(0)", "S(1)"), PlanOf("a=2", "f32[2,2]", "S(0)", "S(1)")},
             0),
      "rank 0: source u8[1,2], target u8[2,1], workspace 32\n"
      "group 0 over 0: number 0 of {0,1}\n"
      "0 copy u8 source+0 (1):(1) -> target+0 :(1)\n"
      "0 copy f32 source 1+0 (1):(1) -> target 1+0 :(1)\n"
      "0 copy u8 source 1+4 (4):(1) -> workspace+0 :(1); source+1 (1):(1) -> workspace+4 :(1)\n"
      "0 send_recv group 0: send [1: workspace+0 5] recv [1: workspace+16 5] u8\n"
      "0 copy u8 workspace+16 (4):(1) -> target 1+4 :(1); workspace+20 (1):(1) -> target+1 "
      ":(1)\n");
}

// Contributions to another mesh are sent in one message per sender, and reduced for each tensor.
TEST(MergeProgramsTest, ContributionsToSeveralTensorsCrossTogether) {
  const auto plan = [](const char* tensor) {
    return MakePlan(Sharding::Parse(tensor, DeviceMesh::Parse("a=2").value(), "P").value(),
                    Sharding::Parse(tensor, DeviceMesh::Parse("b=1@2").value(), "R").value())
        .value();
  };
  const Plan two = plan("f32[2]");
  const Plan four = plan("bf16[4]");
  for (const Plan* one : {&two, &four}) {
    EXPECT_FALSE(CoalesceTraitsOf(*one, kNoLimit).alone);
    EXPECT_EQ(CoalesceTraitsOf(*one, kNoLimit).calls, CoalesceTraitsOf(two, kNoLimit).calls);
    EXPECT_EQ(CoalesceTraitsOf(*one, kNoLimit).bytes, 16);
  }
  EXPECT_EQ(Merged({two, four}, 2),
            "rank 2: source f32[0], target f32[2], workspace 64\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 send_recv group 0: send [] recv [0: workspace+32 16, 1: workspace+48 16] u8\n"
            "0 copy u8 workspace+32 (8):(1) -> workspace+0 :(1); "
            "workspace+40 (8):(1) -> workspace+16 :(1); "
            "workspace+48 (8):(1) -> workspace+8 :(1); "
            "workspace+56 (8):(1) -> workspace+24 :(1)\n"
            "0 reduce_in_order 2 blocks at workspace+0 by 8 -> target+0, 2 f32 sum\n"
            "0 reduce_in_order 2 blocks at workspace+16 by 8 -> target 1+0, 4 bf16 sum\n");
}

TEST(MergeProgramsTest, UnlikeCallsAreABug) {
  const std::string error =
      Merged({PlanOf("a=2", "f32[4]", "P", "R"), PlanOf("a=2", "f32[4]", "S(0)", "R")}, 0);
  EXPECT_EQ(error.find("INTERNAL: step 0: cannot merge calls of all_reduce and all_gather"), 0)
      << error;
}

TEST(CoalesceTest, RunsAreOfLikePlans) {
  const Plan plans[] = {
      PlanOf("a=2,b=2", "f32[8]", "S(0),R", "R,R"), PlanOf("a=2,b=2", "f32[8]", "R,S(0)", "R,R"),
      PlanOf("a=2,b=2", "u8[2]", "S(0),R", "R,R"),  PlanOf("a=2,b=2", "f32[8]", "P,P", "R,R"),
      PlanOf("a=2,b=2", "bf16[8]", "P,P", "R,R"),   PlanOf("a=2,b=2", "f32[2]", "P,P", "R,R"),
      PlanOf("a=2,b=2", "f32[8]", "R,R", "R,S(0)"), PlanOf("a=2,b=2", "f32[0]", "P,P", "R,R")};
  std::vector<CoalesceTraits> traits;
  std::vector<const CoalesceTraits*> all;
  for (const Plan& plan : plans) traits.push_back(CoalesceTraitsOf(plan, kNoLimit));
  for (const CoalesceTraits& one : traits) all.push_back(&one);
  using Runs = std::vector<std::vector<int>>;
  EXPECT_EQ(Coalesce(all, kNoLimit), (Runs{{0, 2}, {1}, {3, 5}, {4}, {6, 7}}));
  // Two values of 32 and 8 bytes.
  EXPECT_EQ(Coalesce({all[3], all[5], all[5]}, 47), (Runs{{0, 1}, {2}}));
  EXPECT_EQ(Coalesce({all[3], all[5], all[5]}, 48), (Runs{{0, 1, 2}}));
}

TEST(CoalesceTest, WhatSendsMuchOrPromisesMuchStaysAlone) {
  const Plan plan = PlanOf("a=2", "i32[8]", "P", "R");
  EXPECT_FALSE(CoalesceTraitsOf(plan, 32).alone);
  EXPECT_TRUE(CoalesceTraitsOf(plan, 31).alone);
  for (const Reproducibility asked :
       {Reproducibility::kNone, Reproducibility::kReplicas, Reproducibility::kBatchInvariant,
        Reproducibility::kOrdered}) {
    PlanFields fields = plan.fields();
    fields.inputs.options.reproducibility = asked;
    EXPECT_EQ(CoalesceTraitsOf(Plan::Seal(fields), 32).alone, asked > Reproducibility::kReplicas);
  }
  // An ordered reduction makes its own calls.
  PlanFields ordered = plan.fields();
  ordered.steps[0].reduce_order = ReduceOrder::kAscending;
  EXPECT_TRUE(CoalesceTraitsOf(Plan::Seal(ordered), 32).alone);
  EXPECT_EQ(DefaultCoalesceBytes(Topology::Flat()), 3600000);  // 10 us at 360 GB/s
}

TEST(ProgramPartsTest, LocalWorkGoesWithItsCall) {
  const Program program = Lower(Plan::Seal(MakeFields(ThreeSteps())), 3).value();
  EXPECT_EQ(SegmentsOf(program),
            (std::vector<ProgramSegment>{{.group = 0, .step = 0, .instructions = {0, 2}},
                                         {.group = 1, .step = 2, .instructions = {2, 1}}}));
  EXPECT_EQ(SegmentsOf(program, /*by_step=*/true),
            (std::vector<ProgramSegment>{{.group = 0, .step = 0, .instructions = {0, 1}},
                                         {.group = 0, .step = 1, .instructions = {1, 1}},
                                         {.group = 1, .step = 2, .instructions = {2, 1}}}));
  const Program local = Lower(PlanOf("a=2", "f32[8]", "R", "S(0)"), 1).value();
  EXPECT_EQ(SegmentsOf(local),
            (std::vector<ProgramSegment>{{.group = -1, .step = 0, .instructions = {0, 1}}}));
  EXPECT_EQ(SegmentsOf(Program()), std::vector<ProgramSegment>(1));
}

}  // namespace
}  // namespace meshift
