// The NCCL engine under a redistributor, over the stand-in libraries: what later calls may do, what
// is created, graphs, several groups at once.
#include "comm/engine.h"

#include <cuda.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/control/bootstrap.h"
#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_engine.h"
#include "comm/nccl/nccl_threads.h"
#include "comm/redistributor.h"
#include "comm/tensor_view.h"
#include "mesh/device_mesh.h"
#include "placement/dtype.h"
#include "placement/placement.h"
#include "placement/sharding.h"
#include "planner/plan.h"

namespace meshift {
namespace {

using Bytes8 = std::vector<uint8_t>;

struct Pair {
  Sharding from;
  Sharding to;
};

Pair PairOf(const std::string& tensor, const DeviceMesh& mesh, const std::string& from,
            const std::string& to) {
  Sharding source = Sharding::Parse(tensor, mesh, from).value();
  Sharding target = source.WithPlacements(to).value();
  return {std::move(source), std::move(target)};
}

int64_t LocalBytes(const Sharding& sharding, int64_t rank) {
  return Bytes(sharding.dtype(), NumElements(sharding.LocalBox(rank).size));
}

// Any finite values: small numbers as bytes of the dtype would not be.
Bytes8 SomeValues(const Sharding& sharding, int64_t rank, int seed) {
  Bytes8 bytes(LocalBytes(sharding, rank));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>((i * 37 + static_cast<size_t>(rank * 11 + seed * 5)) % 53);
  }
  return bytes;
}

// One rank's redistributor with buffers for one pair of shardings.
struct Call {
  Call(NcclEngine& engine, const Pair& pair)
      : engine(engine),
        pair(pair),
        source(engine.Allocate(LocalBytes(pair.from, engine.rank())).value()),
        target(engine.Allocate(LocalBytes(pair.to, engine.rank())).value()) {}

  absl::StatusOr<RunHandle> operator()(Redistributor& redistribute, Stream* after = nullptr) const {
    const auto view = [&](const Buffer& buffer, const Sharding& sharding) {
      return TensorView::Contiguous(buffer.data(), sharding.dtype(),
                                    sharding.LocalBox(engine.rank()).size);
    };
    return redistribute({.from = pair.from,
                         .to = pair.to,
                         .source = view(*source, pair.from),
                         .target = view(*target, pair.to),
                         .after = after});
  }
  void Put(const Bytes8& bytes, Stream& stream) const {
    EXPECT_EQ(Message(engine.CopyIn(bytes.data(), source->data(), std::ssize(bytes), stream)), "");
    EXPECT_EQ(Message(engine.Synchronize(stream)), "");
  }
  Bytes8 Take() const { return GetBytes(engine, target->data(), target->size_bytes()).value(); }

  NcclEngine& engine;
  const Pair pair;
  const std::unique_ptr<Buffer> source;
  const std::unique_ptr<Buffer> target;
};

class NcclEngineTest : public testing::Test {
 protected:
  void Start(int64_t n, const NcclOptions& options = {}, uint64_t seed = 1) {
    auto ranks = NcclThreads::Create(n, options, seed);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    ranks_ = *std::move(ranks);
  }
  void TearDown() override {
    ranks_ = nullptr;
    EXPECT_EQ(TheFake()->record_leaks(), 0);
    EXPECT_EQ(Violations(), "");
  }

