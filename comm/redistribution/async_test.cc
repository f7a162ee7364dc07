// Asynchronous redistributions: each group has its own stream, calls wait for the given streams and
// runs, each run can be waited for, and no call uses memory that another one still uses.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Floats = std::vector<float>;

// Four ranks, driven by this thread.
class AsyncTest : public testing::Test {
 protected:
  void Start(const RedistributorOptions& options = {},
             std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    world_ = LocalWorld::Create({.num_ranks = 4, .timeout = timeout}).value();
    for (int r = 0; r < 4; ++r) {
      redistribute_.push_back(Redistributor::Create(mesh_, world_->engine(r), options).value());
    }
  }
  ~AsyncTest() override {
    // End the calls whose peers never call.
    for (Redistributor& redistribute : redistribute_) redistribute.Abort();
  }
  Sharding Parse(const std::string& placements, int elements = 4) const {
    return Sharding::Parse("f32[" + std::to_string(elements) + "]", mesh_, placements).value();
  }
  static TensorView View(Floats& data) {
    return TensorView::Contiguous(data.data(), DType::kF32, {static_cast<int64_t>(data.size())});
  }
  // A gather over mesh dim a or b.
  absl::StatusOr<RunHandle> Gather(int rank, char dim, Floats& in, Floats& out) {
    const Sharding from = Parse(dim == 'a' ? "S(0),R" : "R,S(0)");
    const Sharding to = Parse("R,R");
    return redistribute_[rank]({.from = from, .to = to, .source = View(in), .target = View(out)});
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2,b=2").value();
  std::unique_ptr<LocalWorld> world_;
  std::vector<Redistributor> redistribute_;
};

// Ranks 0 and 1 wait for ranks 2 and 3 in the gathers over a, but can still gather over b.
TEST_F(AsyncTest, GroupsHaveTheirOwnStreams) {
  Start();
  std::vector<Floats> in = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> over_a(4, Floats(4));
  std::vector<Floats> over_b(4, Floats(4));
  std::vector<RunHandle> a(4);
  std::vector<RunHandle> b(4);
  for (int r = 0; r < 2; ++r) {
    a[r] = Gather(r, 'a', in[r], over_a[r]).value();
    b[r] = Gather(r, 'b', in[r], over_b[r]).value();
  }
  for (int r = 0; r < 2; ++r) {
    const absl::Status status = b[r].Wait();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(over_b[r], (Floats{1, 2, 3, 4}));
  }
  EXPECT_EQ(over_a[0], Floats(4, 0));
  for (int r = 2; r < 4; ++r) {
    a[r] = Gather(r, 'a', in[r], over_a[r]).value();
    b[r] = Gather(r, 'b', in[r], over_b[r]).value();
  }
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(a[r].Wait().ok());
    ASSERT_TRUE(b[r].Wait().ok());
  }
  EXPECT_EQ(over_a[0], (Floats{1, 2, 5, 6}));
  EXPECT_EQ(over_a[3], (Floats{3, 4, 7, 8}));
}

