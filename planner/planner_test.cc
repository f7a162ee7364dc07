#include "meshift/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "meshift/explain.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

absl::StatusOr<Plan> TryPlan(const std::string& mesh, const std::string& tensor,
                             const std::string& from, const std::string& to,
                             const PlannerOptions& options = {}) {
  auto source = Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
  if (!source.ok()) return source.status();
  auto target = source->WithPlacements(to);
  if (!target.ok()) return target.status();
  return MakePlan(*source, *target, options);
}

std::string Steps(const absl::StatusOr<Plan>& plan) {
  if (!plan.ok()) return plan.status().ToString();
  std::string text;
  for (const Step& step : plan->steps()) text += (text.empty() ? "" : "; ") + step.ToString();
  return text;
}

struct Golden {
  std::string mesh, tensor, from, to, steps;
};

// These plans only pin the expectations of a reader. The verifier, and runs in
// tests/small_world_test.cc, show that plans are right.
TEST(PlannerTest, GoldenPlans) {
  for (const Golden& g : std::vector<Golden>{
           // One flattened group instead of two reductions.
           {"ddp=8,fsdp=5,tp=1", "bf16[8192,8192]", "P,P,R", "R,R,R",
            "all_reduce{ddp,fsdp} -> R,R,R"},
           // Mesh dims that are not adjacent are merged; the reduction runs on the shard.
           {"a=2,b=2,c=2", "f32[4096,512]", "P,S(0),P", "R,R,R",
            "all_reduce{a,c} -> R,S(0),R; all_gather{b} -> R,R,R"},
           // If latency dominates, the cut joins the reduction: one collective.
           {"a=2,b=2,c=2", "f32[8,8]", "P,S(0),P", "R,R,R",
            "mask{b} -> P,P,P; all_reduce{a,b,c} -> R,R,R"},
           // A replicated dim beside a partial one: one group forms each value, by slice, reduce
           // and gather.
           {"dp=64,tp=16", "f32[1024,512]", "P,R", "R,R",
            "slice{tp} -> P,S(0); all_reduce{dp} -> R,S(0); all_gather{tp} -> R,R"},
           // Too small to slice: masked, and summed once over the larger group.
           {"a=2,b=2", "f32[]", "P,R", "R,R", "mask{b} -> P,P; all_reduce{a,b} -> R,R"},
           // These are exact in any order.
           {"a=2,b=2", "i32[4]", "P,R", "R,R", "all_reduce{a} -> R,R"},
           {"a=2,b=2", "f32[4]", "P(max),R", "R,R", "all_reduce{a} -> R,R"},
           // One reduce-scatter cuts two tensor dims, and one all-gather undoes it.
           {"a=2,b=2", "f32[8,6]", "P,P", "S(0),S(1)", "reduce_scatter{a,b} -> S(0),S(1)"},
           {"a=2,b=2", "f32[8,6]", "S(0),S(1)", "R,R", "all_gather{a,b} -> R,R"},
           // Pieces of unequal rows are sent and received in place; those of unequal columns are
           // padded.
           {"a=2,b=2", "f32[5,3]", "S(0),S(0)", "R,R", "exchange{a,b} -> R,R"},
           {"a=2,b=2", "f32[3,5]", "S(1),S(1)", "R,R", "all_gather{a,b} -> R,R"},
           {"a=4", "f32[4096,4096]", "S(1)", "R", "all_gather{a} -> R"},
           // Shards that move to another tensor dim or mesh dim.
           {"a=4", "f32[4096,4096]", "S(0)", "S(1)", "all_to_all{a} -> S(1)"},
           // If latency dominates, fewer messages; the value in between is small.
           {"a=4", "f32[8,8]", "S(0)", "S(1)", "all_gather{a} -> R; slice{a} -> S(1)"},
           {"a=2,b=2", "f32[8]", "S(0),S(0)", "S(0)[1],S(0)[0]", "permute{a,b} -> S(0)[1],S(0)[0]"},
           {"a=2,b=2", "f32[8]", "S(0),R", "R,S(0)", "permute{a,b} -> R,S(0)"},
           {"a=2,b=4", "f32[4194304]", "S(0),R", "R,S(0)", "exchange{a,b} -> R,S(0)"},
           {"a=2,b=4", "f32[8]", "S(0),R", "R,S(0)", "all_gather{a} -> R,R; slice{b} -> R,S(0)"},
           // Local steps.
           {"a=2,b=2", "f32[8,8]", "R,R", "S(0),S(1)", "slice{a,b} -> S(0),S(1)"},
           {"a=2,b=2", "f32[8]", "R,S(0)", "P,S(0)", "mask{a} -> P,S(0)"},
           {"a=2", "f32[8]", "S(0)", "P", "mask{a} -> P"},
           // No rank receives anything.
           {"a=2,b=2,c=2", "f32[1,1]", "R,S(0),S(1)", "R,S(1),S(0)", ""},
           {"dp=2,ep=4,tp=2", "bf16[14336,4096]", "R,S(0){14336,0,0,0},S(0)",
            "R,S(1){4096,0,0,0},S(0)", ""},
           // A root, an owner, a stage.
           {"a=4", "f32[64]", "At(2)", "R", "broadcast{a} -> R"},
           {"a=4", "f32[64]", "P", "At(0)", "reduce{a} -> At(0)"},
           {"a=4", "f32[1048576]", "At(1)", "S(0)", "scatter{a} -> S(0)"},
           {"a=4", "f32[64]", "At(1)", "At(3)", "send{a} -> At(3)"},
           {"a=2,b=2", "f32[64]", "At(1),At(0)", "R,R", "broadcast{a,b} -> R,R"},
           {"a=2,b=2", "f32[64,64]", "R,S(1)", "At(1),S(1)", "slice{a} -> At(1),S(1)"},
           {"a=2,b=2", "f32[64]", "At(1),S(0)", "S(0){0,64},S(0)", ""},
           {"a=2", "f32[8]", "S(0)", "S(0)", ""},
           {"a=1,b=1", "f32[8]", "S(0),P", "R,R", ""},
           // Without elements all placements say the same.
           {"a=2", "f32[0]", "P", "R", ""},
           {"a=2,b=3", "f32[2,0]", "S(0),P", "At(1),S(1)", ""},
           {"a=2", "f32[0]", "S(0)", "P(avg)", ""},
           // Coordinate 0 owns single rows.
           {"a=2,b=2", "f32[1]", "S(0),S(0)", "S(0)[1],S(0)[0]", ""},
           {"a=2,b=2", "f32[1,4]", "S(0),R", "At(0),S(1)", "slice{b} -> At(0),S(1)"},
           // An average is divided once.
           {"a=2,b=3", "f32[6]", "P(avg),P", "R,R", "all_reduce{a,b} -> R,R"},
           {"a=2,b=3", "i32[6]", "P(avg),P(avg)", "R,R", "all_reduce{a,b} -> R,R"},
       }) {
    EXPECT_EQ(Steps(TryPlan(g.mesh, g.tensor, g.from, g.to)), g.steps)
        << g.mesh << " " << g.tensor << " " << g.from << " -> " << g.to;
  }
}