  std::unique_ptr<NcclThreads> ranks_;
};

// 40 redistributions between distinct shardings, 25 rounds of them.
TEST_F(NcclEngineTest, LaterCallsCreateAndAllocateNothing) {
  Start(8);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
  const char* kPlacements[] = {"R", "S(0)", "S(1)", "P"};
  const char* kTensors[] = {"f32[6,7]", "bf16[5,9]", "i16[8,4]"};
  std::vector<Pair> pairs;
  for (int i = 0; pairs.size() < 40; ++i) {
    const auto text = [&](int n) {
      return fmt::format("{},{},{}", kPlacements[n % 4], kPlacements[n / 4 % 4],
                         kPlacements[n / 16 % 4]);
    };
    Pair pair = PairOf(kTensors[i % 3], mesh, text(i * 13 + 3), text(i * 29 + 1));
    if (!(pair.from == pair.to)) pairs.push_back(std::move(pair));
  }
  constexpr int kRounds = 25;
  std::vector<GroupCacheStats> first(8);
  std::vector<GroupCacheStats> last(8);
  int64_t splits = 0;
  int64_t allocations = 0;
  std::vector<std::unique_ptr<Redistributor>> redistributors(8);
  std::vector<std::vector<std::unique_ptr<Call>>> calls(8);
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    redistributors[rank] =
        std::make_unique<Redistributor>(Redistributor::Create(mesh, &engine).value());
    for (const Pair& pair : pairs) {
      calls[rank].push_back(std::make_unique<Call>(engine, pair));
      const absl::StatusOr<RunHandle> run = (*calls[rank].back())(*redistributors[rank]);
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_EQ(Message(run->Wait()), "");
    }
    first[rank] = redistributors[rank]->stats().groups;
  });
  splits = TheFake()->call_count("ncclCommSplit");
  allocations = TheFake()->call_count("cuMemAlloc");
  ranks_->Run([&](NcclEngine&, int64_t rank) {
    TheFake()->hot_begin(/*whole_process=*/0);
    for (int round = 1; round < kRounds; ++round) {
      RunHandle run;
      for (const auto& call : calls[rank]) run = (*call)(*redistributors[rank]).value();
      ASSERT_EQ(Message(run.Wait()), "");
    }
    TheFake()->hot_end(0);
    last[rank] = redistributors[rank]->stats().groups;
  });
  int64_t created = 0;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(redistributors[rank]->stats().calls, 1000);
    EXPECT_EQ(last[rank].created, first[rank].created);
    // Of the mesh's dims two at a time, and one: six distinct groups, and the world.
    EXPECT_EQ(first[rank].created, 6);
    created += first[rank].created;
  }
  EXPECT_EQ(splits, created);
  EXPECT_EQ(TheFake()->call_count("ncclCommSplit"), splits);
  EXPECT_EQ(TheFake()->call_count("ncclCommInitRankConfig"), 8);
  EXPECT_EQ(TheFake()->call_count("cuMemAlloc"), allocations);
  ranks_->Run([&](NcclEngine&, int64_t rank) {
    calls[rank].clear();
    redistributors[rank] = nullptr;
  });
}

// A call that was captured does, at each launch, what a call does: with the data of the launch.
TEST_F(NcclEngineTest, CallsAreCapturedIntoAGraph) {
  const char* kCalls[][3] = {
      {"f32[8,6]", "P,S(0),R", "R,R,S(1)"},     {"bf16[40,33]", "P(avg),P(avg),P(avg)", "R,R,R"},
      {"i16[9,7]", "P,P,S(0)", "S(1),R,R"},     {"f32[7,5]", "S(0),S(1),R", "R,S(0),S(1)"},
      {"f64[4,4]", "P(max),R,P(max)", "R,R,R"},
  };
  for (const int max_ctas : {-1, 8}) {
    NcclOptions options;
    options.max_ctas = max_ctas;
    Start(8, options, static_cast<uint64_t>(max_ctas + 5));
    const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
    std::vector<Pair> pairs;
    for (const auto& call : kCalls) pairs.push_back(PairOf(call[0], mesh, call[1], call[2]));
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      const auto driver = CudaDriver::Load().value();
      Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
      const std::unique_ptr<Stream> stream = engine.CreateStream().value();
      const auto handle = static_cast<CUstream>(engine.HandleOf(*stream).value());
      std::vector<std::unique_ptr<Call>> calls;
      // The first calls make groups and get memory.
      std::vector<std::vector<Bytes8>> expected(3);
      for (const Pair& pair : pairs) calls.push_back(std::make_unique<Call>(engine, pair));
      for (int round = 0; round < 3; ++round) {
        for (const auto& call : calls) {
          call->Put(SomeValues(call->pair.from, rank, round), *stream);
          const absl::StatusOr<RunHandle> run = (*call)(redistribute);
          ASSERT_TRUE(run.ok()) << run.status();
          ASSERT_EQ(Message(run->Wait()), "");
          expected[round].push_back(call->Take());
        }
      }
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      TheFake()->hot_begin(0);
      ASSERT_EQ(Message(driver->StreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)),
                "");
      for (const auto& call : calls) {
        const absl::StatusOr<RunHandle> run = (*call)(redistribute, stream.get());
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_EQ(Message(run->Wait(*stream)), "");
        // The host cannot wait for a part of a graph.
        if (call == calls.front()) {
          EXPECT_EQ(engine.Synchronize(*stream).code(), absl::StatusCode::kFailedPrecondition);
          EXPECT_EQ(run->Wait().code(), absl::StatusCode::kFailedPrecondition);
        }
      }
      ASSERT_EQ(Message(driver->StreamEndCapture(handle, &graph)), "");
      TheFake()->hot_end(0);
      ASSERT_EQ(Message(driver->GraphInstantiate(&exec, graph, 0ULL)), "");
      for (int round = 2; round >= 0; --round) {
        for (const auto& call : calls) {
          call->Put(SomeValues(call->pair.from, rank, round), *stream);
        }
        TheFake()->hot_begin(0);
        ASSERT_EQ(Message(driver->GraphLaunch(exec, handle)), "");
        TheFake()->hot_end(0);
        ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
        for (size_t i = 0; i < calls.size(); ++i) {
          EXPECT_EQ(calls[i]->Take(), expected[round][i]) << kCalls[i][1] << " round " << round;
        }
      }
      // Calls go on beside the graph, once it is done.
      for (size_t i = 0; i < calls.size(); ++i) {
        const absl::StatusOr<RunHandle> run = (*calls[i])(redistribute);
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_EQ(Message(run->Wait()), "");
        EXPECT_EQ(calls[i]->Take(), expected[0][i]);
      }
      ASSERT_EQ(Message(driver->GraphExecDestroy(exec)), "");
      ASSERT_EQ(Message(driver->GraphDestroy(graph)), "");
    });
    TearDown();
  }
  Start(1);
}

