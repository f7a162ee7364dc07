// Programs of plans from one mesh to another, written by hand for each rank.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "comm/program/program_bytes.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "testing/internal/program_check.h"

namespace meshift {
namespace {

constexpr auto kExchange = StepOp::kExchange;
constexpr auto kRelabel = StepOp::kRelabel;

// A step of a plan whose meshes are `from`'s and `to`'s.
struct CrossStep {
  StepOp op;
  int mesh;
  DimSet mesh_dims;
  std::string after;
};

PlanFields Fields(const std::string& from, const std::string& to,
                  const std::vector<CrossStep>& steps, int64_t workspace_bytes = 0) {
  PlanFields fields{.to_mesh = 1,
                    .from = Sharding::Parse(from).value(),
                    .to = Sharding::Parse(to).value(),
                    .total = {.workspace_bytes = workspace_bytes}};
  fields.meshes = {fields.from.mesh(), fields.to.mesh()};
  for (const CrossStep& step : steps) {
    fields.steps.push_back(
        {.op = step.op,
         .mesh = step.mesh,
         .mesh_dims = step.mesh_dims,
         .after =
             Sharding::Parse(fields.from.tensor(), fields.meshes[step.mesh], step.after).value()});
  }
  return fields;
}

std::string Lowered(const PlanFields& fields, int64_t rank, const LoweringOptions& options = {}) {
  const absl::StatusOr<Program> program = Lower(Plan::FromParts(fields, {}), rank, options);
  if (!program.ok()) return program.status().ToString() + "\n";
  EXPECT_EQ(CheckProgram(*program), "") << program->ToString();
  return program->ToString();
}

// Rank 1 is in both meshes, rank 3 in neither.
PlanFields Overlap() {
  return Fields("f32[4] on a=2 as S(0)", "f32[4] on b=2@1,2 as R", {{kExchange, 1, {}, "R"}});
}

TEST(CrossingLowering, SendsToWhoLacksAndKeepsWhatIsThere) {
  EXPECT_EQ(Lowered(Overlap(), 0),
            "rank 0: source f32[2], target f32[0], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 send_recv group 0: send [1: source+0 2, 2: source+0 2] recv [] f32\n");
  EXPECT_EQ(Lowered(Overlap(), 1),
            "rank 1: source f32[2], target f32[4], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 copy f32 source+0 (2):(1) -> target+8 :(1)\n"
            "0 send_recv group 0: send [2: source+0 2] recv [0: target+0 2] f32\n");
  EXPECT_EQ(Lowered(Overlap(), 2),
            "rank 2: source f32[0], target f32[4], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 send_recv group 0: send [] recv [0: target+0 2, 1: target+8 2] f32\n");
  EXPECT_EQ(Lowered(Overlap(), 3),
            "rank 3: source f32[0], target f32[0], workspace 0\n"
            "group 0 over 0 of mesh 2: without this rank\n");
}

TEST(CrossingLowering, CountsTheBytesOfItsMessages) {
  const std::vector<int64_t> sent = {16, 8, 0, 0};
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(RecordOf(Lower(Plan::FromParts(Overlap(), {}), rank).value()).bytes_sent,
              std::vector<int64_t>{sent[rank]});
  }
}

// Columns are contiguous only if the box has no others.
TEST(CrossingLowering, PacksWhatIsNoRun) {
  const PlanFields columns = Fields("f32[2,4] on a=2 as S(0)", "f32[2,4] on b=2@2-3 as S(1)",
                                    {{kExchange, 1, {}, "S(1)"}}, 0);
  EXPECT_EQ(Lowered(columns, 0),
            "rank 0: source f32[1,4], target f32[0], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [2: source+0 2, 3: source+8 2] recv [] f32\n");
  EXPECT_EQ(Lowered(columns, 3),
            "rank 3: source f32[0], target f32[2,2], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [] recv [0: target+0 2, 1: target+8 2] f32\n");
  const PlanFields rows =
      Fields("f32[2,4] on a=2 as S(1)", "f32[2,4] on b=2@2-3 as R", {{kExchange, 1, {}, "R"}}, 32);
  EXPECT_EQ(Lowered(rows, 1),
            "rank 1: source f32[2,2], target f32[0], workspace 32\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [2: source+0 4, 3: source+0 4] recv [] f32\n");
  EXPECT_EQ(Lowered(rows, 2),
            "rank 2: source f32[0], target f32[2,4], workspace 32\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3}\n"
            "0 send_recv group 0: send [] recv [0: workspace+0 4, 1: workspace+16 4] f32\n"
            "0 copy f32 workspace+0 (2,2):(2,1) -> target+0 :(4,1); workspace+16 (2,2):(2,1) -> "
            "target+8 :(4,1)\n");
  PlanFields small = rows;
  small.total.workspace_bytes = 16;
  EXPECT_EQ(
      Lowered(small, 2),
      "INVALID_ARGUMENT: step 0 needs 16 bytes more than the workspace of 16 bytes on rank 2\n");
  // With other layouts the program determines the size of the workspace.
  EXPECT_EQ(Lowered(rows, 2, {.target_strides = {1, 2}}).substr(0, 60),
            "rank 2: source f32[0], target f32[2,4]:(1,2), workspace 32\ng");
}

TEST(CrossingLowering, RelabelCopiesWhereItIs) {
  const PlanFields same = Fields("f32[4] on a=4 as S(0)", "f32[4] on x=2,y=2 as S(0),S(0)",
                                 {{kRelabel, 1, {}, "S(0),S(0)"}});
  EXPECT_EQ(Lowered(same, 3),
            "rank 3: source f32[1], target f32[1], workspace 0\n"
            "0 copy f32 source+0 (1):(1) -> target+0 :(1)\n");
  EXPECT_EQ(Lowered(same, 4), "rank 4: source f32[0], target f32[0], workspace 0\n");
  // In one buffer the data is in place already.
  EXPECT_EQ(Lowered(same, 3, {.one_buffer = true}),
            "rank 3: source f32[1], target f32[1], workspace 0, one buffer\n");
  const PlanFields part =
      Fields("f32[4] on a=2 as R", "f32[4] on b=2@1,0 as S(0)", {{kRelabel, 1, {}, "S(0)"}});
  EXPECT_EQ(Lowered(part, 0),
            "rank 0: source f32[4], target f32[2], workspace 0\n"
            "0 copy f32 source+8 (2):(1) -> target+0 :(1)\n");
  EXPECT_EQ(Lowered(part, 0, {.one_buffer = true}),
            "rank 0: source f32[4], target f32[2], workspace 16, one buffer\n"
            "0 copy f32 source+8 (2):(1) -> workspace+0 :(1)\n"
            "0 copy f32 workspace+0 (2):(1) -> target+0 :(1)\n");
}

// A tensor without dims has one element on the ranks of its mesh, and none on others.
TEST(CrossingLowering, ScalarsAreNothingElsewhere) {
  const PlanFields scalar =
      Fields("f64[] on a=2 as R", "f64[] on b=2@1,2 as R", {{kExchange, 1, {}, "R"}});
  EXPECT_EQ(Lowered(scalar, 0),
            "rank 0: source f64[], target f64[0], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 send_recv group 0: send [2: source+0 1] recv [] f64\n");
  EXPECT_EQ(Lowered(scalar, 1),
            "rank 1: source f64[], target f64[], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 copy f64 source+0 (1):(1) -> target+0 :(1)\n"
            "0 send_recv group 0: send [] recv [] f64\n");
}

// The nearest holder sends; among equally near ones, the one that sends the fewest bytes.
TEST(CrossingLowering, TheTopologyChoosesTheSender) {
  PlanFields fields =
      Fields("f32[4] on a=4@0,1,4,5 as R", "f32[4] on b=3@2,3,6 as R", {{kExchange, 1, {}, "R"}});
  fields.inputs.options.topology = *Topology::Parse("nvlink=4");
  const auto sends = [&](int64_t rank) {
    const Program program = Lower(Plan::FromParts(fields, {}), rank).value();
    std::vector<int64_t> to;
    for (const ProgramMessage& message : program.messages) {
      to.push_back(program.groups[0].ranks[message.peer]);
    }
    return to;
  };
  EXPECT_EQ(sends(0), std::vector<int64_t>{2});
  EXPECT_EQ(sends(1), std::vector<int64_t>{3});
  EXPECT_EQ(sends(4), std::vector<int64_t>{6});
  EXPECT_EQ(sends(5), std::vector<int64_t>{});
}

// Steps on both meshes: each rank names all partitions, in the same order.
TEST(CrossingLowering, StepsAreOnTheirOwnMeshes) {
  const PlanFields fields = Fields("f32[8] on a=2 as S(0)", "f32[8] on b=2@1,2 as R",
                                   {{StepOp::kAllGather, 0, {0}, "R"},
                                    {kExchange, 1, {}, "S(0)"},
                                    {StepOp::kAllGather, 1, {0}, "R"}},
                                   48);
  EXPECT_EQ(Lowered(fields, 0),
            "rank 0: source f32[4], target f32[0], workspace 48\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "group 1 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "group 2 over 0 of mesh 1: without this rank\n"
            "0 all_gather group 0: source+0 -> workspace+0, 4 f32\n"
            "1 send_recv group 1: send [2: workspace+16 4] recv [] f32\n");
  EXPECT_EQ(Lowered(fields, 1),
            "rank 1: source f32[4], target f32[8], workspace 48\n"
            "group 0 over 0: number 0 of {0,1}\n"
            "group 1 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "group 2 over 0 of mesh 1: number 0 of {1,2}\n"
            "0 all_gather group 0: source+0 -> workspace+0, 4 f32\n"
            "1 copy f32 workspace+0 (4):(1) -> workspace+32 :(1)\n"
            "1 send_recv group 1: send [] recv [] f32\n"
            "2 all_gather group 2: workspace+32 -> target+0, 4 f32\n");
  EXPECT_EQ(Lowered(fields, 2),
            "rank 2: source f32[0], target f32[8], workspace 48\n"
            "group 0 over 0: without this rank\n"
            "group 1 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "group 2 over 0 of mesh 1: number 0 of {1,2}\n"
            "1 send_recv group 1: send [] recv [0: workspace+32 4] f32\n"
            "2 all_gather group 2: workspace+32 -> target+0, 4 f32\n");
  EXPECT_EQ(Lowered(fields, 7),
            "rank 7: source f32[0], target f32[0], workspace 0\n"
            "group 0 over 0: without this rank\n"
            "group 1 over 0 of mesh 2: without this rank\n"
            "group 2 over 0 of mesh 1: without this rank\n");
}

// Every owner receives all contributions, each in a block, and reduces them in order.
TEST(CrossingLowering, ContributionsAreReducedByWhoTakesThem) {
  PlanFields fields = Fields("f32[4] on a=2,c=2@3,1,0,2 as P,S(0)", "f32[4] on b=2@1,4 as S(0)",
                             {{kExchange, 1, {}, "S(0)"}}, 16);
  fields.steps[0].reduce_op = ReduceOp::kSum;
  fields.steps[0].reduce_order = ReduceOrder::kAscending;
  // Rank 3 holds the first half of contribution 0, 1 its second half, 0 and 2 those of 1.
  EXPECT_EQ(Lowered(fields, 0),
            "rank 0: source f32[2], target f32[0], workspace 16\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3,4}\n"
            "0 send_recv group 0: send [1: source+0 2] recv [] f32\n");
  EXPECT_EQ(Lowered(fields, 1),
            "rank 1: source f32[2], target f32[2], workspace 16\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3,4}\n"
            "0 send_recv group 0: send [4: source+0 2] recv [0: workspace+8 2, 3: workspace+0 2] "
            "f32\n"
            "0 reduce_in_order 2 blocks at workspace+0 by 8 -> target+0, 2 f32 sum\n");
  EXPECT_EQ(Lowered(fields, 4),
            "rank 4: source f32[0], target f32[2], workspace 16\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2,3,4}\n"
            "0 send_recv group 0: send [] recv [1: workspace+0 2, 2: workspace+8 2] f32\n"
            "0 reduce_in_order 2 blocks at workspace+0 by 8 -> target+0, 2 f32 sum\n");
}

// The placement on a mesh dim of size 1 does not matter.
TEST(CrossingLowering, APartialDimOfOneRankIsNone) {
  const PlanFields fields = Fields("f32[4] on a=2,one=1 as S(0),P", "f32[4] on b=1,c=2 as P,S(0)",
                                   {{kRelabel, 1, {}, "P,S(0)"}});
  EXPECT_EQ(Lowered(fields, 1),
            "rank 1: source f32[2], target f32[2], workspace 0\n"
            "0 copy f32 source+0 (2):(1) -> target+0 :(1)\n");
}

// Pairs of f4e2m1 are moved as bytes.
TEST(CrossingLowering, PackedTypesMoveAsBytes) {
  const PlanFields fields =
      Fields("f4e2m1[8] on a=2 as S(0)", "f4e2m1[8] on b=1@2 as R", {{kExchange, 1, {}, "R"}});
  EXPECT_EQ(Lowered(fields, 2),
            "rank 2: source u8[0], target u8[4], workspace 0\n"
            "group 0 over 0 of mesh 2: number 0 of {0,1,2}\n"
            "0 send_recv group 0: send [] recv [0: target+0 2, 1: target+2 2] u8\n");
}

// A tensor without elements needs no groups.
TEST(CrossingLowering, NoElementsNoGroups) {
  const PlanFields fields =
      Fields("f32[0,3] on a=2 as S(0)", "f32[0,3] on b=2@1,2 as R", {{kRelabel, 1, {}, "R"}});
  EXPECT_EQ(Lowered(fields, 1), "rank 1: source f32[0,3], target f32[0,3], workspace 0\n");
}

TEST(CrossingLowering, Refusals) {
  const auto with = [](PlanFields fields, const CrossStep& step) {
    fields.steps[0].op = step.op;
    fields.steps[0].mesh = step.mesh;
    fields.steps[0].mesh_dims = step.mesh_dims;
    fields.steps[0].after =
        Sharding::Parse(fields.from.tensor(), fields.meshes[step.mesh], step.after).value();
    return fields;
  };
  EXPECT_EQ(Lowered(with(Overlap(), {kRelabel, 1, {}, "R"}), 0),
            "INVALID_ARGUMENT: relabel{onto mesh 1} -> R: rank 1 needs data of rank 0; expected an "
            "exchange\n");
  EXPECT_EQ(Lowered(with(Overlap(), {StepOp::kSlice, 1, {}, "R"}), 0),
            "INVALID_ARGUMENT: slice{-} -> R cannot go from mesh a=2 to mesh b=2@1-2\n");
  EXPECT_EQ(Lowered(with(Overlap(), {kExchange, 1, {0}, "R"}), 0),
            "INVALID_ARGUMENT: exchange{b} -> R must not name mesh dims\n");
  EXPECT_EQ(
      Lowered(with(Overlap(), {kExchange, 1, {}, "P"}), 0),
      "INVALID_ARGUMENT: exchange{onto mesh 1} -> P: f32[4] on a=2 as S(0) cannot become f32[4] on "
      "b=2@1-2 as "
      "P\n");
  const PlanFields partial =
      Fields("f32[4] on a=2 as P", "f32[4] on b=2@1,2 as R", {{kExchange, 1, {}, "R"}}, 64);
  EXPECT_EQ(
      Lowered(partial, 0),
      "INVALID_ARGUMENT: exchange{onto mesh 1} -> R: f32[4] on a=2 as P cannot become f32[4] on "
      "b=2@1-2 as "
      "R\n");
  PlanFields any = partial;
  any.steps[0].reduce_op = ReduceOp::kSum;
  any.steps[0].reduce_order = ReduceOrder::kAny;
  EXPECT_EQ(Lowered(any, 0),
            "INVALID_ARGUMENT: exchange{onto mesh 1} -> R must reduce by an exchange in ascending "
            "order\n");
  EXPECT_EQ(Lowered(with(Overlap(), {kExchange, 0, {0}, "R"}), 0),
            "INVALID_ARGUMENT: the plan ends on mesh a=2, not on b=2@1-2\n");
  EXPECT_EQ(Lowered(with(Overlap(), {kRelabel, 0, {}, "R"}), 0),
            "INVALID_ARGUMENT: the plan ends on mesh a=2, not on b=2@1-2\n");
  PlanFields none = Overlap();
  none.steps.clear();
  EXPECT_EQ(Lowered(none, 0), "INVALID_ARGUMENT: the plan ends on mesh a=2, not on b=2@1-2\n");
  const PlanFields nothing =
      Fields("f32[4] on a=2 as R", "f32[4] on b=2@1,0 as S(0)", {{kExchange, 1, {}, "S(0)"}});
  EXPECT_EQ(Lowered(nothing, 0),
            "INVALID_ARGUMENT: exchange{onto mesh 1} -> S(0) sends nothing; expected a relabel\n");
  PlanFields wire = Overlap();
  wire.steps[0].wire_dtype = DType::kBF16;
  EXPECT_EQ(Lowered(wire, 0),
            "UNIMPLEMENTED: exchange{onto mesh 1} -> R: f32 cannot be sent as bf16 yet\n");
}

}  // namespace
}  // namespace meshift
