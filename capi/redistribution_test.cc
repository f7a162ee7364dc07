// The functions of meshift/c.h on redistributors and runs: results, and errors for bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "meshift/c.h"
#include "testing/internal/c_calls.h"

namespace meshift::capi_testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks, driven by this thread.
class TwoRanks : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  TwoRanks() {
    for (int r = 0; r < kRanks; ++r) {
      engine_[r] = std::make_unique<Engine>(EngineOf(world_, r));
      redistributor_[r] = std::make_unique<Redistributor>();
      EXPECT_FINE(meshift_redistributor_create(mesh_, *engine_[r], nullptr,
                                               redistributor_[r]->out(), error));
      in_[r] = {1.0F + r, 2.0F + r, 3.0F + r, 4.0F + r};
    }
  }

  meshift_redistribution Sum(int rank) {
    auto what = Sized<meshift_redistribution>();
    what.from = parts_;
    what.to = sums_;
    what.source = in_[rank].data();
    what.target = out_[rank].data();
    return what;
  }

  const World world_ = WorldOf(kRanks);
  const Mesh mesh_ = MeshOf("a=2");
  const Sharding parts_ = ShardingOf("f32[4] on a=2 as P");
  const Sharding sums_ = ShardingOf("f32[4] on a=2 as R");
  std::unique_ptr<Engine> engine_[kRanks];
  std::unique_ptr<Redistributor> redistributor_[kRanks];
  std::vector<float> in_[kRanks];
  std::vector<float> out_[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
};

TEST_F(TwoRanks, Redistribute) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_FINE(meshift_run_wait(run[r], error));
    int32_t done = 0;
    EXPECT_FINE(meshift_run_is_done(run[r], &done, error));
    EXPECT_EQ(done, 1);
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
    auto stats = Sized<meshift_stats>();
    EXPECT_FINE(meshift_redistributor_get_stats(*redistributor_[r], &stats, error));
    EXPECT_EQ(stats.calls, 1);
    EXPECT_EQ(stats.plans_made, 1);
    EXPECT_EQ(stats.plans_cached, 1);
  }
}

TEST_F(TwoRanks, RedistributeWithStridesAWorkspaceAndStreams) {
  const Sharding rows = ShardingOf("f32[2,2] on a=2 as S(0)");
  const Sharding all = ShardingOf("f32[2,2] on a=2 as R");
  const int64_t strides[] = {1, 2};  // the transposed target
  Pending run[kRanks], next[kRanks];
  Stream stream[kRanks];
  std::vector<char> workspace[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_stream_create(*engine_[r], stream[r].out(), error));
    auto what = Sized<meshift_redistribution>();
    what.from = rows;
    what.to = all;
    what.source = in_[r].data();
    what.target = out_[r].data();
    what.target_strides = strides;
    what.after = stream[r];
    const meshift_redistribution* const list[] = {&what};
    int64_t bytes = -1;
    EXPECT_FINE(meshift_redistributor_workspace_bytes(*redistributor_[r], list, 1, &bytes, error));
    EXPECT_GT(bytes, 0);
    workspace[r].resize(bytes + 16);
    what.workspace =
        workspace[r].data() + (16 - reinterpret_cast<uintptr_t>(workspace[r].data()) % 16) % 16;
    what.workspace_bytes = bytes;
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    // In place, after the first; then work on the stream comes after it.
    auto what = Sized<meshift_redistribution>();
    what.from = parts_;
    what.to = sums_;
    what.source = what.target = out_[r].data();
    what.after_run = run[r];
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, next[r].out(), error));
    EXPECT_FINE(meshift_run_wait_on(next[r], stream[r], error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_stream_synchronize(stream[r], error));
    EXPECT_THAT(out_[r], ElementsAre(2, 4, 4, 6));
  }
}