TEST(PlannerTest, PerDimIsDTensorsGreedyPlanner) {
  for (const Golden& g : std::vector<Golden>{
           {"ddp=8,fsdp=5,tp=1", "bf16[8192,8192]", "P,P,R", "R,R,R",
            "all_reduce{ddp} -> R,P,R; all_reduce{fsdp} -> R,R,R"},
           {"a=2,b=2,c=2", "f32[8,8]", "P,S(0),P", "R,R,R",
            "all_reduce{c} -> P,S(0),R; all_gather{b} -> P,R,R; all_reduce{a} -> R,R,R"},
           {"a=2,b=2,c=2", "f32[8]", "P,P,S(0)", "S(0),S(0),S(0)",
            "all_gather{c} -> P,P,R; all_reduce{b} -> P,R,R; reduce_scatter{a} -> S(0),R,R; "
            "slice{b} -> S(0),S(0),R; slice{c} -> S(0),S(0),S(0)"},
           {"a=2,b=2", "f32[8,8]", "S(0),S(1)", "S(1),S(0)",
            "all_gather{b} -> S(0),R; all_to_all{a} -> S(1),R; slice{b} -> S(1),S(0)"},
           {"a=2,b=2,c=2", "f32[8,8,8]", "S(0),S(0),S(0)", "S(1),S(1),S(1)",
            "all_gather{c} -> S(0),S(0),R; all_gather{b} -> S(0),R,R; all_to_all{a} -> S(1),R,R; "
            "slice{b} -> S(1),S(1),R; slice{c} -> S(1),S(1),S(1)"},
       }) {
    EXPECT_EQ(Steps(TryPlan(g.mesh, g.tensor, g.from, g.to, {.planner = PlannerKind::kPerDim})),
              g.steps)
        << g.mesh << " " << g.tensor << " " << g.from << " -> " << g.to;
  }
}

