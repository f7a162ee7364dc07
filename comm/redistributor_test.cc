// One rank's redistributor on a fake engine: plans, caches, groups, checks, and errors.
#include "meshift/redistributor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/fake_engine.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

using Lines = std::vector<std::string>;

// One rank of a mesh, alone with an engine that does nothing.
class RedistributorTest : public testing::Test {
 protected:
  RedistributorTest() : from_(Parse("P,R")), to_(Parse("R,S(0)")) {}

  Sharding Parse(const std::string& placements) const {
    return Sharding::Parse("f32[4,2]", mesh_, placements).value();
  }
  TensorView View(std::vector<float>* data, Shape shape) const {
    data->resize(NumElements(shape));
    return TensorView::Contiguous(data->data(), DType::kF32, std::move(shape));
  }
  Redistribution Args() {
    return {.from = from_, .to = to_, .source = View(&in_, {4, 2}), .target = View(&out_, {2, 2})};
  }
  Redistributor Make(const RedistributorOptions& options = {}) {
    return Redistributor::Create(mesh_, &engine_, options).value();
  }
  std::string Refusal(Redistributor& redistribute, const Redistribution& args) {
    return redistribute(args).status().ToString();
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2,b=2").value();
  const Sharding from_;
  const Sharding to_;
  FakeEngine engine_{3, 4};
  std::vector<float> in_;
  std::vector<float> out_;
};

TEST_F(RedistributorTest, PlansLowersAndSplitsOnce) {
  Redistributor redistribute = Make();
  ASSERT_TRUE(redistribute(Args()).ok());
  EXPECT_EQ(engine_.log(),
            (Lines{"split 1 of {0,1,2,3}: {1,3}", "copy 1 f32", "all_reduce 4 f32 sum"}));
  const int allocations = engine_.allocations();
  engine_.ClearLog();
  ASSERT_TRUE(redistribute(Args()).ok());
  EXPECT_EQ(engine_.log(), (Lines{"copy 1 f32", "all_reduce 4 f32 sum"}));
  EXPECT_EQ(engine_.allocations(), allocations);
  const RedistributorStats stats = redistribute.stats();
  EXPECT_EQ(stats.calls, 2);
  EXPECT_EQ(stats.plans_made, 1);
  EXPECT_EQ(stats.plans_reused, 1);
  EXPECT_EQ(stats.plans_cached, 1);
  EXPECT_EQ(stats.groups.created, 1);
  EXPECT_EQ(redistribute.last_run().bytes_sent, (std::vector<int64_t>{0, 16}));
}

// An event before the first step and one after each step, whatever the streams.
TEST_F(RedistributorTest, TimesSteps) {
  Redistributor redistribute = Make({.expert = {.time_steps = true}});
  const auto run = [&](const Case& c) {
    const Plan plan = Plan::Seal(MakeFields(c));
    const auto whole = [](const Sharding& sharding, std::vector<float>* data) {
      data->resize(NumElements(sharding.LocalBox(3).size) + 1);
      return TensorView::Contiguous(data->data(), DType::kF32, sharding.LocalBox(3).size);
    };
    EXPECT_TRUE(
        redistribute.Run(plan, whole(plan.from(), &in_), whole(plan.to(), &out_)).status().ok());
    return redistribute.last_run();
  };
  for (int i = 0; i < 2; ++i) {
    const RunRecord three = run(ThreeSteps());
    ASSERT_EQ(three.events.size(), 4);
    for (int step = 0; step < 3; ++step) EXPECT_GT(three.StepNs(step), 0) << step;
    EXPECT_EQ(three.StepNs(3), -1);
    EXPECT_EQ(three.bytes_sent, (std::vector<int64_t>{0, 16, 16}));
    EXPECT_EQ(three.calls, (std::vector<int64_t>{0, 1, 1}));
  }
  // Steps without work on this rank have events too.
  const Case empty = {"a=2,b=2", "f32[0]", "S(0),R", "R,R", {{kAllGather, "a", "R,R", 0, 0, 0}}, 0};
  EXPECT_EQ(run(empty).StepNs(0), 1);
}

TEST_F(RedistributorTest, OtherPlansReuseGroups) {
  Redistributor redistribute = Make();
  ASSERT_TRUE(redistribute(Args()).ok());
  std::vector<float> whole;
  ASSERT_TRUE(redistribute({.from = from_,
                            .to = Parse("R,R"),
                            .source = View(&in_, {4, 2}),
                            .target = View(&whole, {4, 2})})
                  .ok());
  EXPECT_EQ(redistribute.stats().plans_made, 2);
  EXPECT_GE(redistribute.stats().groups.reused, 1);
}

TEST_F(RedistributorTest, CacheIsBounded) {
  // Enough for one of two programs, but not for both.
  const auto needed = [&](const Sharding& to) {
    int64_t bytes = 0;
    for (; bytes < 10000; bytes += 64) {
      Redistributor redistribute = Make({.expert = {.max_cached_bytes = bytes}});
      EXPECT_TRUE(redistribute.Prepare(from_, to).ok());
      if (redistribute.stats().plans_cached == 1) break;
    }
    return bytes;
  };
  Redistributor redistribute =
      Make({.expert = {.max_cached_bytes = std::max(needed(to_), needed(Parse("R,R")))}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(redistribute.Prepare(from_, to_).ok());
    ASSERT_TRUE(redistribute.Prepare(from_, Parse("R,R")).ok());
  }
  EXPECT_EQ(redistribute.stats().plans_made, 4);
  EXPECT_EQ(redistribute.stats().plans_cached, 1);
  Redistributor forgetful = Make({.expert = {.max_cached_bytes = 0}});
  ASSERT_TRUE(forgetful.Prepare(from_, to_).ok());
  EXPECT_EQ(forgetful.stats().plans_cached, 0);
  EXPECT_TRUE(forgetful(Args()).ok());
  EXPECT_EQ(Redistributor::Create(mesh_, &engine_, {.expert = {.max_cached_bytes = -1}})
                .status()
                .ToString(),
            "INVALID_ARGUMENT: max_cached_bytes -1 is negative");
}

TEST_F(RedistributorTest, PlansMayBeShared) {
  RedistributorOptions options;
  options.planning.groups = {.allow_new_groups = false,
                             .existing_groups = std::vector<MeshGroups>()};
  options.plans = std::make_shared<PlannerCache>(PlanningOptions(mesh_, engine_, options));
  Redistributor first = Make(options);
  Redistributor second = Make(options);
  const absl::StatusOr<Plan> plan = first.Prepare(from_, to_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(second.Prepare(from_, to_), plan);
  EXPECT_EQ(options.plans->stats().searches, 1);
  EXPECT_EQ(options.plans->stats().hits, 1);
  // Each redistributor has lowered the plan.
  EXPECT_EQ(first.stats().plans_made, 1);
  EXPECT_EQ(second.stats().plans_made, 1);
  options.planning.max_memory = 100;
  EXPECT_EQ(
      Redistributor::Create(mesh_, &engine_, options).status().ToString(),
      "INVALID_ARGUMENT: the plan cache was made with options other than the redistributor's");
}

TEST_F(RedistributorTest, PlansKeepToTheLimitOnMemory) {
  const int64_t least = LeastMemory(from_, to_).value();
  Redistributor tight = Make({.planning = {.max_memory = least - 1}});
  EXPECT_TRUE(absl::IsResourceExhausted(tight(Args()).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(tight.Prepare(from_, to_).status()));
  EXPECT_EQ(engine_.log(), Lines{});  // nothing was done, and no group made
  Redistributor enough = Make({.planning = {.max_memory = least}});
  EXPECT_EQ(enough.Prepare(from_, to_)->total().peak_bytes, least);
  EXPECT_TRUE(enough(Args()).ok());
}

TEST_F(RedistributorTest, PlansKeepToTheBudgetOfGroups) {
  // Only the root exists.
  Redistributor tight =
      Make({.planning = {.groups = {.allow_new_groups = false,
                                    .existing_groups = std::vector<MeshGroups>()}}});
  const Plan plan = tight.Prepare(from_, to_).value();
  std::vector<std::pair<StepOp, DimSet>> steps;
  for (const Step& step : plan.steps()) steps.emplace_back(step.op, step.mesh_dims);
  EXPECT_EQ(steps, (std::vector<std::pair<StepOp, DimSet>>{
                       {StepOp::kMask, {1}}, {StepOp::kAllReduce, {0, 1}}, {StepOp::kSlice, {1}}}));
  EXPECT_EQ(engine_.log(), Lines{});  // no group was made
  EXPECT_EQ(Redistributor::Create(mesh_, &engine_, {.planning = {.groups = {.expected_uses = 0}}})
                .status(),
            absl::InvalidArgumentError("expected_uses of 0 is below 1"));
}

TEST_F(RedistributorTest, PrepareLeavesNothingForTheFirstCall) {
  Redistributor redistribute = Make();
  const Plan plan = redistribute.Prepare(from_, to_).value();
  EXPECT_EQ(plan.steps().size(), 2);
  EXPECT_EQ(engine_.log(), Lines{"split 1 of {0,1,2,3}: {1,3}"});
  EXPECT_EQ(engine_.allocations(), 1);
  ASSERT_TRUE(redistribute(Args()).ok());
  EXPECT_EQ(engine_.allocations(), 1);
  EXPECT_EQ(redistribute.stats().plans_reused, 1);

  ASSERT_TRUE(redistribute.Prepare({plan}).ok());
  const RedistributorStats before = redistribute.stats();
  ASSERT_TRUE(redistribute.Run(plan, View(&in_, {4, 2}), View(&out_, {2, 2})).ok());
  EXPECT_EQ(redistribute.stats().plans_made, before.plans_made);
}

TEST_F(RedistributorTest, NorDoesItForTheFirstCallWithAList) {
  Redistributor redistribute = Make();
  // Two sums that are merged, and a gather.
  std::vector<float> memory[6];
  std::vector<Redistribution> list;
  const std::pair<Sharding, Sharding> pairs[] = {
      {from_, to_}, {from_, to_}, {Parse("S(0),R"), Parse("R,R")}};
  for (const auto& [from, to] : pairs) {
    const size_t i = 2 * list.size();
    list.push_back({.from = from,
                    .to = to,
                    .source = View(&memory[i], from.LocalBox(3).size),
                    .target = View(&memory[i + 1], to.LocalBox(3).size)});
  }
  std::vector<Redistribution> without_memory = list;
  for (Redistribution& what : without_memory) what.source.data = what.target.data = nullptr;
  ASSERT_TRUE(redistribute.Prepare(without_memory).ok());
  EXPECT_EQ(engine_.log(), Lines{"split 1 of {0,1,2,3}: {1,3}"});
  EXPECT_GT(engine_.allocations(), 0);
  const int allocations = engine_.allocations();
  const RedistributorStats before = redistribute.stats();
  engine_.ClearLog();

  ASSERT_TRUE(redistribute(list).ok());
  for (const std::string& line : engine_.log()) EXPECT_EQ(line.find("split"), std::string::npos);
  EXPECT_EQ(engine_.allocations(), allocations);
  const RedistributorStats stats = redistribute.stats();
  EXPECT_EQ(stats.plans_made, before.plans_made);
  EXPECT_EQ(stats.programs_made, before.programs_made);
  EXPECT_EQ(stats.groups.created, before.groups.created);
  EXPECT_EQ(stats.groups.created, 1);

  // It refuses what a call would refuse.
  without_memory[1].source = View(&memory[0], {2, 2});
  EXPECT_EQ(redistribute.Prepare(without_memory).ToString(),
            "INVALID_ARGUMENT: tensor 1: the source is f32[2,2]; rank 3 holds f32[4,2]");
  EXPECT_EQ(redistribute.stats().calls, 1);
}

TEST_F(RedistributorTest, WrongViewsAreRefused) {
  Redistributor redistribute = Make();
  Redistribution args = Args();
  std::vector<float> other;
  args.source = View(&other, {2, 2});
  EXPECT_EQ(Refusal(redistribute, args),
            "INVALID_ARGUMENT: the source is f32[2,2]; rank 3 holds f32[4,2]");
  Redistribution integers = Args();
  integers.target.dtype = DType::kI32;
  EXPECT_EQ(Refusal(redistribute, integers),
            "INVALID_ARGUMENT: the target is i32[2,2]; rank 3 holds f32[2,2]");
}

TEST_F(RedistributorTest, StridesAndDevicesAreChecked) {
  Redistributor redistribute = Make();
  Redistribution far = Args();
  far.source.strides = {1, int64_t{1} << 61};
  EXPECT_EQ(Refusal(redistribute, far),
            "INVALID_ARGUMENT: the source f32[4,2] with strides (1,2305843009213693952) exceeds "
            "the address range");
  Redistribution repeated = Args();
  repeated.target.strides = {1, 1};
  EXPECT_EQ(Refusal(redistribute, repeated),
            "INVALID_ARGUMENT: elements of the target f32[2,2] with strides (1,1) overlap each "
            "other");
  Redistribution short_strides = Args();
  short_strides.target.strides = {1};
  EXPECT_EQ(Refusal(redistribute, short_strides),
            "INVALID_ARGUMENT: the target f32[2,2]: the number of strides is 1; expected 2, one "
            "for each dim");
  Redistribution device = Args();
  device.target.device = {.kind = Device::Kind::kCuda, .index = 1};
  EXPECT_EQ(Refusal(redistribute, device),
            "INVALID_ARGUMENT: the source is on device host:0, the target on device cuda:1");
}

TEST_F(RedistributorTest, NullAndOverlapAreRefused) {
  Redistributor redistribute = Make();
  Redistribution null = Args();
  null.source.data = nullptr;
  EXPECT_EQ(Refusal(redistribute, null), "INVALID_ARGUMENT: the source f32[4,2] is null");
  Redistribution overlap = Args();
  overlap.target.data = in_.data() + 4;
  EXPECT_EQ(Refusal(redistribute, overlap),
            "INVALID_ARGUMENT: the source and the target overlap, but begin at different "
            "addresses");
  // The redistributor can still be used after these errors.
  EXPECT_TRUE(redistribute(Args()).ok());
}

TEST_F(RedistributorTest, CallersWorkspaceIsChecked) {
  Redistributor redistribute = Make();
  alignas(16) char memory[64];
  Redistribution args = Args();
  args.workspace = {memory, 8};
  EXPECT_EQ(Refusal(redistribute, args),
            "INVALID_ARGUMENT: the workspace has 8 bytes; the plan needs 16");
  args.workspace = {memory + 4, 32};
  EXPECT_EQ(Refusal(redistribute, args),
            "INVALID_ARGUMENT: the workspace is not aligned to 16 bytes");
  args.workspace = {memory, 32};
  args.target.data = memory;
  EXPECT_EQ(Refusal(redistribute, args), "INVALID_ARGUMENT: the target and the workspace overlap");
  Redistribution right = Args();
  right.workspace = {memory, 32};
  EXPECT_TRUE(redistribute(right).ok());
  EXPECT_EQ(engine_.allocations(), 0);
}

TEST_F(RedistributorTest, BroughtPlansAreVerified) {
  Redistributor redistribute = Make();
  const Case right = {"a=2,b=2",
                      "f32[4,2]",
                      "P,R",
                      "R,S(0)",
                      {{kSlice, "b", "P,S(0)", 32, 16, 0}, {kAllReduce, "a", "R,S(0)", 16, 16, 16}},
                      16};
  PlanFields fields = MakeFields(right);
  const TensorView in = View(&in_, {4, 2});
  const TensorView out = View(&out_, {2, 2});
  EXPECT_TRUE(redistribute.Run(Plan::Seal(fields), in, out).ok());
  fields.steps[1].bytes_sent = 8;
  const Plan wrong = Plan::Seal(fields);
  const absl::Status status = redistribute.Run(wrong, in, out).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.ToString().find("INVALID_ARGUMENT: plan " + wrong.fingerprint().ToString() +
                                   " breaks rule bytes: step 1: "),
            0)
      << status;
  // Costs are not part of the fingerprint, so a wrong plan must not be found as the cached right
  // one.
  EXPECT_EQ(wrong.fingerprint(), Plan::Seal(MakeFields(right)).fingerprint());
}

TEST_F(RedistributorTest, MeshOfOtherRanksIsRefused) {
  Redistributor redistribute = Make();
  const DeviceMesh other = DeviceMesh::Parse("a=2@3-4").value();
  const Sharding from = Sharding::Parse("f32[4]", other, "R").value();
  EXPECT_EQ(redistribute.Prepare(from, from).status().ToString(),
            "INVALID_ARGUMENT: rank 4 of mesh a=2@3-4 is not in the redistributor's mesh "
            "a=2,b=2");
  // From a mesh of the redistributor's ranks to one with other ranks.
  const Sharding inside = Sharding::Parse("f32[4]", mesh_, "R,R").value();
  EXPECT_EQ(redistribute.Prepare(inside, from).status().ToString(),
            "INVALID_ARGUMENT: rank 4 of mesh a=2@3-4 is not in the redistributor's mesh "
            "a=2,b=2");
}

TEST_F(RedistributorTest, FirstEngineErrorStays) {
  Redistributor redistribute = Make();
  const RunHandle run = redistribute(Args()).value();
  EXPECT_TRUE(run.Wait().ok());
  engine_.FailOn("all_reduce", absl::InternalError("cable"));
  EXPECT_EQ(Refusal(redistribute, Args()), "INTERNAL: cable");
  EXPECT_EQ(engine_.aborts(), 1);  // so that no peer waits
  engine_.FailOn("all_reduce", absl::InternalError("another"));
  EXPECT_EQ(Refusal(redistribute, Args()), "INTERNAL: cable");
  EXPECT_EQ(redistribute.Prepare(from_, to_).status().ToString(), "INTERNAL: cable");
  EXPECT_EQ(run.Wait().ToString(), "INTERNAL: cable");
  redistribute.Abort();
  EXPECT_EQ(Refusal(redistribute, Args()), "INTERNAL: cable");
}

TEST_F(RedistributorTest, ErrorsOfWaitingAndSplittingStayToo) {
  Redistributor redistribute = Make();
  const RunHandle run = redistribute(Args()).value();
  engine_.FailOn("wait", absl::UnavailableError("peer gone"));
  EXPECT_EQ(run.Wait().ToString(), "UNAVAILABLE: peer gone");
  EXPECT_EQ(Refusal(redistribute, Args()), "UNAVAILABLE: peer gone");

  Redistributor other = Make();
  engine_.FailOn("split", absl::InternalError("no more"));
  EXPECT_EQ(Refusal(other, Args()), "INTERNAL: no more");
  EXPECT_EQ(Refusal(other, Args()), "INTERNAL: no more");
}

TEST_F(RedistributorTest, AbortTwice) {
  Redistributor redistribute = Make();
  ASSERT_TRUE(redistribute(Args()).ok());
  redistribute.Abort();
  redistribute.Abort();
  EXPECT_EQ(Refusal(redistribute, Args()), "ABORTED: the redistributor was aborted");
}

TEST_F(RedistributorTest, RanksOutsideTheMeshDoNothing) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const Sharding from = Sharding::Parse("f32[4]", mesh, "S(0)").value();
  Redistributor redistribute = Redistributor::Create(mesh, &engine_).value();
  const absl::StatusOr<RunHandle> run =
      redistribute({.from = from, .to = from, .source = {}, .target = {}});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->Wait().ok());
  EXPECT_EQ(engine_.log(), Lines{"skip_split of {0,1,2,3}"});
  // These ranks make the same plans as the others.
  const Plan plan = redistribute.Prepare(from, from).value();
  FakeEngine member(0, 4);
  EXPECT_EQ(plan, Redistributor::Create(mesh, &member)->Prepare(from, from).value());
  EXPECT_TRUE(redistribute.Prepare({plan}).ok());
  EXPECT_EQ(redistribute.Prepare(from_, to_).status().ToString(),
            "INVALID_ARGUMENT: rank 2 of mesh a=2,b=2 is not in the redistributor's mesh "
            "a=2");
  EXPECT_EQ(redistribute.MakeSymmetricPool({0}).status().ToString(),
            "FAILED_PRECONDITION: rank 3 is not in mesh a=2 and has no group");
  EXPECT_EQ(engine_.log(), Lines{"skip_split of {0,1,2,3}"});
}

// If the options have no capabilities, plans are made for the redistributor's engine.
TEST_F(RedistributorTest, PlansNameTheEngine) {
  EXPECT_EQ(Make().Prepare(from_, to_)->options().engine.name(), "fake");
  EXPECT_EQ(Make({.expert = {.capabilities = EngineCapabilities::Nccl()}})
                .Prepare(from_, to_)
                ->options()
                .engine.name(),
            "nccl");
  const auto world = LocalWorld::Create({.num_ranks = 4}).value();
  Redistributor local = Redistributor::Create(mesh_, world->engine(0)).value();
  EXPECT_EQ(local.Prepare(from_, to_)->options().engine.name(), "local");
}

TEST_F(RedistributorTest, PlansOnlyWhatTheEngineReduces) {
  engine_.SetCapabilities(EngineCapabilities("fake").Allow(ReduceOp::kSum, DType::kBF16));
  Redistributor redistribute = Make();
  EXPECT_EQ(Refusal(redistribute, Args()), "UNIMPLEMENTED: engine 'fake' cannot reduce f32 by sum");
  EXPECT_EQ(engine_.log(), Lines{});
  // The option overrides the engine's capabilities.
  Redistributor told = Make({.expert = {.capabilities = EngineCapabilities::Full("told")}});
  EXPECT_TRUE(told(Args()).ok());
}

// A plan that was made for an engine whose own reductions add all elements in the same way.
TEST_F(RedistributorTest, RefusesPlansThatRestOnAnotherEngine) {
  const Plan plan =
      MakePlan(Parse("P,P"), Parse("R,R"), {.reproducibility = Reproducibility::kBatchInvariant})
          .value();
  ASSERT_EQ(plan.steps()[0].reduce_order, ReduceOrder::kAny);
  const auto run = [&](const EngineCapabilities& capabilities) {
    Redistributor redistribute = Make({.expert = {.capabilities = capabilities}});
    return redistribute.Run(plan, View(&in_, {4, 2}), View(&out_, {4, 2})).status();
  };
  EXPECT_TRUE(run(EngineCapabilities::Local()).ok());
  const absl::Status refused = run(EngineCapabilities::Nccl());
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.ToString().find(
                "needs an engine whose own reductions are batch-invariant ('reduce_scatter'); "
                "engine nccl has native_invariance 'none'"),
            std::string::npos)
      << refused;
}