TEST_F(TwoRanks, RedistributeLists) {
  std::vector<float> more[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution one = Sum(r);
    meshift_redistribution two = Sum(r);
    two.target = more[r].data();
    const meshift_redistribution* const list[] = {&one, &two};
    EXPECT_FINE(
        meshift_redistribute_list(*redistributor_[r], list, 2, nullptr, 0, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
    EXPECT_THAT(more[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, RunPlansAndPrepare) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    Plan plan;
    EXPECT_FINE(meshift_redistributor_prepare(*redistributor_[r], parts_, sums_, MESHIFT_DTYPE_NONE,
                                              plan.out(), error));
    EXPECT_FINE(meshift_redistributor_prepare(*redistributor_[r], parts_, sums_, MESHIFT_DTYPE_F64,
                                              nullptr, error));
    meshift_redistribution what = Sum(r);
    what.from = what.to = nullptr;
    EXPECT_FINE(meshift_redistribute_plan(*redistributor_[r], plan, &what, run[r].out(), error));
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, CallInTheOrderOfTickets) {
  Pending run[kRanks][2];
  std::vector<float> more[kRanks] = {std::vector<float>(4), std::vector<float>(4)};
  for (int r = 0; r < kRanks; ++r) {
    // The second waits in its thread for the first.
    std::thread second([&, r] {
      meshift_redistribution what = Sum(r);
      what.target = more[r].data();
      what.has_ticket = 1;
      what.ticket = 1;
      EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r][1].out(), error));
    });
    meshift_redistribution what = Sum(r);
    what.has_ticket = 1;
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r][0].out(), error));
    second.join();
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r][0], error));
    EXPECT_FINE(meshift_run_wait(run[r][1], error));
    EXPECT_THAT(more[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, DestroyHandlesInAnyOrder) {
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
    redistributor_[r]->Reset();
    engine_[r]->Reset();
  }
  const_cast<World&>(world_).Reset();
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FINE(meshift_run_wait(run[r], error));
    EXPECT_THAT(out_[r], ElementsAre(3, 5, 7, 9));
  }
}

TEST_F(TwoRanks, EndWithAnAbort) {
  Pending run;
  const meshift_redistribution what = Sum(0);
  EXPECT_FINE(meshift_redistribute(*redistributor_[0], &what, run.out(), error));
  EXPECT_FINE(meshift_redistributor_abort(*redistributor_[1], error));
  EXPECT_EQ(meshift_run_wait(run, nullptr), MESHIFT_ABORTED);
  meshift_run* none = nullptr;
  const meshift_redistribution other = Sum(1);
  EXPECT_EQ(meshift_redistribute(*redistributor_[1], &other, &none, nullptr), MESHIFT_ABORTED);
  EXPECT_INVALID(meshift_redistributor_abort(nullptr, error), "redistributor is NULL");
}

