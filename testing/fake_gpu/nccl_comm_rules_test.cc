// Breaks each NCCL rule about making, using and ending communicators once.
#include "testing/fake_gpu/nccl_rules.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class NcclCommRulesTest : public NcclRules {};

TEST_F(NcclCommRulesTest, ASplitNeedsQuietParents) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    ncclComm_t child = nullptr;
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    OK(ncclCommDestroy(child));
  });
  ExpectViolation("ncclCommSplit while operations of the parent are unfinished");
}

// A split is also an operation of the communicator: it must have the same place on all ranks.
TEST_F(NcclCommRulesTest, SplitsAndCallsInOneOrder) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    ncclComm_t child = nullptr;
    const auto call = [&] {
      OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    };
    if (r.rank == 0) call();
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    if (r.rank == 1) call();
    Barrier(2);  // the call ends on neither rank
    EXPECT_FALSE(Ends(r.stream, milliseconds(10)));
    Barrier(2);
    OK(ncclGroupStart());
    OK(ncclCommAbort(child));
    OK(ncclCommAbort(r.comm));
    OK(ncclGroupEnd());
    r.comm = nullptr;
    r.Sync();
  });
  ExpectViolation("every rank must take part in a split");
}

TEST_F(NcclCommRulesTest, OneThreadAtATime) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    void* a = r.At(r.Buffer(4));
    ncclComm_t child = nullptr;
    const auto split = [&] { OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr)); };
    if (r.rank == 0) {
      // Inside the split until rank 1 comes.
      std::thread first(split);
      while (fake_report()->violation_count() == 0) {
        EXPECT_EQ(ncclAllReduce(a, a, 1, ncclNumTypes, ncclSum, r.comm, r.stream),
                  ncclInvalidArgument);
      }
      Barrier(2);
      first.join();
    } else {
      Barrier(2);
      split();
    }
    OK(ncclCommDestroy(child));
  });
  ExpectViolation("two threads use one communicator at once");
}

TEST_F(NcclCommRulesTest, EveryRankTakesPartInASplit) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    ncclComm_t child = nullptr;
    if (r.rank == 0) {
      const ncclResult_t result = ncclCommSplit(r.comm, 0, 0, &child, nullptr);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
      std::this_thread::sleep_for(milliseconds(20));
      ncclResult_t state = ncclSuccess;
      OK(ncclCommGetAsyncError(r.comm, &state));
      EXPECT_EQ(state, ncclInProgress);
    }
    Barrier(2);
    Abort(r);
    EXPECT_EQ(child != nullptr, r.rank == 0);
    OK(ncclCommAbort(child));
  });
  ExpectViolation("although others wait for it in split 0");
}

TEST_F(NcclCommRulesTest, NoUseWhileInProgress) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const CUdeviceptr a = r.Upload<int>({1, 2});
    if (r.rank == 0) {
      EXPECT_EQ(ncclCommInitRankConfig(&r.comm, 2, id, 0, &config), ncclInProgress);
      EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream),
                ncclInvalidArgument);
    }
    Barrier(2);
    if (r.rank == 1) {
      EXPECT_EQ(ncclCommInitRankConfig(&r.comm, 2, id, 1, &config), ncclInProgress);
    }
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
  });
  ExpectViolation("before ncclCommGetAsyncError has said that it is ready");
}

TEST_F(NcclCommRulesTest, NoWorkOnAStreamBeforeTheCallIsReady) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream),
              ncclInProgress);
    OK(cuEventRecord(r.Event(), r.stream));
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
  });
  ExpectViolation("although an NCCL call there still returns ncclInProgress");
}

// A non-blocking communicator returns its first error forever; a blocking one forgets it.
TEST_F(NcclCommRulesTest, BadArgumentsStayWithANonBlockingOne) {
  for (const bool blocking : {true, false}) {
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id, blocking);
      const CUdeviceptr a = r.Upload<int>({1, 2});
      EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, static_cast<ncclDataType_t>(99), ncclSum, r.comm,
                              r.stream),
                ncclInvalidArgument);
      EXPECT_EQ(Settle(r.comm), blocking ? ncclSuccess : ncclInvalidArgument);
      if (!blocking) {
        EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream),
                  ncclInvalidArgument);
        OK(ncclCommAbort(r.comm));
        r.comm = nullptr;
      }
    });
  }
}

TEST_F(NcclCommRulesTest, NoUseAfterTheEnd) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    ncclComm_t comm = r.comm;
    OK(ncclCommFinalize(comm));
    const CUdeviceptr a = r.Upload<int>({1, 2});
    EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, comm, r.stream),
              ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
    r.comm = nullptr;
    int count = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  });
  ExpectViolation("the communicator is finalized");
  ExpectViolation("ncclCommFinalize of a communicator that was finalized");
  ExpectViolation("ncclCommCount: the communicator was destroyed");
}

TEST_F(NcclCommRulesTest, NoUseAfterAnAbort) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    OK(ncclCommAbort(r.comm));
    int rank = 0;
    EXPECT_EQ(ncclCommUserRank(r.comm, &rank), ncclInvalidArgument);
    r.comm = nullptr;
  });
  ExpectViolation("ncclCommUserRank: the communicator was aborted");
}

TEST_F(NcclCommRulesTest, NoEndBeforeItIsReady) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    EXPECT_EQ(ncclCommFinalize(r.comm), ncclInProgress);
    OK(ncclCommDestroy(r.comm));
    r.comm = nullptr;
  });
  ExpectViolation("ncclCommDestroy before ncclCommGetAsyncError has said that it is ready");
}

