// The NCCL engine under a redistributor, over the stand-in libraries: what later calls may do, what
// is created, several groups at once. Graphs: graph_test.cc.
#include "meshift/engine.h"

#include <cuda.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/driver.h"
#include "meshift/bootstrap.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/nccl_engine.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/nccl/engine_fixture.h"
#include "testing/internal/nccl/fake_environment.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

using Bytes8 = std::vector<uint8_t>;

// 40 redistributions between distinct shardings, 25 rounds of them.
TEST_F(NcclEngineTest, LaterCallsCreateAndAllocateNothing) {
  Start(8);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
  constexpr const char* kPlacements[] = {"R", "S(0)", "S(1)", "P"};
  constexpr const char* kTensors[] = {"f32[6,7]", "bf16[5,9]", "i16[8,4]"};
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
  std::vector<Calls> calls(8);
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    redistributors[rank] =
        std::make_unique<Redistributor>(Redistributor::Create(mesh, &engine).value());
    calls[rank] = CallsOf(engine, pairs);
    for (const auto& call : calls[rank]) {
      const absl::StatusOr<RunHandle> run = (*call)(*redistributors[rank]);
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_EQ(Message(run->Wait()), "");
    }
    first[rank] = redistributors[rank]->stats().groups;
  });
  splits = TheFake()->call_count("ncclCommSplit");
  allocations = TheFake()->call_count("cuMemAllocFromPoolAsync");
  ranks_->Run([&](NcclEngine&, int64_t rank) {
    TheFake()->hot_begin(/*whole_process=*/0);
    std::vector<RunHandle> runs(pairs.size());
    for (int round = 1; round < kRounds; ++round) {
      for (size_t i = 0; i < runs.size(); ++i) {
        runs[i] = (*calls[rank][i])(*redistributors[rank]).value();
      }
      for (const RunHandle& run : runs) ASSERT_EQ(Message(run.Wait()), "");
    }
    TheFake()->hot_end(0);
    last[rank] = redistributors[rank]->stats().groups;
  });
  int64_t created = 0;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(redistributors[rank]->stats().calls, 1000);
    EXPECT_EQ(last[rank].created, first[rank].created);
    // Groups over one or two mesh dims: six distinct ones; and the world.
    EXPECT_EQ(first[rank].created, 6);
    created += first[rank].created;
  }
  EXPECT_EQ(splits, created + 8);  // and the world
  EXPECT_EQ(TheFake()->call_count("ncclCommSplit"), splits);
  EXPECT_EQ(TheFake()->call_count("ncclCommInitRankConfig"), 8);
  EXPECT_EQ(TheFake()->call_count("cuMemAllocFromPoolAsync"), allocations);
  EXPECT_GT(allocations, 0);
  ranks_->Run([&](NcclEngine&, int64_t rank) {
    calls[rank].clear();
    redistributors[rank] = nullptr;
  });
}

// A group of the same ranks is one for all redistributors, also after those that made it; ranks
// that have it take part in the splits of those that do not.
TEST_F(NcclEngineTest, GroupsAreMadeOnce) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const DeviceMesh pair = DeviceMesh::Parse("a=2@0,2").value();
  const Pair over_a = PairOf("f32[8,4]", mesh, "S(0),R", "R,R");
  const Pair over_b = PairOf("f32[8,4]", mesh, "R,S(0)", "R,R");
  const Pair over_pair = PairOf("f32[8,4]", pair, "S(0)", "R");
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto use = [&](const std::unique_ptr<Redistributor>& redistribute, const Pair& of) {
      const Call call(engine, of);
      const std::vector<uint8_t> values = SomeValues(of.from, rank, 1);
      EXPECT_EQ(call.Result(*redistribute, values), call.Result(*redistribute, values));
    };
    const auto make = [&](const DeviceMesh& of) {
      return std::make_unique<Redistributor>(Redistributor::Create(of, &engine).value());
    };
    // Ranks 0 and 2 have their group of `over_a` from here.
    std::unique_ptr<Redistributor> of_pair = make(pair);
    if (rank % 2 == 0) use(of_pair, over_pair);
    std::unique_ptr<Redistributor> first = make(mesh);
    std::unique_ptr<Redistributor> second = make(mesh);
    use(first, over_a);
    use(second, over_b);
    if (rank < 2) first = nullptr;
    of_pair = nullptr;
    const std::unique_ptr<Redistributor> third = make(mesh);
    use(third, over_a);
    use(second, over_b);
    if (rank % 2 == 0) second = nullptr;
    use(third, over_b);
  });
  // The world and two groups per rank.
  EXPECT_EQ(TheFake()->call_count("communicator"), 4 * 3);
}

