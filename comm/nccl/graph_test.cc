// Redistributions in CUDA graphs, over the stand-in libraries: what a launch does, what memory a
// graph keeps, and who is disturbed by a capture.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/placement.h"
#include "meshift/redistributor.h"
#include "testing/internal/nccl/captured_graph.h"
#include "testing/internal/nccl/engine_fixture.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

class NcclGraphTest : public NcclEngineTest {};

// A call that was captured does, at each launch, what a call does: with the data of the launch.
TEST_F(NcclGraphTest, CallsAreCaptured) {
  const char* kCalls[][3] = {
      {"f32[8,6]", "P,S(0),R", "R,R,S(1)"},     {"bf16[40,33]", "P(avg),P(avg),P(avg)", "R,R,R"},
      {"i16[9,7]", "P,P,S(0)", "S(1),R,R"},     {"f32[7,5]", "S(0),S(1),R", "R,S(0),S(1)"},
      {"f64[4,4]", "P(max),R,P(max)", "R,R,R"},
  };
  uint64_t seed = 4;
  for (const NcclOptions& options :
       {NcclOptions{}, NcclOptions{.max_ctas = 8}, NcclOptions{.bounded_calls = true}}) {
    Start(8, options, seed++);
    const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
    std::vector<Pair> pairs;
    for (const auto& call : kCalls) pairs.push_back(PairOf(call[0], mesh, call[1], call[2]));
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
      CapturedGraph graph(engine);
      const Calls calls = CallsOf(engine, pairs);
      const auto values = [&](const Call& call, int round) {
        return SomeValues(call.pair.from, rank, round);
      };
      // The first calls make groups and get memory.
      std::vector<std::vector<std::vector<uint8_t>>> expected(3);
      for (int round = 0; round < 3; ++round) {
        for (const auto& call : calls) {
          expected[round].push_back(call->Result(redistribute, values(*call, round)));
        }
      }
      TheFake()->hot_begin(0);
      graph.Begin();
      for (const auto& call : calls) {
        const absl::StatusOr<RunHandle> run = (*call)(redistribute, &graph.stream());
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_EQ(Message(run->Wait(graph.stream())), "");
        // The host cannot wait for a part of a graph.
        if (call == calls.front()) {
          EXPECT_EQ(engine.Synchronize(graph.stream()).code(),
                    absl::StatusCode::kFailedPrecondition);
          EXPECT_EQ(run->Wait().code(), absl::StatusCode::kFailedPrecondition);
        }
      }
      TheFake()->hot_end(0);
      graph.End();
      for (int round = 2; round >= 0; --round) {
        for (const auto& call : calls) call->Put(values(*call, round));
        graph.Launch();
        for (size_t i = 0; i < calls.size(); ++i) {
          EXPECT_EQ(calls[i]->Take(), expected[round][i]) << kCalls[i][1] << " round " << round;
        }
      }
      // Calls go on beside the graph, once it is done.
      for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(calls[i]->Result(redistribute, values(*calls[i], 0)), expected[0][i]);
      }
    });
    TearDown();
  }
  Start(1);
}

// A graph's memory is not freed when later calls need more.
TEST_F(NcclGraphTest, AGraphKeepsItsMemory) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  std::vector<Pair> pairs;
  for (const char* tensor : {"bf16[8,12]", "bf16[64,96]", "bf16[256,96]"}) {
    // Packed workspace, and scratch memory of the communicator.
    pairs.push_back(PairOf(tensor, mesh, "S(0),P(max)", "S(1),R"));
  }
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    CapturedGraph graph(engine);
    const Calls calls = CallsOf(engine, pairs);
    const Call& small = *calls[0];
    const std::vector<uint8_t> values = SomeValues(small.pair.from, rank, 1);
    const std::vector<uint8_t> expected = small.Result(redistribute, values);
    graph.Begin();
    ASSERT_EQ(Message(small(redistribute, &graph.stream())->Wait(graph.stream())), "");
    graph.End();
    for (const auto& call : calls) {
      call->Result(redistribute, SomeValues(call->pair.from, rank, 2));
      // Allocate frees memory that is not used any more.
      ASSERT_TRUE(engine.Allocate(8).ok());
    }
    small.Put(values);
    graph.Launch();
    EXPECT_EQ(small.Take(), expected);
  });
}