TEST_F(AsyncTest, ASingleStreamKeepsTheOrder) {
  Start({.expert = {.streams = StreamMode::kSingleStream}}, std::chrono::milliseconds(100));
  std::vector<Floats> in = {{1, 2}, {3, 4}};
  std::vector<Floats> out(4, Floats(4));
  RunHandle last;
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(Gather(r, 'a', in[r], out[r]).ok());
    last = Gather(r, 'b', in[r], out[2 + r]).value();
  }
  EXPECT_EQ(last.Wait().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(AsyncTest, AConsumersStreamWaits) {
  Start();
  std::vector<Floats> in = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> out(4, Floats(4));
  Floats consumed(4);
  Engine* const engine = world_->engine(0);
  const auto consumer = engine->CreateStream().value();
  ASSERT_TRUE(Gather(0, 'a', in[0], out[0]).value().Wait(*consumer).ok());
  ASSERT_TRUE(engine->CopyIn(out[0].data(), consumed.data(), 16, *consumer).ok());
  EXPECT_EQ(consumed, Floats(4, 0));
  std::vector<RunHandle> others;
  for (int r = 1; r < 4; ++r) others.push_back(Gather(r, 'a', in[r], out[r]).value());
  ASSERT_TRUE(engine->Synchronize(*consumer).ok());
  EXPECT_EQ(consumed, (Floats{1, 2, 5, 6}));
  for (const RunHandle& other : others) ASSERT_TRUE(other.Wait().ok());
}

// IsDone() of a call whose peers are missing, a done one, a failed one, and an empty handle.
TEST_F(AsyncTest, IsDoneNeverWaits) {
  Start();
  std::vector<Floats> in = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> out(4, Floats(4));
  EXPECT_TRUE(RunHandle().IsDone());
  const RunHandle first = Gather(0, 'a', in[0], out[0]).value();
  const RunHandle copy = first;
  EXPECT_FALSE(first.IsDone());
  const RunHandle second = Gather(2, 'a', in[2], out[2]).value();
  while (!first.IsDone() || !second.IsDone()) std::this_thread::yield();
  EXPECT_TRUE(copy.IsDone());
  EXPECT_EQ(out[0], (Floats{1, 2, 5, 6}));
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_TRUE(first.IsDone());

  const RunHandle lonely = Gather(1, 'a', in[1], out[1]).value();
  EXPECT_FALSE(lonely.IsDone());
  redistribute_[1].Abort();
  EXPECT_TRUE(lonely.IsDone());
  EXPECT_FALSE(lonely.Wait().ok());
}

TEST_F(AsyncTest, WhatIsOnlyReadIsNotWritten) {
  Start();
  Floats in(4, 1);
  Floats out(2);
  const Sharding from = Parse("R,R");
  const Sharding to = Parse("S(0),R");
  Redistributor& redistribute = redistribute_[0];
  const TensorView source = redistribute.View(from, static_cast<const float*>(in.data()));
  const TensorView target = redistribute.View(to, out.data());
  EXPECT_TRUE(source.read_only);
  EXPECT_FALSE(target.read_only);
  const auto error = [&](const Redistribution& what) {
    return Message(redistribute(what).status());
  };
  const RunHandle run =
      redistribute({.from = from, .to = to, .source = source, .target = target}).value();
  EXPECT_TRUE(run.Wait().ok());
  EXPECT_EQ(error({.from = from,
                   .to = to,
                   .source = source,
                   .target = redistribute.View(to, static_cast<const float*>(out.data()))}),
            "the target f32[2] is in read-only memory");
  EXPECT_EQ(
      error({.from = from, .to = to, .source = source, .target = target, .consume_source = true}),
      "the source f32[4] is in read-only memory and cannot be consumed");
}

TEST_F(AsyncTest, TensorsOfTheEngine) {
  Start();
  const ShardedTensor tensor = redistribute_[3].Empty(Parse("S(0),R")).value();
  EXPECT_EQ(tensor.sharding(), Parse("S(0),R"));
  EXPECT_EQ(tensor.shape(), (Shape{2}));
  EXPECT_EQ(tensor.size_bytes(), 8);
  EXPECT_NE(tensor.data(), nullptr);
  EXPECT_EQ(redistribute_[3].rank(), 3);
  // Tensors of a rank outside the mesh, and without elements.
  const Sharding elsewhere = Sharding::Parse("f32[4] on c=2@0,1 as R").value();
  EXPECT_EQ(redistribute_[3].Empty(elsewhere)->data(), nullptr);
  EXPECT_EQ(redistribute_[3].Empty(Parse("R,R", 0))->size_bytes(), 0);
}

// Calls with shardings, and calls with plans.
class AfterTest : public AsyncTest, public testing::WithParamInterface<bool> {
 protected:
  RunHandle Call(int rank, const char* from, const char* to, Floats& in, Floats& out,
                 const PlanRunOptions& options) {
    const Sharding source = Parse(from);
    const Sharding target = Parse(to);
    if (GetParam()) {
      const Plan plan = MakePlan(source, target).value();
      return redistribute_[rank].Run(plan, View(in), View(out), options).value();
    }
    return redistribute_[rank]({.from = source,
                                .to = target,
                                .source = View(in),
                                .target = View(out),
                                .after = options.after,
                                .after_run = options.after_run,
                                .ticket = options.ticket})
        .value();
  }
};

INSTANTIATE_TEST_SUITE_P(ByPlan, AfterTest, testing::Bool());

TEST_P(AfterTest, ProducersAndEarlierRunsAreWaitedFor) {
  Start();
  Engine* const engine = world_->engine(0);
  const auto producer = engine->CreateStream().value();
  // The producer fills the source once rank 1 and the others let it.
  ASSERT_TRUE(engine->world()->Barrier(*producer).ok());
  Floats late = {1, 2};
  std::vector<Floats> in = {{0, 0}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> middle(4, Floats(4));
  std::vector<Floats> out(4, Floats(2));
  ASSERT_TRUE(engine->CopyIn(late.data(), in[0].data(), 8, *producer).ok());
  std::vector<RunHandle> runs;
  for (int r = 0; r < 4; ++r) {
    const RunHandle gathered = Call(r, "S(0),R", "R,R", in[r], middle[r],
                                    {.after = r == 0 ? producer.get() : nullptr, .ticket = 0});
    // On another stream, since it has no calls.
    runs.push_back(
        Call(r, "R,R", "S(0),R", middle[r], out[r], {.after_run = gathered, .ticket = 1}));
  }
  std::vector<std::unique_ptr<Stream>> others;
  for (int r = 1; r < 4; ++r) {
    others.push_back(world_->engine(r)->CreateStream().value());
    ASSERT_TRUE(world_->engine(r)->world()->Barrier(*others.back()).ok());
  }
  for (const RunHandle& run : runs) ASSERT_TRUE(run.Wait().ok());
  EXPECT_EQ(out[0], (Floats{1, 2}));
  EXPECT_EQ(out[2], (Floats{5, 6}));
  EXPECT_EQ(out[3], (Floats{7, 8}));
}

// Many calls are in flight in the redistributor's own workspaces. Their plans begin and end on
// different streams, and need more and more memory.
TEST_F(AsyncTest, WorkspacesAreNotSharedInFlight) {
  Start();
  constexpr int kCalls = 60;
  std::vector<std::vector<Floats>> in(4);
  std::vector<std::vector<Floats>> out(4);
  std::vector<RunHandle> runs;
  for (int call = 0; call < kCalls; ++call) {
    const int elements = 4 + call / 3;
    const Sharding from = Parse(call % 3 == 0 ? "P,R" : call % 3 == 1 ? "R,P" : "P,P", elements);
    const Sharding to = Parse("R,R", elements);
    for (int r = 0; r < 4; ++r) {
      in[r].emplace_back(elements, static_cast<float>(call + 1));
      out[r].emplace_back(elements);
      runs.push_back(
          redistribute_[r](
              {.from = from, .to = to, .source = View(in[r].back()), .target = View(out[r].back())})
              .value());
    }
  }
  for (size_t i = runs.size(); i > 0; --i) {
    const absl::Status status = runs[i - 1].Wait();
    ASSERT_TRUE(status.ok()) << status;
  }
  for (int r = 0; r < 4; ++r) {
    for (int call = 0; call < kCalls; ++call) {
      const auto sum = static_cast<float>((call + 1) * (call % 3 == 2 ? 4 : 2));
      ASSERT_EQ(out[r][call], Floats(out[r][call].size(), sum)) << call;
    }
  }
  // Replaced workspaces are freed: one workspace per stream remains.
  EXPECT_LE(world_->memory(0).bytes_in_use, 4 * 128);
}

// A refusal changes nothing: the call has no number, and later ones run.
TEST_F(AsyncTest, StreamsAndMemoryOfOthersAreRefused) {
  Start();
  std::vector<Floats> in = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> out(4, Floats(4));
  const Sharding from = Parse("R,S(0)");
  const Sharding to = Parse("R,R");
  const Redistribution good = {
      .from = from, .to = to, .source = View(in[0]), .target = View(out[0])};
  Redistribution bad = good;
  const auto other = world_->engine(1)->CreateStream().value();
  bad.after = other.get();
  const std::string error = "the stream belongs to rank 1, not to rank 0";
  EXPECT_EQ(redistribute_[0](bad).status().ToString(), "INVALID_ARGUMENT: " + error);
  EXPECT_EQ(redistribute_[0](std::vector<Redistribution>{good, bad}).status().code(),
            absl::StatusCode::kInvalidArgument);
  Redistribution elsewhere = good;
  elsewhere.source.device = elsewhere.target.device = {.kind = Device::Kind::kCuda, .index = 0};
  EXPECT_EQ(redistribute_[0](elsewhere).status().ToString(),
            "INVALID_ARGUMENT: the tensors are on device cuda:0, the engine is on device host:0");
  elsewhere.source.device = elsewhere.target.device = {.kind = Device::Kind::kHost, .index = 3};
  EXPECT_EQ(redistribute_[0](elsewhere).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(redistribute_[0].stats().calls, 0);
  std::vector<RunHandle> runs;
  for (int r = 0; r < 4; ++r) runs.push_back(Gather(r, 'b', in[r], out[r]).value());
  for (const RunHandle& run : runs) EXPECT_TRUE(run.Wait().ok());
  EXPECT_EQ(out[0], (Floats{1, 2, 3, 4}));
}

TEST_F(AsyncTest, HandlesMayOutliveTheRedistributor) {
  Start();
  std::vector<Floats> in = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::vector<Floats> out(4, Floats(4));
  std::vector<RunHandle> runs;
  for (int r = 0; r < 4; ++r) runs.push_back(Gather(r, 'b', in[r], out[r]).value());
  const std::vector<RunHandle> copies = runs;
  runs.clear();
  redistribute_.clear();
  for (const RunHandle& run : copies) EXPECT_TRUE(run.Wait().ok());
  EXPECT_EQ(out[2], (Floats{5, 6, 7, 8}));
  EXPECT_TRUE(RunHandle().Wait().ok());
}

}  // namespace
}  // namespace meshift
