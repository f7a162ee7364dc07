// Ranks that are not connected from the start: the calls that wait for others, and the ends of
// those waits.
#include <atomic>
#include <chrono>
#include <thread>

#include "testing/fake_gpu/nccl_rules.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

class ConnectRulesTest : public NcclRules {
 protected:
  static ncclResult_t Sum(TestRank& r, ncclComm_t comm, CUdeviceptr data) {
    return ncclAllReduce(r.At(data), r.At(data), 1, ncclInt, ncclSum, comm, r.stream);
  }
  // A ready child of a non-blocking communicator.
  static ncclComm_t Split(TestRank& r, bool blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    ncclComm_t child = nullptr;
    const ncclResult_t result = ncclCommSplit(r.comm, 0, r.rank, &child, &config);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
    EXPECT_EQ(Settle(child), ncclSuccess);
    return child;
  }
  static void AbortBoth(TestRank& r, ncclComm_t child) {
    OK(ncclGroupStart());
    OK(ncclCommAbort(child));
    OK(ncclCommAbort(r.comm));
    OK(ncclGroupEnd());
    r.comm = nullptr;
    r.Sync();
  }
};

TEST_F(ConnectRulesTest, AFirstCallWaitsForTheOthers) {
  const ncclUniqueId id = NewId();
  std::atomic<bool> came = false;
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    if (r.rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      came = true;
    }
    OK(Sum(r, r.comm, a));
    EXPECT_TRUE(came);
    r.Sync();
    // Later calls do not wait; others of the kind are connected, too.
    Barrier(2);
    if (r.rank == 0) {
      OK(Sum(r, r.comm, a));
    }
    Barrier(2);
    if (r.rank == 1) {
      OK(Sum(r, r.comm, a));
    }
    r.Sync();
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(ConnectRulesTest, SoDoMessagesBetweenTwo) {
  const ncclUniqueId id = NewId();
  std::atomic<bool> came = false;
  RunRanks(3, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    if (r.rank == 0) {
      OK(ncclSend(r.At(a), 1, ncclInt, 1, r.comm, r.stream));
      EXPECT_TRUE(came);
    }
    if (r.rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      came = true;
      OK(ncclRecv(r.At(a), 1, ncclInt, 0, r.comm, r.stream));
    }
    r.Sync();
  });
  EXPECT_EQ(Violations(), "");
}

// A blocking child of a non-blocking parent: the split continues in the background, its calls do
// not.
TEST_F(ConnectRulesTest, ABlockingChildOfANonBlockingParent) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    const ncclComm_t child = Split(r, /*blocking=*/true);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Sum(r, child, a), ncclSuccess);
    r.Sync();
    OK(ncclCommDestroy(child));
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(ConnectRulesTest, AnAbortByAnotherThreadEndsABlockedCall) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    const ncclComm_t child = Split(r, /*blocking=*/true);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    std::thread blocked;
    if (r.rank == 0) blocked = std::thread([&] { EXPECT_NE(Sum(r, child, a), ncclSuccess); });
    std::this_thread::sleep_for(milliseconds(20));
    Barrier(2);
    AbortBoth(r, child);
    if (blocked.joinable()) blocked.join();
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(ConnectRulesTest, AFullQueueBlocks) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    const ncclComm_t child = Split(r, /*blocking=*/true);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    OK(Sum(r, child, a));
    r.Sync();
    std::atomic<int> made = 0;
    std::thread blocked;
    if (r.rank == 0) {
      blocked = std::thread([&] {
        while (Sum(r, child, a) == ncclSuccess) ++made;
      });
      while (made < 1024) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(20));
      EXPECT_EQ(made, 1024);
    }
    Barrier(2);
    AbortBoth(r, child);
    if (blocked.joinable()) blocked.join();
  });
  EXPECT_EQ(Violations(), "");
}

// NCCL stores a child when its thread is done, even if the parent was aborted meanwhile.
TEST_F(ConnectRulesTest, AChildOfAnAbortedSplitIsItsCallersToEnd) {
  for (const bool parent_blocks : {false, true}) {
    const ncclUniqueId id = NewId();
    const int64_t leaks = fake_report()->record_leaks();
    fake_report()->reset();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id, parent_blocks);
      ncclComm_t child = nullptr;
      std::thread splits;
      if (r.rank == 0) {
        splits = std::thread([&] {
          OK(cuCtxSetCurrent(r.context));
          const ncclResult_t result = ncclCommSplit(r.comm, 0, 0, &child, nullptr);
          EXPECT_EQ(result == ncclSuccess || result == ncclInProgress, !parent_blocks) << result;
        });
        if (!parent_blocks) splits.join();
      }
      std::this_thread::sleep_for(milliseconds(20));
      Barrier(2);
      Abort(r);
      if (splits.joinable()) splits.join();
      EXPECT_EQ(child != nullptr, r.rank == 0);
      // Each rank has two other objects, its context and its stream.
      Barrier(2);
      if (r.rank == 0) {
        EXPECT_EQ(fake_report()->record_leaks() - leaks, 2 * 2 + 1);
      }
      Barrier(2);
      OK(ncclCommAbort(child));
    });
    fake_report()->reset();
  }
}

// A thread of NCCL's launches captured calls, too.
TEST_F(ConnectRulesTest, CapturedCallsOfANonBlockingOneGoOn) {
  for (const bool waits : {true, false}) {
    const ncclUniqueId id = NewId();
    fake_report()->reset();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id, /*blocking=*/false);
      const CUdeviceptr a = r.Upload<int>({1, 2});
      r.Sync();
      OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      EXPECT_EQ(Sum(r, r.comm, a), ncclInProgress);
      CUgraph graph = nullptr;
      if (waits) {
        EXPECT_EQ(Settle(r.comm), ncclSuccess);
        OK(cuStreamEndCapture(r.stream, &graph));
        OK(cuGraphDestroy(graph));
        return;
      }
      EXPECT_EQ(cuStreamEndCapture(r.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      // The call may reach the stream of one rank, and not the other's graph.
      Barrier(2);
      Abort(r);
    });
    if (waits) {
      EXPECT_EQ(Violations(), "");
    }
  }
  ExpectViolation("cuStreamEndCapture although an NCCL call still returns ncclInProgress");
}

TEST_F(ConnectRulesTest, OnlyItsCallerAsksALentOneWhileItIsBusy) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    fake_report()->lend_comm(r.comm, /*may_split=*/0);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    EXPECT_EQ(Sum(r, r.comm, a), ncclInProgress);
    if (r.rank == 0) {
      std::thread([&] {
        ncclResult_t state = ncclSuccess;
        OK(ncclCommGetAsyncError(r.comm, &state));
      }).join();
    }
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
    r.Sync();
    fake_report()->take_back(r.comm);
  });
  ExpectViolation("while a call of another thread is in progress");
}

}  // namespace
}  // namespace meshift