// What a graph uses stays, although later calls need more of it.
TEST_F(NcclEngineTest, AGraphKeepsItsMemory) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const char* kTensors[] = {"bf16[8,12]", "bf16[64,96]", "bf16[256,96]"};
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto driver = CudaDriver::Load().value();
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    const auto handle = static_cast<CUstream>(engine.HandleOf(*stream).value());
    std::vector<std::unique_ptr<Call>> calls;
    for (const char* tensor : kTensors) {
      // Packed workspace, and scratch memory of the communicator.
      calls.push_back(
          std::make_unique<Call>(engine, PairOf(tensor, mesh, "S(0),P(max)", "S(1),R")));
    }
    const Call& small = *calls[0];
    small.Put(SomeValues(small.pair.from, rank, 1), *stream);
    ASSERT_EQ(Message(small(redistribute)->Wait()), "");
    const Bytes8 expected = small.Take();
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Message(driver->StreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)), "");
    ASSERT_EQ(Message(small(redistribute, stream.get())->Wait(*stream)), "");
    ASSERT_EQ(Message(driver->StreamEndCapture(handle, &graph)), "");
    ASSERT_EQ(Message(driver->GraphInstantiate(&exec, graph, 0ULL)), "");
    for (const auto& call : calls) {
      call->Put(SomeValues(call->pair.from, rank, 2), *stream);
      ASSERT_EQ(Message((*call)(redistribute)->Wait()), "");
      // Memory that nobody uses is freed now.
      ASSERT_TRUE(engine.Allocate(8).ok());
    }
    small.Put(SomeValues(small.pair.from, rank, 1), *stream);
    ASSERT_EQ(Message(driver->GraphLaunch(exec, handle)), "");
    ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
    EXPECT_EQ(small.Take(), expected);
    ASSERT_EQ(Message(driver->GraphExecDestroy(exec)), "");
    ASSERT_EQ(Message(driver->GraphDestroy(graph)), "");
  });
}

// A framework that captures in CUDA's default mode, which forbids unsafe calls to all threads, is
// not disturbed by a thread that waits.
TEST_F(NcclEngineTest, WaitingDisturbsNobodysCapture) {
  Start(2);
  const auto meet = [&](int64_t rank) { EXPECT_TRUE(ranks_->bootstrap(rank).Exchange("").ok()); };
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto driver = CudaDriver::Load().value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    const std::unique_ptr<Stream> other = engine.CreateStream().value();
    const std::unique_ptr<Buffer> data = engine.Allocate(64).value();
    const auto handle = static_cast<CUstream>(engine.HandleOf(*stream).value());
    CUgraph graph = nullptr;
    meet(rank);  // none allocates any more
    if (rank == 0) {
      ASSERT_EQ(Message(driver->StreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL)), "");
    }
    meet(rank);
    EXPECT_EQ(Message(engine.FillZero(data->data(), 64, *other)), "");
    EXPECT_EQ(Message(engine.Synchronize(*other)), "");
    EXPECT_EQ(Message(engine.Wait(engine.Record(*other).value())), "");
    meet(rank);
    if (rank != 0) return;
    EXPECT_EQ(Message(driver->StreamEndCapture(handle, &graph)), "");
    EXPECT_EQ(Message(driver->GraphDestroy(graph)), "");
  });
}