TEST(PlannerTest, ExchangeDoesNotSwallowTheGather) {
  const auto plan =
      TryPlan("a=40", "f32[268435456]", "S(0)", "R", {.topology = *Topology::Parse("nvlink=8")});
  EXPECT_EQ(Steps(plan), "all_gather{a} -> R");
}

TEST(PlannerTest, NoneMayComputeASumTwice) {
  const auto plan = TryPlan("dp=64,tp=16", "f32[1024,512]", "P,R", "R,R",
                            {.reproducibility = Reproducibility::kNone});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->asked(), Reproducibility::kNone);
  EXPECT_LE(plan->total().est_ns,
            TryPlan("dp=64,tp=16", "f32[1024,512]", "P,R", "R,R")->total().est_ns);
}

// Limits that no plan keeps to are the caller's error, not the planner's.
TEST(PlannerTest, ValuesBeyondTheirLimitAreRefused) {
  const DeviceMesh two = *DeviceMesh::Parse("a=2");
  const absl::StatusOr<Plan> both =
      MakePlan(*Sharding::Parse("i32[5,2]", two, "S(0){4,1}"),
               *Sharding::Parse("f64[5,2]", two, "S(0)"), {.max_memory = 64, .max_value = 8});
  EXPECT_EQ(both.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(both.status().message()),
      testing::HasSubstr("no plan keeps to max_value = 8, and none beyond it to max_memory = 64"));
  const DeviceMesh three = *DeviceMesh::Parse("a=3");
  const absl::StatusOr<Plan> owners =
      MakePlan(*Sharding::Parse("i32[1,2,2]", three, "At(0)"),
               *Sharding::Parse("f64[1,2,2]", three, "At(0,2)"), {.max_value = 8});
  EXPECT_EQ(owners.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(owners.status().message()),
              testing::HasSubstr("no plan keeps to max_value = 8"));
}