TEST_F(NcclCommRulesTest, NoSuchHandle) {
  int nothing = 0;
  EXPECT_EQ(ncclCommCount(reinterpret_cast<ncclComm_t>(&nothing), &nothing), ncclInvalidArgument);
  ExpectViolation("ncclCommCount: no such communicator");
}

TEST_F(NcclCommRulesTest, AnOpenOneIsALeak) {
  const int64_t before = fake_report()->record_leaks();
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    // Including the rank's stream and context.
    EXPECT_EQ(fake_report()->record_leaks(), before + 3);
  });
  ExpectViolation("rank 0 of 1");
}

// Rank 0 makes calls on both communicators, and rank 1 does not.
class NcclAbortTest : public NcclRules {
 protected:
  void Hang(const std::function<void(TestRank&, ncclComm_t child)>& end) {
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id);
      ncclComm_t child = nullptr;
      OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
      const CUdeviceptr a = r.Upload<int>({1, 2});
      r.Sync();
      if (r.rank == 0) {
        OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
        OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, child, r.stream));
      }
      Barrier(2);
      end(r, child);
      r.comm = nullptr;
      r.Sync();
    });
  }
};

TEST_F(NcclAbortTest, OfTwoThatHangOneCannotEndAlone) {
  Hang([](TestRank& r, ncclComm_t child) {
    std::atomic<bool> ended = false;
    std::thread first([&] {
      OK(ncclCommAbort(child));
      ended = true;
    });
    while (r.rank == 0 && fake_report()->violation_count() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(ended, r.rank != 0);
    OK(ncclCommAbort(r.comm));
    first.join();
  });
  EXPECT_EQ(fake_report()->violation_count(), 1) << Violations();
  ExpectViolation("both are aborted in one group");
}

TEST_F(NcclAbortTest, TogetherTheyEnd) {
  Hang([](TestRank& r, ncclComm_t child) {
    OK(ncclGroupStart());
    OK(ncclCommAbort(r.comm));
    OK(ncclCommAbort(child));
    OK(ncclGroupEnd());
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(NcclAbortTest, AnAbortWaitsForGraphs) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1});
    r.Sync();
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    OK(cuStreamEndCapture(r.stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    std::atomic<bool> ended = false;
    std::thread aborting([&] {
      OK(ncclCommAbort(r.comm));
      ended = true;
    });
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_FALSE(ended);
    OK(cuGraphExecDestroy(exec));
    aborting.join();
    r.comm = nullptr;
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(NcclCommRulesTest, LentOnesAreNotAbortedEither) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    fake_report()->lend_comm(r.comm, /*may_split=*/1);
    Barrier(2);
    OK(ncclCommAbort(r.comm));
    r.comm = nullptr;
  });
  EXPECT_EQ(fake_report()->violation_count(), 2) << Violations();
  ExpectViolation("ncclCommAbort of a lent communicator");
}

TEST_F(NcclCommRulesTest, LentCommunicatorsAreLeftAlone) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    fake_report()->lend_comm(r.comm, /*may_split=*/r.rank == 0);
    ncclComm_t child = nullptr;
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    OK(ncclCommDestroy(child));
    OK(ncclCommFinalize(r.comm));
    OK(ncclCommDestroy(r.comm));
    r.comm = nullptr;
  });
  EXPECT_EQ(fake_report()->violation_count(), 5) << Violations();
  ExpectViolation("ncclCommSplit of a lent communicator without permission");
  ExpectViolation("ncclCommFinalize of a lent communicator");
  ExpectViolation("ncclCommDestroy of a lent communicator");
}

TEST_F(NcclCommRulesTest, ParentsThatShareOutliveTheirChildren) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    OK(ncclCommInitRankConfig(&r.comm, 2, id, r.rank, &config));
    ncclComm_t child = nullptr;
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    OK(ncclCommDestroy(r.comm));
    r.comm = child;
  });
  ExpectViolation("whose resources a child shares");
}

TEST_F(NcclCommRulesTest, NoCommunicatorsOnTheHotPathOrInACapture) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    ncclComm_t child = nullptr;
    fake_report()->hot_begin(0);
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    fake_report()->hot_end(0);
    OK(ncclCommDestroy(child));
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(ncclCommSplit(r.comm, 0, 0, &child, nullptr), ncclInvalidUsage);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(r.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
  ExpectViolation("ncclCommSplit on the hot path");
  ExpectViolation("ncclCommSplit during a stream capture");
}

TEST_F(NcclCommRulesTest, OneDeviceOneRank) {
  const ncclUniqueId id = NewId();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      TestRank r(0, 2);
      EXPECT_EQ(ncclCommInitRankConfig(&r.comm, 2, id, rank, nullptr), ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("Duplicate GPU detected"));
      EXPECT_EQ(r.comm, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclCommRulesTest, AnIdMakesOneCommunicator) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    ncclComm_t second = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, r.rank, nullptr), ncclInvalidUsage);
  });
}

// --- Faults that a test asks for.

TEST_F(NcclCommRulesTest, NoRegistrationInACapture) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    void* memory = r.At(r.Buffer(4096));
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(r.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclInvalidUsage);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(r.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
  ExpectViolation("ncclCommWindowRegister during a stream capture");
}

}  // namespace
}  // namespace meshift