TEST_F(NcclEngineTest, ACaptureCannotGetScratchMemory) {
  Start(2);
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    const auto driver = CudaDriver::Load().value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    const auto handle = static_cast<CUstream>(engine.HandleOf(*stream).value());
    const std::unique_ptr<Buffer> data = engine.Allocate(64).value();
    ASSERT_EQ(Message(engine.FillZero(data->data(), 64, *stream)), "");
    ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
    const auto max = [&] {
      return engine.world()->AllReduce(data->data(), data->data(), 16, DType::kF32,
                                       {ReduceOp::kMax, 1}, *stream);
    };
    CUgraph graph = nullptr;
    ASSERT_EQ(Message(driver->StreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)), "");
    EXPECT_EQ(max().ToString(),
              "FAILED_PRECONDITION: group {0,1} needs 128 bytes of scratch memory and has 0: while "
              "a graph is captured none can be had; make the call once, or prepare its plan, "
              "before");
    ASSERT_EQ(Message(driver->StreamEndCapture(handle, &graph)), "");
    ASSERT_EQ(Message(driver->GraphDestroy(graph)), "");
    // Reserved, it works.
    ASSERT_EQ(Message(engine.world()->Reserve(Communicator::ReduceCall::kAllReduce, 16, DType::kF32,
                                              {ReduceOp::kMax, 1})),
              "");
    ASSERT_EQ(Message(driver->StreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)), "");
    EXPECT_EQ(Message(max()), "");
    ASSERT_EQ(Message(driver->StreamEndCapture(handle, &graph)), "");
    ASSERT_EQ(Message(driver->GraphDestroy(graph)), "");
  });
}

// Many runs over different groups before anyone waits; results as of runs one by one.
TEST_F(NcclEngineTest, SeveralGroupsInFlight) {
  for (const int max_ctas : {-1, 4, 16, 33}) {
    NcclOptions options;
    options.max_ctas = max_ctas;
    Start(8, options, static_cast<uint64_t>(max_ctas + 2));
    const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
    const char* kCalls[][2] = {{"P,R,R", "R,R,R"}, {"R,P,R", "R,R,R"},   {"R,R,P", "R,R,R"},
                               {"P,P,R", "R,R,R"}, {"R,P,P", "R,R,R"},   {"P,R,P", "R,R,R"},
                               {"P,P,P", "R,R,R"}, {"S(0),R,R", "R,R,R"}};
    std::vector<Pair> pairs;
    for (const auto& call : kCalls) {
      pairs.push_back(PairOf("bf16[33,17]", mesh, call[0], call[1]));
      pairs.push_back(PairOf("f8e5m2[6,5]", mesh, call[0], call[1]));
    }
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
      const std::unique_ptr<Stream> stream = engine.CreateStream().value();
      std::vector<std::unique_ptr<Call>> calls;
      std::vector<Bytes8> expected;
      for (const Pair& pair : pairs) {
        calls.push_back(std::make_unique<Call>(engine, pair));
        calls.back()->Put(SomeValues(pair.from, rank, 7), *stream);
        ASSERT_EQ(Message((*calls.back())(redistribute)->Wait()), "");
        expected.push_back(calls.back()->Take());
      }
      for (int round = 0; round < 10; ++round) {
        std::vector<RunHandle> runs;
        for (const auto& call : calls) runs.push_back((*call)(redistribute).value());
        for (const RunHandle& run : runs) ASSERT_EQ(Message(run.Wait()), "");
      }
      for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i]->Take(), expected[i]);
    });
    TearDown();
  }
  Start(1);
}