TEST(PlannerTest, PlansOfManyDimsEnd) {
  const auto plan = TryPlan("a=2,b=2,c=2,d=2,e=2", "f32[64,64,64,64]", "S(0),S(1),P,S(2),S(3)",
                            "S(2),S(0),S(3),R,S(1)", {.topology = *Topology::Parse("nvlink=4")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->steps().back().after, plan->to());
}

TEST(PlannerTest, AMillionRanksAreNotListed) {
  const auto plan = TryPlan("a=1024,b=1024", "f32[4096,4096]", "P,S(0)", "R,S(1)",
                            {.topology = *Topology::Parse("nvlink=8")});
  ASSERT_TRUE(plan.ok()) << plan.status();
}

TEST(PlannerTest, RefusalsNameTheValueAndTheRule) {
  struct Case {
    std::string mesh, tensor, from, to;
    PlannerOptions options;
    absl::StatusCode code;
    std::string message;
  };
  EngineCapabilities weak("weak");
  weak.Allow(ReduceOp::kSum, DType::kF32);
  for (const Case& c : std::vector<Case>{
           {"a=2",
            "f32[4]",
            "P(sum)",
            "P(max)",
            {},
            absl::StatusCode::kInvalidArgument,
            "P -> P(max) on mesh dim 'a'"},
           {"a=2",
            "f32[4]",
            "P(sum)",
            "P(avg)",
            {},
            absl::StatusCode::kInvalidArgument,
            "P -> P(avg) on mesh dim 'a'"},
           {"a=2",
            "f32[4]",
            "S(0)",
            "P(avg)",
            {},
            absl::StatusCode::kInvalidArgument,
            "S(0) -> P(avg) on mesh dim 'a'"},
           {"a=2",
            "bf16[4]",
            "P",
            "R",
            {.engine = weak},
            absl::StatusCode::kUnimplemented,
            "engine 'weak' cannot reduce bf16 by sum"},
           {"a=2",
            "f32[4]",
            "P",
            "R",
            {.reproducibility = Reproducibility::kOrdered, .ordered_reductions = false},
            absl::StatusCode::kFailedPrecondition,
            "reproducibility 'ordered' needs reductions in order, which the options forbid"},
           {"a=2",
            "f32[4]",
            "P",
            "S(0)",
            {.reproducibility = Reproducibility::kBatchInvariant,
            .engine = EngineCapabilities::Nccl(),
            .ordered_reductions = false},
            absl::StatusCode::kFailedPrecondition,
            "forbid: engine nccl does not promise to reduce every element in the same way"},
           {"a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2",
            "f32[4]",
            "P,P,P,P,P,P,P,P,P",
            "R,R,R,R,R,R,R,R,R",
            {},
            absl::StatusCode::kUnimplemented,
            "9 dims of size > 1"},
           {"a=2,b=2",
            "i32[4]",
            "P(avg),P(avg)",
            "R,R",
            {.planner = PlannerKind::kPerDim},
            absl::StatusCode::kUnimplemented,
            "cannot average i32 and reduce over 2 mesh dims"},
       }) {
    const auto plan = TryPlan(c.mesh, c.tensor, c.from, c.to, c.options);
    EXPECT_EQ(plan.status().code(), c.code) << plan.status();
    EXPECT_NE(plan.status().ToString().find(c.message), std::string::npos) << plan.status();
  }
}

std::string PromiseSteps(const std::string& tensor, const std::string& from, const std::string& to,
                         const PlannerOptions& options) {
  const auto plan = TryPlan("dp=4,tp=6", tensor, from, to, options);
  return plan.ok() ? Steps(plan) + " | " + plan->why() : plan.status().ToString();
}

// One step over the mesh dims that source and target give, whatever the cost, in one or more
// groups.
TEST(PlannerTest, OrderedReductions) {
  const PlannerOptions ordered{.reproducibility = Reproducibility::kOrdered};
  const std::string why = " | contributions are combined in ascending order of coordinates";
  EXPECT_EQ(PromiseSteps("f32[]", "P,R", "R,R", ordered), "all_reduce{dp} -> R,R" + why);
  EXPECT_EQ(PromiseSteps("f32[4096,4096]", "P,P", "R,R", ordered),
            "all_reduce{dp,tp} -> R,R" + why);
  EXPECT_EQ(PromiseSteps("f32[4096]", "P,R", "S(0),R", ordered),
            "reduce_scatter{dp} -> S(0),R" + why);
  EXPECT_EQ(PromiseSteps("i32[4096]", "P,P", "R,R", ordered),
            "all_reduce{dp,tp} -> R,R | the reduction is exact in any order");
  EXPECT_EQ(PromiseSteps("f32[4096]", "S(0),R", "R,R", ordered),
            "all_gather{dp} -> R,R | nothing is reduced");

  // In blocks; exact reductions need none.
  PlannerOptions blocks = ordered;
  blocks.reduce_block = 5;
  EXPECT_EQ(PromiseSteps("f32[4096]", "P,R", "S(0),R", blocks),
            "reduce_scatter{dp} -> S(0),R" + why + ", in blocks of 5");
  for (const char* dtype : {"f32[8]", "i32[8]"}) {
    const auto plan = TryPlan("dp=4,tp=6", dtype, "P,P", "R,R", blocks);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->steps()[0].reduce_block,
              dtype[0] == 'f' ? std::optional<int64_t>(5) : std::nullopt);
    EXPECT_TRUE(Verify(*plan).ok());
  }
  blocks.reproducibility = Reproducibility::kBatchInvariant;
  EXPECT_EQ(PromiseSteps("i32[8]", "R,R", "R,R", blocks),
            "INVALID_ARGUMENT: a reduce_block of 5 needs reproducibility 'ordered'; it is "
            "'batch-invariant'");
  blocks.reduce_block = -1;
  EXPECT_EQ(PromiseSteps("i32[8]", "R,R", "R,R", blocks),
            "INVALID_ARGUMENT: a reduce_block of -1 is below 0");
}

