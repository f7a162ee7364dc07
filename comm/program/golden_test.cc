// Programs of all lowerings as text, in golden_test.txt. They show where packing, padding and
// copies go. If programs are to change, write the file again, and make its diff a part of the
// change:
//
//   export MESHIFT_GOLDEN_PROGRAMS=$PWD/comm/program/golden_test.txt
//   ./bazelw run //comm/program:golden_test
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "testing/internal/plan_cases.h"
#include "testing/internal/program_check.h"

namespace meshift {
namespace {

struct Golden {
  std::string name;
  PlanFields plan;
  std::vector<int64_t> ranks;
  LoweringOptions options = {};
};

// The plan of a reduction, in ascending order.
PlanFields InOrder(const Case& c) {
  PlanFields plan = MakeFields(c);
  plan.steps[0].reduce_order = ReduceOrder::kAscending;
  return plan;
}

// The plan of a reduction in blocks of two, in two stages.
PlanFields InStages(const Case& c) {
  PlanFields plan = InOrder(c);
  plan.inputs.options.reduce_block = 2;
  plan.steps[0].reduce_block = 2;
  plan.steps[0].reduce_stages = 2;
  return plan;
}

std::vector<Golden> Goldens() {
  const Case rows = {"a=3", "f32[3,6]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 24, 16}}, 0};
  std::vector<Golden> goldens;
  const auto add = [&](std::string name, const Case& c, std::vector<int64_t> ranks,
                       LoweringOptions options = {}) {
    goldens.push_back({std::move(name), MakeFields(c), std::move(ranks), std::move(options)});
  };
  add("a plan without steps copies", {"a=2", "f32[4,3]", "S(0)", "S(0)", {}, 0}, {1});
  add("slice, all_reduce, all_gather", ThreeSteps(), {3});
  add("all_reduce over two mesh dims",
      {"a=2,b=2,one=1", "f32[4]", "P,P,R", "R,R,R", {{kAllReduce, "a,b", "R,R,R", 16, 16, 24}}, 0},
      {3});
  add("all_reduce with a divisor",
      {"a=2,b=2",
       "f32[4]",
       "P(avg),P",
       "R,R",
       {{kAllReduce, "a,b", "R,R", 16, 16, 24, StepSizes::kEven, ReduceOp::kAvg, 2}},
       0},
      {0});
  // Slices of 2, 2, 1 and 0 of the 5 elements go to their owners, in order of coordinates, and
  // back.
  goldens.push_back({"all_reduce in order",
                     InOrder({"a=2,b=2@0,2,1,3",
                              "f32[5]",
                              "P,P",
                              "R,R",
                              {{kAllReduce, "a,b", "R,R", 20, 20, 36}},
                              32}),
                     {1}});
  goldens.push_back(
      {"reduce_scatter in order",
       InOrder({"a=4", "f32[8]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 32, 8, 24}}, 32}),
       {1}});
  goldens.push_back(
      {"all_reduce in two stages",
       InStages({"a=4", "f32[8]", "P", "R", {{kAllReduce, "a", "R", 32, 32, 48}}, 32}),
       {1}});
  goldens.push_back(
      {"reduce_scatter in two stages",
       InStages({"a=4", "f32[8]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 32, 8, 24}}, 48}),
       {1}});
  add("reduce_scatter, padded",
      {"a=3", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 16, kPadded}}, 48},
      {1, 2});
  add("reduce_scatter, padded over empty blocks",
      {"a=4", "f32[2]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 8, 4, 12, kPadded}}, 32}, {3});
  add("all_gather, padded",
      {"a=3", "f32[5]", "S(0)", "R", {{kAllGather, "a", "R", 8, 20, 16, kPadded}}, 48}, {0, 2});
  // The communicator numbers ranks in ascending order, so blocks change places.
  add("all_gather of ranks in another order",
      {"a=4@2,0,1,3", "f32[8]", "S(0)", "R", {{kAllGather, "a", "R", 8, 32, 24}}, 32}, {2});
  // One rank's group has nothing to do, but every rank names the partition.
  add("all_gather of a group without elements",
      {"a=4,b=2",
       "f32[3]",
       "S(0),S(0)",
       "S(0),R",
       {{kAllGather, "b", "S(0),R", 4, 4, 4, kPadded}},
       32},
      {7});
  // Receivers get whole rows of their boxes, which need no unpacking. Rank 2 has one row.
  add("all_to_all packs and keeps its own",
      {"a=3", "f32[5,3]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 20, 16, kExact}}, 16},
      {0, 2});
  add("all_to_all of runs copies its own only", rows, {1});
  add("and the other way round",
      {"a=3", "f32[3,6]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 24, 24, 16}}, 0}, {1});
  // Rows are sent without packing, and received as columns.
  add("all_to_all unpacks columns",
      {"a=2", "f32[4,4]", "S(1)", "S(0)", {{kAllToAll, "a", "S(0)", 32, 32, 16}}, 16}, {0});
  // Source and target share memory: one of the two is copied as a whole.
  add("all_to_all in one buffer",
      {"a=2", "f32[2,4]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 16, 16, 8}}, 0}, {0},
      {.one_buffer = true});
  // Each message is a row of the target, which has gaps; the source has gaps between its elements.
  add("all_to_all of strided tensors", rows, {1},
      {.source_strides = {12, 2}, .target_strides = {5, 1}});
  add("exchange sends copies to replicas",
      {"a=2,b=2", "f32[4]", "S(0),R", "R,S(0)", {{kExchange, "a,b", "R,S(0)", 8, 8, 8}}, 0},
      {0, 1});
  add("permute sends whole boxes",
      {"a=2,b=2",
       "f32[8]",
       "S(0),S(0)",
       "S(0)[1],S(0)[0]",
       {{kPermute, "a,b", "S(0)[1],S(0)[0]", 8, 8, 8}},
       0},
      {0, 1});
  add("mask of a replica", {"a=2,b=2", "f32[]", "P,R", "P,P", {{kMask, "b", "P,P", 4, 4, 0}}, 0},
      {0, 1});
  add("mask of a shard", {"a=2", "f32[3]", "S(0)", "P", {{kMask, "a", "P", 8, 12, 0}}, 0}, {1});
  add("mask of an average", {"a=2", "f32[2]", "R", "P(avg)", {{kMask, "a", "P(avg)", 8, 8, 0}}, 0},
      {1});
  add("a cast alone",
      {"a=2", "i64[3]", "R", "R", {Cast(DType::kF8E4M3, "R", 24, 3)}, 0, DType::kF8E4M3}, {1});
  add("a cast that narrows comes before moves",
      {"a=2",
       "f32[8]",
       "S(0)",
       "R",
       {Cast(DType::kBF16, "S(0)", 16, 8), {kAllGather, "a", "R", 8, 16, 8}},
       16,
       DType::kBF16},
      {1});
  add("a cast that widens comes after moves",
      {"a=2",
       "bf16[8]",
       "S(0)",
       "R",
       {{kAllGather, "a", "R", 8, 16, 8}, Cast(DType::kF32, "R", 16, 32)},
       16,
       DType::kF32},
      {1});
  add("pairs of f4e2m1 move as bytes",
      {"a=2", "f4e2m1[4,8]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 8, 8, 4}}, 16}, {1});
  add("a tensor without elements needs no group",
      {"a=2", "f32[0]", "S(0)", "R", {{kAllGather, "a", "R", 0, 0, 0}}, 0}, {1});
  // Rank 1 is in both meshes, rank 3 in neither.
  add("exchange onto another mesh",
      Cross("a=2", "b=2@1,2", "f32[4]", "S(0)", "R", {Exchange("R", 8, 16, 16)}), {0, 1, 2, 3});
  add("relabel onto another mesh",
      Cross("a=2", "b=1,c=2", "f32[4]", "S(0)", "R,S(0)", {Relabel("R,S(0)", 8)}), {1});
  return goldens;
}

std::string Texts() {
  std::string text;
  for (const Golden& golden : Goldens()) {
    EXPECT_EQ(Judge(golden.plan), "") << golden.name;
    for (const int64_t rank : golden.ranks) {
      const absl::StatusOr<Program> program =
          Lower(Plan::FromParts(golden.plan, {}), rank, golden.options);
      if (!program.ok()) {
        ADD_FAILURE() << golden.name << ": " << program.status();
        continue;
      }
      EXPECT_EQ(CheckProgram(*program), "") << golden.name;
      text += fmt::format("# {}\n{}\n", golden.name, program->ToString());
    }
  }
  return text;
}

TEST(GoldenTest, ProgramsAreAsRecorded) {
  const std::string text = Texts();
  if (const char* file = std::getenv("MESHIFT_GOLDEN_PROGRAMS"); file != nullptr) {
    ASSERT_TRUE(std::ofstream(file) << text) << file;
    return;
  }
  std::ostringstream recorded;
  recorded << std::ifstream("comm/program/golden_test.txt").rdbuf();
  EXPECT_EQ(recorded.str(), text);
}

}  // namespace
}  // namespace meshift