// A list of tensors, some of them transposed, twice: as each of them alone.
TEST_F(NcclEngineTest, ListsOfTensorsAndStrides) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  std::vector<Pair> pairs;
  for (const char* tensor : {"f32[8,6]", "bf16[12,4]", "f32[4,10]", "i16[6,6]", "f8e4m3[4,4]"}) {
    pairs.push_back(PairOf(tensor, mesh, "P,R", "R,R"));
    pairs.push_back(PairOf(tensor, mesh, "S(0),R", "R,S(1)"));
    pairs.push_back(PairOf(tensor, mesh, "P(max),P(max)", "S(1),S(0)"));
  }
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<Bytes8> expected;
    for (const Pair& pair : pairs) {
      calls.push_back(std::make_unique<Call>(engine, pair));
      calls.back()->Put(SomeValues(pair.from, rank, 3), *stream);
      ASSERT_EQ(Message((*calls.back())(redistribute)->Wait()), "");
      expected.push_back(calls.back()->Take());
    }
    for (const bool transposed : {false, true}) {
      std::vector<std::unique_ptr<Buffer>> sources;
      std::vector<Redistribution> list;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Sharding& from = pairs[i].from;
        const Shape shape = from.LocalBox(rank).size;
        TensorView source = TensorView::Contiguous(calls[i]->source->data(), from.dtype(), shape);
        if (transposed) {
          // The same values, one column behind the other.
          sources.push_back(engine.Allocate(LocalBytes(from, rank)).value());
          const BoxCopy copy{
              source.data, sources.back()->data(), shape, {shape[1], 1}, {1, shape[0]}};
          ASSERT_EQ(Message(engine.CopyBoxes({copy}, from.dtype(), *stream)), "");
          source.data = sources.back()->data();
          source.strides = {1, shape[0]};
        }
        ASSERT_EQ(Message(engine.FillZero(calls[i]->target->data(), calls[i]->target->size_bytes(),
                                          *stream)),
                  "");
        list.push_back(
            {.from = from,
             .to = pairs[i].to,
             .source = source,
             .target = TensorView::Contiguous(calls[i]->target->data(), pairs[i].to.dtype(),
                                              pairs[i].to.LocalBox(rank).size),
             .after = stream.get()});
      }
      for (int time = 0; time < 2; ++time) {
        const absl::StatusOr<RunHandle> run = redistribute(list);
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_EQ(Message(run->Wait()), "");
        for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i]->Take(), expected[i]) << i;
      }
    }
  });
}

// Reductions of one communicator share its scratch memory, whichever streams they are on.
TEST_F(NcclEngineTest, ScratchMemoryIsTakenInTurn) {
  Start(3);
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    // The first goes in slices, the others by gathering.
    for (const int64_t count : {40000, 64, 16}) {
      const std::unique_ptr<Stream> streams[] = {engine.CreateStream().value(),
                                                 engine.CreateStream().value()};
      std::vector<std::unique_ptr<Buffer>> data;
      for (int i = 0; i < 6; ++i) {
        data.push_back(
            PutBytes(engine, Bytes8(3 * count, static_cast<uint8_t>(1 << rank))).value());
      }
      Communicator& world = *engine.world();
      const Reduction all{ReduceOp::kOr, 1};
      for (int i = 0; i < 6; i += 2) {
        ASSERT_EQ(Message(world.ReduceScatter(data[i]->data(), data[i]->data(), count, DType::kU8,
                                              all, *streams[i % 4 / 2])),
                  "");
        ASSERT_EQ(Message(world.AllReduce(data[i + 1]->data(), data[i + 1]->data(), count,
                                          DType::kU8, all, *streams[1 - i % 4 / 2])),
                  "");
      }
      for (const auto& stream : streams) ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
      for (const auto& one : data) {
        EXPECT_EQ(GetBytes(engine, one->data(), count).value(), Bytes8(count, 7));
      }
    }
  });
}

// One collective at a time, unless so many thread blocks fit.
TEST_F(NcclEngineTest, CollectivesOfSeveralGroupsAreChained) {
  for (const bool chained : {true, false}) {
    NcclOptions options;
    if (!chained) options.max_ctas = 4;
    Start(2, options);
    ranks_->Run([&](NcclEngine& engine, int64_t) {
      const auto other = engine.Split(*engine.world(), {0, 1}, 0, {}).value();
      const std::unique_ptr<Stream> streams[] = {engine.CreateStream().value(),
                                                 engine.CreateStream().value()};
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(Message(engine.world()->Barrier(*streams[0])), "");
        ASSERT_EQ(Message(other->Barrier(*streams[1])), "");
      }
      for (const auto& stream : streams) ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
    });
    // Of ten collectives each but the first waits for the one before it.
    EXPECT_EQ(TheFake()->call_count("cuStreamWaitEvent"), chained ? 2 * 9 : 0);
    TearDown();
  }
  Start(1);
}

TEST_F(NcclEngineTest, PlansNameTheEngine) {
  Start(2);
  const Pair pair = PairOf("f32[4]", DeviceMesh::Parse("a=2").value(), "P", "R");
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    Redistributor redistribute = Redistributor::Create(pair.from.mesh(), &engine).value();
    const absl::StatusOr<Plan> plan = redistribute.Prepare(pair.from, pair.to);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->inputs().engine, "nccl");
  });
}