TEST_F(TwoRanks, RefuseBadRedistributors) {
  meshift_redistributor* none = reinterpret_cast<meshift_redistributor*>(1);
  auto options = Sized<meshift_redistributor_options>();
  const Engine& engine = *engine_[0];
  EXPECT_INVALID(meshift_redistributor_create(nullptr, engine, nullptr, &none, error),
                 "mesh is NULL");
  EXPECT_EQ(none, nullptr);
  EXPECT_INVALID(meshift_redistributor_create(mesh_, nullptr, nullptr, &none, error),
                 "engine is NULL");
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, nullptr, nullptr, error),
                 "redistributor is NULL");
  options.agreement = 3;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.agreement is 3; it must be 0, 1 or 2");
  options = Sized<meshift_redistributor_options>();
  options.timeout_ns = -1;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.timeout_ns is -1; it must be 0 or more");
  options = Sized<meshift_redistributor_options>();
  options.max_cached_bytes = -1;
  EXPECT_INVALID(meshift_redistributor_create(mesh_, engine, &options, &none, error),
                 "options.max_cached_bytes is -1; it must be 0 or more");
  options.size = 0;
  EXPECT_EQ(meshift_redistributor_create(mesh_, engine, &options, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  // Ranks that the world does not have.
  EXPECT_EQ(meshift_redistributor_create(MeshOf("a=3"), engine, nullptr, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
  Options planning;
  EXPECT_FINE(meshift_options_create(planning.out(), error));
  EXPECT_FINE(meshift_options_set(planning, "existing_groups", "zz", error));
  options = Sized<meshift_redistributor_options>();
  options.planning = planning;
  EXPECT_EQ(meshift_redistributor_create(mesh_, engine, &options, &none, nullptr),
            MESHIFT_INVALID_ARGUMENT);
}

TEST_F(TwoRanks, TakeOptions) {
  Options planning;
  EXPECT_FINE(meshift_options_create(planning.out(), error));
  EXPECT_FINE(meshift_options_set(planning, "reproducibility", "ordered", error));
  auto options = Sized<meshift_redistributor_options>();
  options.planning = planning;
  options.agreement = MESHIFT_AGREEMENT_OFF;
  options.single_stream = 1;
  options.timeout_ns = 1000000000;
  options.max_cached_bytes = 1 << 20;
  Redistributor made;
  EXPECT_FINE(meshift_redistributor_create(mesh_, *engine_[0], &options, made.out(), error));
  planning.Reset();
  Plan plan;
  EXPECT_FINE(meshift_redistributor_prepare(made, parts_, sums_, 0, plan.out(), error));
  Text kept;
  EXPECT_FINE(meshift_plan_promise(plan, kept.out(), nullptr, error));
  EXPECT_STREQ(kept, "ordered");
}

TEST_F(TwoRanks, RefuseBadRedistributions) {
  meshift_run* none = reinterpret_cast<meshift_run*>(1);
  const Redistributor& redistributor = *redistributor_[0];
  meshift_redistribution what = Sum(0);
  EXPECT_INVALID(meshift_redistribute(nullptr, &what, &none, error), "redistributor is NULL");
  EXPECT_EQ(none, nullptr);
  EXPECT_INVALID(meshift_redistribute(redistributor, nullptr, &none, error), "what is NULL");
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, nullptr, error), "run is NULL");
  what.from = nullptr;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error), "what.from is NULL");
  what = Sum(0);
  what.to = nullptr;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error), "what.to is NULL");
  what = Sum(0);
  what.reduce_dtype = 77;
  EXPECT_INVALID(meshift_redistribute(redistributor, &what, &none, error),
                 "what.reduce_dtype is 77, which is not a dtype number");
  what = Sum(0);
  what.size -= 8;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // No memory, though there are elements; overlapping tensors; a workspace that is too small.
  what = Sum(0);
  what.target = nullptr;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  what = Sum(0);
  what.target = in_[0].data() + 1;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // Shardings of ranks that are not in the redistributor's mesh.
  const Sharding elsewhere = ShardingOf("f32[4] on a=2@5,6 as R");
  what = Sum(0);
  what.to = elsewhere;
  EXPECT_EQ(meshift_redistribute(redistributor, &what, &none, nullptr), MESHIFT_INVALID_ARGUMENT);
  // Refused calls have changed nothing.
  auto stats = Sized<meshift_stats>();
  EXPECT_FINE(meshift_redistributor_get_stats(redistributor, &stats, error));
  EXPECT_EQ(stats.calls, 0);
  EXPECT_INVALID(meshift_redistributor_get_stats(nullptr, &stats, error), "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_get_stats(redistributor, nullptr, error), "stats is NULL");
}

TEST_F(TwoRanks, RefuseBadListsAndPlans) {
  meshift_run* none = nullptr;
  const Redistributor& redistributor = *redistributor_[0];
  const meshift_redistribution what = Sum(0);
  const meshift_redistribution* const list[] = {&what, nullptr};
  int64_t bytes = 0;
  EXPECT_INVALID(meshift_redistribute_list(nullptr, list, 1, nullptr, 0, &none, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, nullptr, 1, nullptr, 0, &none, error),
                 "list is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, list, 2, nullptr, 0, &none, error),
                 "list[1]: what is NULL");
  EXPECT_INVALID(meshift_redistribute_list(redistributor, list, 1, nullptr, 0, nullptr, error),
                 "run is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(nullptr, list, 1, &bytes, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(redistributor, list, 1, nullptr, error),
                 "bytes is NULL");
  EXPECT_INVALID(meshift_redistributor_workspace_bytes(redistributor, list, 2, &bytes, error),
                 "list[1]: what is NULL");

  const Plan plan = PlanOf("f32[4] on a=2 as P", "f32[4] on a=2 as R");
  meshift_redistribution buffers = Sum(0);
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, &buffers, &none, error),
                 "what.from, what.to and what.reduce_dtype must not be set: the plan has them");
  buffers.from = buffers.to = nullptr;
  EXPECT_INVALID(meshift_redistribute_plan(nullptr, plan, &buffers, &none, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, nullptr, &buffers, &none, error),
                 "plan is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, nullptr, &none, error),
                 "what is NULL");
  EXPECT_INVALID(meshift_redistribute_plan(redistributor, plan, &buffers, nullptr, error),
                 "run is NULL");
  // A plan that is not right does not run.
  Text text;
  EXPECT_FINE(meshift_plan_text(plan, text.out(), error));
  std::string changed(text);
  changed.replace(changed.find("P -> R"), 6, "P -> S(0)");
  Plan wrong;
  EXPECT_FINE(meshift_plan_read(changed.c_str(), wrong.out(), error));
  Error error;
  EXPECT_EQ(meshift_redistribute_plan(redistributor, wrong, &buffers, &none, error),
            MESHIFT_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("breaks rule target"));

  EXPECT_INVALID(meshift_redistributor_prepare(nullptr, parts_, sums_, 0, nullptr, error),
                 "redistributor is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, nullptr, sums_, 0, nullptr, error),
                 "from is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, parts_, nullptr, 0, nullptr, error),
                 "to is NULL");
  EXPECT_INVALID(meshift_redistributor_prepare(redistributor, parts_, sums_, -3, nullptr, error),
                 "reduce_dtype is -3, which is not a dtype number");
}