// A framework that captures in CUDA's default mode, which forbids unsafe calls to all threads, is
// not disturbed by a thread that waits.
TEST_F(NcclGraphTest, WaitingDisturbsNobodysCapture) {
  Start(2);
  const auto meet = [&](int64_t rank) { EXPECT_TRUE(ranks_->bootstrap(rank).Exchange("").ok()); };
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    CapturedGraph graph(engine);
    const std::unique_ptr<Stream> other = engine.CreateStream().value();
    const std::unique_ptr<Buffer> data = engine.Allocate(64).value();
    meet(rank);  // none allocates any more
    if (rank == 0) graph.Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    meet(rank);
    EXPECT_EQ(Message(engine.FillZero(data->data(), 64, *other)), "");
    EXPECT_EQ(Message(engine.Synchronize(*other)), "");
    EXPECT_EQ(Message(engine.Wait(engine.Record(*other).value())), "");
    meet(rank);
    if (rank == 0) graph.End();
  });
}

// A call waits for an earlier call's use of scratch memory on another stream, also if a call was
// captured between the two.
TEST_F(NcclGraphTest, ACaptureDoesNotHideEarlierScratch) {
  Start(2);
  int64_t waits[2] = {};
  const auto meet = [&](int64_t rank) { EXPECT_TRUE(ranks_->bootstrap(rank).Exchange("").ok()); };
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    CapturedGraph graph(engine);
    const std::unique_ptr<Stream> first = engine.CreateStream().value();
    const std::unique_ptr<Stream> second = engine.CreateStream().value();
    const std::unique_ptr<Buffer> data = engine.Allocate(64).value();
    const auto max = [&](Stream& stream) {
      EXPECT_EQ(Message(engine.world()->AllReduce(data->data(), data->data(), 16, DType::kF32,
                                                  {ReduceOp::kMax, 1}, stream)),
                "");
    };
    const auto end = [&] {
      EXPECT_EQ(Message(engine.Synchronize(*first)), "");
      EXPECT_EQ(Message(engine.Synchronize(*second)), "");
      meet(rank);
    };
    ASSERT_EQ(Message(engine.FillZero(data->data(), 64, *first)), "");
    max(*first);
    max(*second);
    end();
    for (const int captures : {0, 1}) {
      max(*first);
      if (captures == 1) {
        graph.Begin();
        max(graph.stream());
        graph.End();
      }
      meet(rank);
      const int64_t before = TheFake()->call_count("cuStreamWaitEvent");
      meet(rank);
      max(*second);
      meet(rank);
      if (rank == 0) waits[captures] = TheFake()->call_count("cuStreamWaitEvent") - before;
      end();
    }
  });
  EXPECT_GT(waits[0], 0);
  EXPECT_EQ(waits[1], waits[0]);
}

TEST_F(NcclGraphTest, ACaptureCannotGetScratchMemory) {
  Start(2);
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    CapturedGraph graph(engine);
    const std::unique_ptr<Buffer> data = engine.Allocate(64).value();
    ASSERT_EQ(Message(engine.FillZero(data->data(), 64, graph.stream())), "");
    ASSERT_EQ(Message(engine.Synchronize(graph.stream())), "");
    const Reduction reduction{ReduceOp::kMax, 1};
    const auto max = [&] {
      return engine.world()->AllReduce(data->data(), data->data(), 16, DType::kF32, reduction,
                                       graph.stream());
    };
    graph.Begin();
    EXPECT_EQ(max().ToString(),
              "FAILED_PRECONDITION: group {0,1} needs 128 bytes of scratch memory and has 0: none "
              "can be allocated during graph capture; make the call once, or prepare its plan, "
              "before the capture");
    graph.End();
    // Reserved, it works.
    ASSERT_EQ(Message(engine.world()->Reserve(Communicator::ReduceCall::kAllReduce, 16, DType::kF32,
                                              reduction)),
              "");
    graph.Begin();
    EXPECT_EQ(Message(max()), "");
    graph.End();
  });
}

}  // namespace
}  // namespace meshift