// A mesh of some ranks only: the others take part in the split of its root.
TEST_F(NcclEngineTest, MeshOfSomeRanks) {
  Start(5);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2@4,1,0,2").value();
  const Pair pair = PairOf("i32[4]", mesh, "P,P", "R,R");
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    if (rank == 3) {
      EXPECT_EQ(Message(redistribute({.from = pair.from, .to = pair.to, .source = {}, .target = {}})
                            .status()),
                "");
      return;
    }
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    const Call call(engine, pair);
    call.Put(Bytes8(16, 1), *stream);
    ASSERT_EQ(Message(call(redistribute)->Wait()), "");
    EXPECT_EQ(call.Take(), Bytes8(16, 4));
  });
}

// What one rank lacks, all ranks say.
TEST_F(NcclEngineTest, WhatIsMissingOnOneRankIsToldToAll) {
  Start(1);
  const auto create = [](const std::function<void(NcclOptions*)>& spoil) {
    const auto bootstraps = Bootstrap::InProcess(3).value();
    std::vector<std::string> errors(3);
    RunThreads(3, [&](int64_t rank) {
      NcclOptions options;
      if (rank == 1) spoil(&options);
      errors[rank] = NcclEngine::Create(bootstraps[rank].get(), options).status().ToString();
    });
    EXPECT_EQ(errors[0], errors[2]);
    const std::string own = errors[1].substr(errors[1].find(": ") + 2);
    EXPECT_EQ(errors[0], "FAILED_PRECONDITION: rank 1 has no NCCL engine: " + own);
    return errors[1];
  };
  EXPECT_EQ(create([](NcclOptions* options) {
              options->nccl_library = "/nowhere.so";
            }).rfind("UNAVAILABLE: no NCCL library /nowhere.so", 0),
            0U);
  EXPECT_EQ(create([](NcclOptions* options) {
              options->cuda_library = "/nowhere.so";
            }).rfind("UNAVAILABLE: no CUDA driver library /nowhere.so", 0),
            0U);
  EXPECT_EQ(create([](NcclOptions* options) { options->nccl_library = "libm.so.6"; }),
            "FAILED_PRECONDITION: the NCCL library libm.so.6 has no function ncclGetVersion");
  EXPECT_EQ(create([](NcclOptions* options) { options->device = 8; }),
            "INVALID_ARGUMENT: CUDA device 8 is not one of the 8 that this process sees");
  EXPECT_EQ(create([](NcclOptions* options) { options->cta_share = 2; }),
            "INVALID_ARGUMENT: cta_share 2 is not between 0 and 1");
  EXPECT_EQ(create([](NcclOptions* options) { options->timeout = {}; }),
            "INVALID_ARGUMENT: a timeout of 0 ns is not positive");
}

TEST_F(NcclEngineTest, Refusals) {
  Start(2);
  NcclEngine& engine = ranks_->engine(0);
  const std::unique_ptr<Stream> stream = engine.CreateStream().value();
  const std::unique_ptr<Stream> foreign = ranks_->engine(1).CreateStream().value();
  Communicator& world = *engine.world();
  const auto refuses = [](const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.ToString(), "INVALID_ARGUMENT: " + text);
  };
  refuses(world.Barrier(*foreign), "the stream belongs to another engine than that of rank 0");
  refuses(world.Broadcast(nullptr, 1, DType::kU8, 0, *stream),
          "broadcast of 1 elements: the send buffer is null");
  refuses(world.Broadcast(nullptr, 0, DType::kU8, 2, *stream),
          "a broadcast from member 2 of group {0,1}");
  refuses(world.SendRecv({{0, nullptr, 0}}, {}, DType::kU8, *stream),
          "a message between member 0 and member 0 of group {0,1}");
  refuses(engine.Split(world, {0, 2}, 0, {}).status(), "group {0,2} is not part of group {0,1}");
  refuses(engine.Split(world, {1, 0}, 0, {}).status(), "the ranks of group {1,0} do not ascend");
  refuses(engine.Split(*ranks_->engine(1).world(), {0, 1}, 0, {}).status(),
          "rank 0 splits a communicator that is not its own: nccl group {0,1}, member 1");
  refuses(engine.Allocate(-1).status(), "-1 bytes to allocate are negative");
  EXPECT_EQ(engine.Allocate(int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Nothing of this has ended the groups.
  EXPECT_EQ(Message(world.Health()), "");
}

}  // namespace
}  // namespace meshift