TEST_F(TwoRanks, RefuseHandlesOfOtherEngines) {
  const World other_world = WorldOf(kRanks);
  Stream of_other_rank, of_other_world;
  EXPECT_FINE(meshift_stream_create(*engine_[1], of_other_rank.out(), error));
  EXPECT_FINE(meshift_stream_create(EngineOf(other_world, 0), of_other_world.out(), error));
  Pending run[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    const meshift_redistribution what = Sum(r);
    EXPECT_FINE(meshift_redistribute(*redistributor_[r], &what, run[r].out(), error));
  }
  meshift_run* none = nullptr;
  for (const Stream* const stream : {&of_other_rank, &of_other_world}) {
    meshift_redistribution what = Sum(0);
    what.after = *stream;
    EXPECT_INVALID(meshift_redistribute(*redistributor_[0], &what, &none, error),
                   "what.after belongs to another engine");
    EXPECT_INVALID(meshift_run_wait_on(run[0], *stream, error), "stream belongs to another engine");
  }
  meshift_redistribution what = Sum(0);
  what.after_run = run[1];
  EXPECT_INVALID(meshift_redistribute(*redistributor_[0], &what, &none, error),
                 "what.after_run belongs to another engine");
  int32_t done = 0;
  EXPECT_INVALID(meshift_run_wait(nullptr, error), "run is NULL");
  EXPECT_INVALID(meshift_run_is_done(nullptr, &done, error), "run is NULL");
  EXPECT_INVALID(meshift_run_is_done(run[0], nullptr, error), "done is NULL");
  EXPECT_INVALID(meshift_run_wait_on(nullptr, of_other_rank, error), "run is NULL");
  EXPECT_INVALID(meshift_run_wait_on(run[0], nullptr, error), "stream is NULL");
  for (const Pending& one : run) EXPECT_FINE(meshift_run_wait(one, error));
}

// With a control channel, ranks that disagree get an error.
TEST(C, TellsRanksThatDisagree) {
  auto options = Sized<meshift_local_options>();
  options.num_ranks = 2;
  options.control = 1;
  World world;
  EXPECT_FINE(meshift_local_world_create(&options, world.out(), error));
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const Engine engine = EngineOf(world, r);
      const Mesh mesh = MeshOf("a=2");
      Redistributor redistributor;
      EXPECT_FINE(meshift_redistributor_create(mesh, engine, nullptr, redistributor.out(), error));
      const Sharding from = ShardingOf("f32[4] on a=2 as P");
      const Sharding to = ShardingOf(r == 0 ? "f32[4] on a=2 as R" : "f32[4] on a=2 as S(0)");
      std::vector<float> in(4), out(4);
      auto what = Sized<meshift_redistribution>();
      what.from = from;
      what.to = to;
      what.source = in.data();
      what.target = out.data();
      meshift_run* run = nullptr;
      Error error;
      EXPECT_EQ(meshift_redistribute(redistributor, &what, &run, error),
                MESHIFT_FAILED_PRECONDITION);
      EXPECT_THAT(error.text(), HasSubstr("P -> S(0)"));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(C, DestroysNothing) {
  meshift_mesh_destroy(nullptr);
  meshift_sharding_destroy(nullptr);
  meshift_options_destroy(nullptr);
  meshift_plan_destroy(nullptr);
  meshift_program_destroy(nullptr);
  meshift_local_world_destroy(nullptr);
  meshift_engine_destroy(nullptr);
  meshift_stream_destroy(nullptr);
  meshift_buffer_destroy(nullptr);
  meshift_redistributor_destroy(nullptr);
  meshift_run_destroy(nullptr);
}

}  // namespace
}  // namespace meshift::capi_testing