// In stages if that is cheaper, on domains of 8.
TEST(PlannerTest, ReductionsInStages) {
  const auto stages = [](const char* mesh, const char* tensor, const char* from, const char* to,
                         int64_t block, const char* topology = "nvlink=8") -> std::string {
    const auto plan = TryPlan(mesh, tensor, from, to,
                              {.reproducibility = Reproducibility::kOrdered,
                               .topology = Topology::Parse(topology).value(),
                               .reduce_block = block});
    if (!plan.ok()) return plan.status().ToString();
    const Verdict verdict = Verify(*plan);
    if (!verdict.ok()) return verdict.fault->message;
    const Step& step = plan->steps()[0];
    return fmt::format("{} {} {}", step.reduce_stages.value_or(1), Name(*step.sizes),
                       step.bytes_sent);
  };
  // 2^20 elements of 4 bytes in 64 parts: 7 columns of 8 inside, 7 parts across.
  const std::string staged = fmt::format("2 even {}", (7 * 8 + 7) * (1 << 20) / 64 * 4);
  EXPECT_EQ(stages("a=8,b=8", "f32[1048576]", "P,P", "S(0),S(0)", 8), staged);
  EXPECT_EQ(stages("a=4,b=16", "f32[1048576]", "P,P", "S(0),S(0)", 8), staged);
  EXPECT_EQ(stages("a=64", "f32[1048576]", "P", "S(0)", 8), staged);
  EXPECT_EQ(stages("a=64", "f32[1048575]", "P", "S(0)", 8), "2 padded" + staged.substr(6));
  EXPECT_EQ(stages("a=512,b=64", "f32[1048576]", "R,P", "R,S(0)", 8), staged);
  // An all_reduce also gathers in stages, with as many bytes again.
  EXPECT_EQ(stages("a=64", "f32[1048576]", "P", "R", 8),
            fmt::format("2 even {}", 2 * (7 * 8 + 7) * (1 << 20) / 64 * 4));
  // Blocks that do not divide the group, that are the group, or that have one contribution.
  const std::string flat = fmt::format("1 even {}", 63 * (1 << 20) / 64 * 4);
  for (const int64_t block : {0, 1, 7, 24, 64, 100}) {
    EXPECT_EQ(stages("a=64", "f32[1048576]", "P", "S(0)", block), flat) << block;
  }
  // Sums twice as wide as contributions, over equal links.
  EXPECT_EQ(stages("a=8", "bf16[4194304]", "P", "S(0)", 2, "flat"),
            fmt::format("1 even {}", 7 * (1 << 22) / 8 * 2));
}