TEST_F(NcclEngineTest, TheLibraryIsToldOnceWhenRecordsAreLogged) {
  Start(2);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    std::vector<std::string> told;
    RecordOptions record;
    record.on_log = [&](const LogEvent& event) {
      if (event.kind == LogEvent::Kind::kLibrary) told.emplace_back(event.text);
    };
    ASSERT_TRUE(engine.SetRecord(record).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Redistributor::Create(mesh, &engine).ok());
    EXPECT_EQ(told, std::vector<std::string>{engine.Library()});
    EXPECT_EQ(engine.Library(), "NCCL " + engine.nccl_version() +
                                    " of testing/fake_gpu/libfake_nccl.so, plugins: none");
  });
}

// NCCL's tools show groups by the dims of the mesh that they are over.
TEST_F(NcclEngineTest, GroupsHaveNames) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("dp=2,tp=2").value();
  const Pair pairs[] = {PairOf("f32[8,4]", mesh, "S(0),R", "R,R"),
                        PairOf("f32[8,4]", mesh, "R,S(0)", "R,R")};
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    int64_t splits = 0;
    RecordOptions record;
    record.on_log = [&](const LogEvent& event) {
      if (event.kind != LogEvent::Kind::kSplit) return;
      ++splits;
      EXPECT_GT(event.ns, 0);
      EXPECT_NE(event.text, "");
    };
    ASSERT_TRUE(engine.SetRecord(record).ok());
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    for (const Pair& pair : pairs) {
      ASSERT_TRUE(redistribute.Prepare(pair.from, pair.to).ok());
      ASSERT_EQ(Message(Call(engine, pair)(redistribute).value().Wait()), "");
    }
    EXPECT_EQ(splits, 2) << "and not when they are used again";
  });
  EXPECT_EQ(TheFake()->call_count("communicator meshift:world[0-3]"), 4);
  for (const char* name : {"dp[0,2]", "dp[1,3]", "tp[0-1]", "tp[2-3]"}) {
    EXPECT_EQ(TheFake()->call_count(fmt::format("communicator meshift:{}", name).c_str()), 2)
        << name;
  }
}

// Communicators whose calls never block, where an option or NCCL's own variable asks for them: then
// the world is the root itself, and not a blocking child of it.
TEST_F(NcclEngineTest, CallsAreBoundedWhereThatIsAskedFor) {
  FakeEnvironment variable(FakeEnvironment::Variables{{"NCCL_COMM_BLOCKING", "0"}});
  const std::pair<NcclOptions, int> cases[] = {
      {{}, 2}, {{.bounded_calls = true}, 0}, {{.environment = &variable}, 0}};
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const Pair pair = PairOf("f32[8,4]", mesh, "P", "R");
  for (const auto& [options, splits] : cases) {
    Start(2, options);
    EXPECT_EQ(TheFake()->call_count("ncclCommSplit"), splits);
    std::vector<std::vector<uint8_t>> results(2);
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
      const Call call(engine, pair);
      results[rank] = call.Result(redistribute, SomeValues(pair.from, rank, 3));
    });
    EXPECT_EQ(results[0], results[1]);
    TearDown();
  }
  Start(1);
}