// If the promise depends on NCCL's tree, the call's group has one channel, even the group of all
// ranks. Other calls have separate groups.
TEST_F(RedistributorTest, ATreeThatTreatsElementsAlikeHasOneChannel) {
  RedistributorOptions options{.planning = {.reproducibility = Reproducibility::kBatchInvariant},
                               .expert = {.capabilities = EngineCapabilities::Nccl()}};
  options.expert.capabilities->native_invariance = NativeInvariance::kAllReduce;
  Redistributor redistribute = Make(options);
  const auto run = [&](const Sharding& from, const Sharding& to) {
    engine_.ClearLog();
    EXPECT_TRUE(redistribute({.from = from,
                              .to = to,
                              .source = View(&in_, from.LocalBox(3).size),
                              .target = View(&out_, to.LocalBox(3).size)})
                    .ok());
    return engine_.log();
  };
  EXPECT_EQ(run(Parse("P,P"), Parse("R,R")),
            (Lines{"split 0 of {0,1,2,3}: {0,1,2,3}, one channel", "all_reduce 8 f32 sum"}));
  EXPECT_EQ(run(Parse("S(0),S(0)"), Parse("R,R")), (Lines{"all_gather 2 f32"}));
  EXPECT_EQ(run(Parse("S(0),P"), Parse("S(0),R")),
            (Lines{"split 1 of {0,1,2,3}: {2,3}, one channel", "all_reduce 4 f32 sum"}));
  EXPECT_EQ(run(Parse("S(0),S(0)"), Parse("S(0),R")),
            (Lines{"split 1 of {0,1,2,3}: {2,3}", "all_gather 2 f32"}));
  // Reductions other than all_reduce are done in order.
  EXPECT_EQ(run(Parse("S(0),P"), Parse("S(0),S(1)"))[2], "reduce_in_order 2 inputs 2 f32 sum");
}

}  // namespace
}  // namespace meshift