TEST(PlannerTest, BatchInvariantReductions) {
  PlannerOptions options{.reproducibility = Reproducibility::kBatchInvariant};
  const std::string native =
      " | engine local reduces every element in the same way, in one step by equivalent groups";
  const std::string why = " | contributions are combined in ascending order of coordinates: ";
  EXPECT_EQ(PromiseSteps("f32[4096]", "S(0),P", "S(0),R", options),
            "all_reduce{tp} -> S(0),R" + native);
  EXPECT_NE(PromiseSteps("f32[4096]", "P,R", "R,R", options)
                .find(why + "several groups would reduce the same value: tp is replicated"),
            std::string::npos);
  options.topology = Topology::Parse("nvlink=4").value();
  EXPECT_EQ(PromiseSteps("f32[4096]", "S(0),P", "S(0),R", options),
            "all_reduce{tp} -> S(0),R" + why + "the groups are not equivalent on the topology");
  options.topology = Topology::Parse("nvlink=8").value();
  EXPECT_EQ(PromiseSteps("f32[4096]", "P,S(0)", "R,S(0)", options),
            "all_reduce{dp} -> R,S(0)" + why + "the groups are not equivalent on the topology");
  options.engine = EngineCapabilities::Nccl();
  EXPECT_EQ(PromiseSteps("f32[4800]", "P,P", "R,R", options),
            "reduce_scatter{dp,tp} -> S(0),S(0); exchange{dp,tp} -> R,R" + why +
                "engine nccl does not promise to reduce every element in the same way");
  options.engine.native_invariance = NativeInvariance::kAllReduce;
  EXPECT_EQ(PromiseSteps("f32[4096]", "P,P", "S(0),R", options),
            "reduce_scatter{dp,tp} -> S(0),S(0); exchange{tp} -> S(0),R" + why +
                "engine nccl reduces every element in the same way by all_reduce only, not by "
                "reduce_scatter over dp");
}

std::string CastSteps(const std::string& from_tensor, const std::string& to_tensor,
                      const std::string& from, const std::string& to,
                      std::optional<DType> reduce_dtype = std::nullopt) {
  const DeviceMesh mesh = *DeviceMesh::Parse("fsdp=8,tp=2");
  return Steps(MakePlan(*Sharding::Parse(from_tensor, mesh, from),
                        *Sharding::Parse(to_tensor, mesh, to), {.reduce_dtype = reduce_dtype}));
}

TEST(PlannerTest, CastsBeforeMovesThatWiden) {
  // FSDP's pair: a weight is gathered, and its gradient reduced.
  EXPECT_EQ(CastSteps("f32[4096,4096]", "bf16[4096,4096]", "S(0),S(1)", "R,S(1)"),
            "cast{bf16} -> S(0),S(1); all_gather{fsdp} -> R,S(1)");
  EXPECT_EQ(CastSteps("bf16[4096,4096]", "f32[4096,4096]", "P,S(1)", "S(0),S(1)"),
            "reduce_scatter{fsdp} -> S(0),S(1); cast{f32} -> S(0),S(1)");
  EXPECT_EQ(CastSteps("bf16[4096,4096]", "f32[4096,4096]", "P,S(1)", "S(0),S(1)", DType::kF32),
            "cast{f32} -> P,S(1); reduce_scatter{fsdp} -> S(0),S(1)");
  EXPECT_EQ(CastSteps("bf16[4096,4096]", "f32[4096,4096]", "S(0),S(1)", "R,S(1)"),
            "all_gather{fsdp} -> R,S(1); cast{f32} -> R,S(1)");
  EXPECT_EQ(CastSteps("i8[65536]", "f64[65536]", "R,R", "S(0),R"),
            "slice{fsdp} -> S(0),R; cast{f64} -> S(0),R");
}