// Many runs over different groups before anyone waits; results as of runs one by one.
TEST_F(NcclEngineTest, SeveralGroupsInFlight) {
  for (const int max_ctas : {-1, 4, 16, 33}) {
    NcclOptions options;
    options.max_ctas = max_ctas;
    Start(8, options, static_cast<uint64_t>(max_ctas) + 2);
    const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=2").value();
    constexpr const char* kCalls[][2] = {
        {"P,R,R", "R,R,R"}, {"R,P,R", "R,R,R"}, {"R,R,P", "R,R,R"}, {"P,P,R", "R,R,R"},
        {"R,P,P", "R,R,R"}, {"P,R,P", "R,R,R"}, {"P,P,P", "R,R,R"}, {"S(0),R,R", "R,R,R"}};
    std::vector<Pair> pairs;
    for (const auto& call : kCalls) {
      pairs.push_back(PairOf("bf16[33,17]", mesh, call[0], call[1]));
      pairs.push_back(PairOf("f8e5m2[6,5]", mesh, call[0], call[1]));
    }
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
      const Calls calls = CallsOf(engine, pairs);
      std::vector<Bytes8> expected;
      for (const auto& call : calls) {
        expected.push_back(call->Result(redistribute, SomeValues(call->pair.from, rank, 7)));
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
    const Calls calls = CallsOf(engine, pairs);
    std::vector<Bytes8> expected;
    for (const auto& call : calls) {
      expected.push_back(call->Result(redistribute, SomeValues(call->pair.from, rank, 3)));
    }
    for (const bool transposed : {false, true}) {
      std::vector<std::unique_ptr<Buffer>> sources;
      std::vector<Redistribution> list;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Sharding& from = pairs[i].from;
        const Shape shape = from.LocalBox(rank).size;
        TensorView source = TensorView::Contiguous(calls[i]->source->data(), from.dtype(), shape);
        if (transposed) {
          // The same values in column-major order.
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

// As many collectives at a time as fit, or as the options say.
TEST_F(NcclEngineTest, CollectivesOfSeveralGroupsAreChained) {
  for (const bool chained : {true, false}) {
    NcclOptions options;
    options.max_ctas = 4;
    options.max_in_flight = chained ? 1 : 0;
    Start(2, options);
    std::vector<std::shared_ptr<Communicator>> others(2);
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      others[rank] = engine.Split(*engine.world(), {0, 1}, 0, {.one_channel = true}).value();
    });
    const int64_t before = TheFake()->call_count("cuStreamWaitEvent");
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      const std::unique_ptr<Stream> streams[] = {engine.CreateStream().value(),
                                                 engine.CreateStream().value()};
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(Message(engine.world()->Barrier(*streams[0])), "");
        ASSERT_EQ(Message(others[rank]->Barrier(*streams[1])), "");
      }
      for (const auto& stream : streams) ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
    });
    // If only one collective may run at once, each of ten waits for the previous one. The first of
    // each group may also wait for the calls that connect the group.
    const int64_t waits = TheFake()->call_count("cuStreamWaitEvent") - before;
    EXPECT_GE(waits, chained ? 2 * 9 : 0);
    EXPECT_LE(waits, chained ? 2 * 11 : 2 * 2);
    others.clear();
    TearDown();
  }
  Start(1);
}

// A collective that waits on its stream for the user's work does not delay groups on other streams.
TEST_F(NcclEngineTest, GroupsDoNotWaitForEachOther) {
  Start(2);
  std::atomic<bool> go_on{false};
  std::atomic<int> at_end{0};
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto other = engine.Split(*engine.world(), {0, 1}, 0, {.one_channel = true}).value();
    const std::unique_ptr<Stream> slow = engine.CreateStream().value();
    const std::unique_ptr<Stream> quick = engine.CreateStream().value();
    if (rank == 1) {
      const CUhostFn wait = [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
      };
      const auto stream = static_cast<CUstream>(engine.HandleOf(*slow).value());
      EXPECT_EQ(Message(CudaDriver::Load().value()->LaunchHostFunc(stream, wait,
                                                                   static_cast<void*>(&go_on))),
                "");
    }
    EXPECT_EQ(Message(engine.world()->Barrier(*slow)), "");
    EXPECT_EQ(Message(other->Barrier(*quick)), "");
    EXPECT_EQ(Message(engine.Synchronize(*quick)), "");
    if (++at_end == 2) go_on = true;
    EXPECT_EQ(Message(engine.Synchronize(*slow)), "");
  });
}