// A mesh dim that is partial in the target only: a mask lets it join the reduction, and a second
// mask makes it partial again. The tensor cannot be sliced, and a cast, or an op that does not mix
// with others, comes in between.
TEST(PlannerTest, WhatJoinsAReductionMayBePartialInTheTarget) {
  EXPECT_EQ(CastSteps("f32[]", "bf16[]", "P,R", "R,P"),
            "mask{tp} -> P,P; all_reduce{fsdp,tp} -> R,R; cast{bf16} -> R,R; mask{tp} -> R,P");
  EXPECT_EQ(CastSteps("f32[]", "bf16[]", "P(avg),R", "R,P"),
            "mask{tp} -> P(avg),P; all_reduce{fsdp,tp} -> R,R; cast{bf16} -> R,R; "
            "mask{tp} -> R,P");
  EXPECT_EQ(Steps(TryPlan("a=2,b=2", "f32[]", "P,R", "R,P(max)")),
            "mask{b} -> P,P; all_reduce{a,b} -> R,R; mask{b} -> R,P(max)");
  // Without a cast, one mask does both.
  EXPECT_EQ(Steps(TryPlan("a=2,b=2", "f32[]", "P,R", "R,P")),
            "mask{b} -> P,P; all_reduce{a} -> R,P");
}

TEST(PlannerTest, NothingIsRoundedTwice) {
  // Sums of bf16 are formed in f32, so the cast to f8e5m2 starts from f32.
  EXPECT_EQ(CastSteps("bf16[4096,64]", "f8e5m2[4096,64]", "P,S(1)", "S(0),S(1)"),
            "cast{f32} -> P,S(1); reduce_scatter{fsdp} -> S(0),S(1); "
            "cast{f8e5m2} -> S(0),S(1)");
  // A cast between the reduction and the gather.
  EXPECT_EQ(CastSteps("f32[4096,4096]", "bf16[4096,4096]", "P,S(1)", "R,S(1)"),
            "reduce_scatter{fsdp} -> S(0),S(1); cast{bf16} -> S(0),S(1); "
            "all_gather{fsdp} -> R,S(1)");
  EXPECT_EQ(CastSteps("bf16[4096,64]", "bf16[4096,64]", "P,S(1)", "S(0),S(1)", DType::kF32),
            "cast{f32} -> P,S(1); reduce_scatter{fsdp} -> S(0),S(1); cast{bf16} -> S(0),S(1)");
}

TEST(PlannerTest, WhatStaysPartialIsCastOnlyExactly) {
  EXPECT_EQ(CastSteps("bf16[4096,64]", "f32[4096,64]", "P,P", "S(0),P"),
            "reduce_scatter{fsdp} -> S(0),P; cast{f32} -> S(0),P");
  EXPECT_NE(CastSteps("f32[4096,64]", "bf16[4096,64]", "P,P", "S(0),P").find("one by one"),
            std::string::npos);
  // A mask fills with the identity of the target's dtype.
  EXPECT_EQ(CastSteps("i8[64]", "i32[64]", "R,R", "P(max),R"),
            "cast{i32} -> R,R; mask{fsdp} -> P(max),R");
}

TEST(PlannerTest, WithoutElementsThereIsOnePlan) {
  const DeviceMesh mesh = *DeviceMesh::Parse("a=2");
  const Sharding from = *Sharding::Parse("f32[0]", mesh, "S(0)");
  const Sharding to = *from.WithPlacements("P(avg)");
  EXPECT_EQ(LeastMemory(from, to).value(), 0);
  EXPECT_EQ(ListAlternatives(from, to, {}).value().size(), 1u);
  // No step can name the min of complex numbers.
  EXPECT_EQ(CastSteps("i64[1,0]", "c128[1,0]", "P(min),R", "R,R", DType::kF32).find("refused"),
            std::string::npos);
}

TEST(PlannerTest, RefusalsWithoutElementsNameTheGivenPlacements) {
  EXPECT_NE(CastSteps("f32[2,0]", "bf16[2,0]", "P,S(0)", "P,S(1)").find("as P,S(1): "),
            std::string::npos);
  EXPECT_NE(Steps(TryPlan("a=3,b=2", "f32[2,0]", "At(0,1),P", "R,P(max)"))
                .find("P -> P(max) on mesh dim 'b'"),
            std::string::npos);
}

TEST(PlannerTest, RefusesCastsThatThereAreNot) {
  EXPECT_NE(CastSteps("c64[8]", "f32[8]", "R,R", "R,R").find("imaginary"), std::string::npos);
  EXPECT_NE(CastSteps("i8[8]", "i8[8]", "P(xor),R", "R,R", DType::kF32).find("xor of f32"),
            std::string::npos);
}

TEST(PlannerTest, PackedElementsMoveInWholeBytes) {
  const absl::StatusOr<Plan> plan = TryPlan("a=2,b=2", "f4e2m1[6,8]", "S(0),S(1)", "R,S(0)");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->steps()[0].bytes_in, 6);
  EXPECT_EQ(plan->total().peak_bytes - plan->total().workspace_bytes, 6 + 12);
  // Ten elements cannot be cut into quarters of whole bytes, so no plan cuts them.
  EXPECT_EQ(Steps(TryPlan("a=2,b=2", "f4e2m1[10]", "R,R", "R,R")), "");
  EXPECT_FALSE(TryPlan("a=2,b=2", "f4e2m1[10]", "S(0),S(0)", "R,R").ok());
}

TEST(PlannerTest, PerDimCastsAtTheEnds) {
  const DeviceMesh mesh = *DeviceMesh::Parse("a=2,b=2");
  const PlannerOptions options{.planner = PlannerKind::kPerDim, .reduce_dtype = DType::kF32};
  EXPECT_EQ(Steps(MakePlan(*Sharding::Parse("bf16[8]", mesh, "P,P"),
                           *Sharding::Parse("bf16[8]", mesh, "R,R"), options)),
            "cast{f32} -> P,P; all_reduce{a} -> R,P; all_reduce{b} -> R,R; cast{bf16} -> R,R");
  EXPECT_EQ(Steps(MakePlan(*Sharding::Parse("f32[8]", mesh, "S(0),R"),
                           *Sharding::Parse("bf16[8]", mesh, "R,P"), options)),
            "cast{bf16} -> S(0),R; all_gather{a} -> R,R; mask{b} -> R,P");
}

TEST(PlannerTest, RefusesAnotherTensor) {
  const Sharding a = *Sharding::Parse("f32[4]", *DeviceMesh::Parse("x=2"), "R");
  EXPECT_EQ(MakePlan(a, *Sharding::Parse("f32[5]", a.mesh(), "R")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlannerTest, RaggedCutsOfManySizes) {
  std::string sizes = "{2";
  for (int i = 0; i < 1024; ++i) sizes += ",1";
  sizes += "}";
  const std::string mesh = "a=1025,b=8";
  const auto one = TryPlan(mesh, "f32[1026,64]", "S(0)" + sizes + ",S(0)", "S(0),S(1)");
  EXPECT_TRUE(one.ok()) << one.status();
  const auto two =
      TryPlan("a=1025,b=1025", "f32[1026,1026]", "S(0)" + sizes + ",S(1)" + sizes, "R,R");
  EXPECT_EQ(two.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(two.status().ToString().find(
                "make 1050625 different boxes; this version plans for at most 1048576"),
            std::string::npos);
}

// Thousands of paths are within a few percent of the best one, which takes 1,367,123 ns; a search
// has to expand 11,000 states to find it.
TEST(PlannerTest, ALongSearchSettlesForAPathNearTheBest) {
  const auto plan =
      TryPlan("a=5,b=5,c=5,d=2,e=3", "f32[128,32,32,16,256]", "S(2),R,R,S(1),S(4)", "R,S(4),R,R,R");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(Verify(*plan).ok());
  EXPECT_LE(plan->total().est_ns, 1'367'123 + 1'367'123 / 15);
}

}  // namespace
}  // namespace meshift