// Later calls are made by their callers: NCCL is not asked for their end.
TEST_F(NcclEngineTest, CallsAskForNothing) {
  Start(2);
  const auto asked = [] { return TheFake()->call_count("ncclCommGetAsyncError"); };
  const int64_t before = asked();
  const auto start = std::chrono::steady_clock::now();
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    for (int i = 0; i < 500; ++i) ASSERT_EQ(Message(engine.world()->Barrier(*stream)), "");
    ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
  });
  // But by the watchdog, five times in a second, for the world and the root of each rank.
  const auto looks = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(200);
  EXPECT_LE(asked() - before, 4 * (looks + 1));
}

// Both may wait for all work of the device.
TEST_F(NcclEngineTest, MemoryIsFreedAndAllocatedWithoutTheDevice) {
  Start(2);
  std::atomic<bool> go_on{false};
  std::atomic<int> at_end{0};
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    const std::unique_ptr<Stream> busy = engine.CreateStream().value();
    const CUhostFn wait = [](void* flag) {
      while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
    };
    EXPECT_EQ(Message(CudaDriver::Load().value()->LaunchHostFunc(
                  static_cast<CUstream>(engine.HandleOf(*busy).value()), wait,
                  static_cast<void*>(&go_on))),
              "");
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(engine.Allocate(1000 << i).ok());
    if (++at_end == 2) go_on = true;
    EXPECT_EQ(Message(engine.Synchronize(*busy)), "");
  });
  EXPECT_EQ(TheFake()->call_count("cuMemAlloc"), 0);
  EXPECT_EQ(TheFake()->call_count("cuMemFree"), 0);
  // Ten buffers, and the barrier memory of each world.
  EXPECT_EQ(TheFake()->call_count("cuMemAllocFromPoolAsync"), 2 * 11);
  // Each pool keeps freed memory, since its release threshold is set.
  EXPECT_EQ(TheFake()->call_count("cuMemPoolSetAttribute"), 2);
}

// No kernel is loaded by its first launch.
TEST_F(NcclEngineTest, KernelsAreLoadedWhenTheEngineIsMade) {
  Start(2);
  EXPECT_EQ(TheFake()->call_count("cuFuncLoad"), TheFake()->call_count("cuModuleGetFunction"));
  EXPECT_GT(TheFake()->call_count("cuFuncLoad"), 0);
}

TEST_F(NcclEngineTest, PlansNameTheEngine) {
  Start(2);
  const Pair pair = PairOf("f32[4]", DeviceMesh::Parse("a=2").value(), "P", "R");
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    Redistributor redistribute = Redistributor::Create(pair.from.mesh(), &engine).value();
    const absl::StatusOr<Plan> plan = redistribute.Prepare(pair.from, pair.to);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->options().engine.name(), "nccl");
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
    EXPECT_EQ(Call(engine, pair).Result(redistribute, Bytes8(16, 1)), Bytes8(16, 4));
  });
}

// If something is missing on one rank, all ranks report it.
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
            }).rfind("UNAVAILABLE: cannot load the NCCL library /nowhere.so", 0),
            0U);
  EXPECT_EQ(create([](NcclOptions* options) {
              options->cuda_library = "/nowhere.so";
            }).rfind("UNAVAILABLE: cannot load the CUDA driver library /nowhere.so", 0),
            0U);
  EXPECT_EQ(create([](NcclOptions* options) { options->nccl_library = "libm.so.6"; }),
            "FAILED_PRECONDITION: the NCCL library libm.so.6 has no function ncclGetVersion");
  EXPECT_EQ(create([](NcclOptions* options) { options->device = 8; }),
            "INVALID_ARGUMENT: CUDA device 8 is not one of the 8 that this process sees");
  EXPECT_EQ(create([](NcclOptions* options) { options->cta_share = 2; }),
            "INVALID_ARGUMENT: cta_share 2 is not between 0 and 1");
  EXPECT_EQ(create([](NcclOptions* options) { options->timeout = {}; }),
            "INVALID_ARGUMENT: a running time-out of 0 ns is not positive");
  EXPECT_EQ(create([](NcclOptions* options) { options->max_in_flight = 17; }),
            "INVALID_ARGUMENT: max_in_flight 17 is not between 0 and 16");
  EXPECT_EQ(create([](NcclOptions* options) { options->min_ctas = 0; }),
            "INVALID_ARGUMENT: min_ctas 0, max_ctas -1: neither may be 0");
  FakeEnvironment blocking(FakeEnvironment::Variables{{"NCCL_COMM_BLOCKING", "1"}});
  EXPECT_EQ(create([&](NcclOptions* options) { options->environment = &blocking; }),
            "FAILED_PRECONDITION: NCCL_COMM_BLOCKING is 1, which the NCCL engine cannot work with; "
            "unset it");
}

// Aborting groups that share resources with a lent communicator would abort that too.
TEST_F(NcclEngineTest, LentCommunicatorsShareNothing) {
  Start(1);
  FakeEnvironment sharing(FakeEnvironment::Variables{{"NCCL_COMM_SPLIT_SHARE_RESOURCES", "1"}});
  NcclOptions options;
  options.environment = &sharing;
  int communicator = 0;  // never looked at
  EXPECT_EQ(NcclEngine::FromLent({.communicator = &communicator, .may_split = true}, options)
                .status()
                .ToString(),
            "FAILED_PRECONDITION: NCCL_COMM_SPLIT_SHARE_RESOURCES is 1, which the NCCL engine "
            "cannot work with; unset it");
}

// NCCL itself refuses a least number without a largest one.
TEST_F(NcclEngineTest, ALeastNumberOfThreadBlocksAlone) {
  for (const int min_ctas : {1, 4, 100}) {
    NcclOptions options;
    options.min_ctas = min_ctas;
    Start(2, options);
    ranks_->Run([&](NcclEngine& engine, int64_t) {
      const auto stream = engine.CreateStream().value();
      EXPECT_EQ(Message(engine.world()->Barrier(*stream)), "");
      EXPECT_EQ(Message(engine.Synchronize(*stream)), "");
    });
    TearDown();
  }
  Start(1);
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
  refuses(world.Barrier(*foreign), "the stream does not belong to the engine of rank 0");
  refuses(world.Broadcast(nullptr, 1, DType::kU8, 0, *stream),
          "broadcast of 1 elements: the send buffer is null");
  refuses(world.Broadcast(nullptr, 0, DType::kU8, 2, *stream),
          "broadcast: root 2 is not a member of group {0,1}; expected 0 to 1");
  refuses(world.SendRecv({{0, nullptr, 0}}, {}, DType::kU8, *stream),
          "send_recv: member 0 of group {0,1} has peer 0; a peer must be another member, 0 to 1");
  refuses(engine.Split(world, {0, 2}, 0, {}).status(), "group {0,2} is not part of group {0,1}");
  refuses(engine.Split(world, {1, 0}, 0, {}).status(),
          "the ranks of group {1,0} are not strictly ascending");
  refuses(engine.Split(*ranks_->engine(1).world(), {0, 1}, 0, {}).status(),
          "rank 0 splits a communicator that is not its own: nccl group {0,1}, member 1");
  refuses(engine.Allocate(-1).status(), "cannot allocate -1 bytes; expected at least 0");
  EXPECT_EQ(engine.Allocate(int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Nothing of this has ended the groups.
  EXPECT_EQ(Message(world.Health()), "");
}

}  // namespace
}  // namespace meshift
