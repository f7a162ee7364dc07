// Breaks each NCCL rule about calls that move data once: it is reported, and then the stand-in
// behaves like a real machine. nccl_test.cc keeps the rules.
#include "testing/fake_gpu/nccl_rules.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

class NcclRulesTest : public NcclRules {};

TEST_F(NcclRulesTest, DifferentCallsHangUntilTheAbort) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    const size_t count = r.rank == 0 ? 1 : 2;
    OK(ncclAllReduce(r.At(a), r.At(a), count, ncclInt, ncclSum, r.comm, r.stream));
    ExpectHang(r);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(r.comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    Abort(r);
  });
  ExpectViolation("differs");
}

TEST_F(NcclRulesTest, OtherKindsTypesOpsAndRootsDiffer) {
  for (int what = 0; what < 4; ++what) {
    fake_report()->reset();
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id);
      const CUdeviceptr a = r.Upload<int>({1, 2});
      const bool odd = r.rank == 1;
      if (what == 3 || (what == 0 && odd)) {
        const int root = what == 3 ? r.rank : 0;
        OK(ncclBroadcast(r.At(a), r.At(a), 1, ncclInt, root, r.comm, r.stream));
      } else {
        OK(ncclAllReduce(r.At(a), r.At(a), 1, what == 1 && odd ? ncclFloat : ncclInt,
                         what == 2 && odd ? ncclMax : ncclSum, r.comm, r.stream));
      }
      ExpectHang(r);
      Abort(r);
    });
    ExpectViolation("differs");
  }
}

TEST_F(NcclRulesTest, MessagesOfDifferentLengthsOrTypesHang) {
  for (const bool other_type : {false, true}) {
    fake_report()->reset();
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](TestRank& r) {
      r.Join(id);
      const CUdeviceptr a = r.Upload<int>({1, 2});
      if (r.rank == 0) {
        OK(ncclSend(r.At(a), 1, ncclInt, 1, r.comm, r.stream));
      } else {
        OK(ncclRecv(r.At(a), other_type ? 1 : 2, other_type ? ncclFloat : ncclInt, 0, r.comm,
                    r.stream));
      }
      ExpectHang(r);
      Abort(r);
    });
    ExpectViolation("a message of communicator");
  }
}

// NCCL drops a collective without elements at once, on the rank that makes it.
TEST_F(NcclRulesTest, NoElementsOnSomeRanksOnly) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    OK(ncclAllReduce(r.At(a), r.At(a), 0, ncclInt, ncclSum, r.comm, r.stream));  // on all: fine
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    r.Sync();
    EXPECT_EQ(Violations(), "");
    Barrier(2);
    const size_t count = r.rank == 0 ? 0 : 1;
    OK(ncclAllReduce(r.At(a), r.At(a), count, ncclInt, ncclSum, r.comm, r.stream));
    if (r.rank == 0) {
      OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    }
    ExpectHang(r);
    Abort(r);
  });
  ExpectViolation("calls of no elements");
}

TEST_F(NcclRulesTest, UngroupedSendsToEachOtherHang) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    OK(ncclSend(r.At(a), 1, ncclInt, 1 - r.rank, r.comm, r.stream));
    OK(ncclRecv(r.At(a, 4), 1, ncclInt, 1 - r.rank, r.comm, r.stream));
    ExpectHang(r);
    Abort(r);
  });
  ExpectViolation("may deadlock");
}

TEST_F(NcclRulesTest, TwoCommunicatorsInDifferentOrders) {
  const ncclUniqueId ids[] = {NewId(), NewId()};
  RunRanks(2, [&](TestRank& r) {
    r.Join(ids[0]);
    ncclComm_t first = r.comm;
    r.Join(ids[1]);
    ncclComm_t comms[] = {first, r.comm};
    const CUstream other = r.Stream();
    const CUdeviceptr a = r.Upload<int>({1, 2});
    r.Order(r.stream, other);
    // Here both end, because their streams are independent; on a device they might not.
    const int one = r.rank;
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, comms[one], r.stream));
    OK(ncclAllReduce(r.At(a, 4), r.At(a, 4), 1, ncclInt, ncclSum, comms[1 - one], other));
    OK(cuStreamSynchronize(other));
    EXPECT_THAT(r.Download<int>(a, 2), ElementsAre(3, 3));
    OK(ncclCommDestroy(first));
  });
  ExpectViolation("launched in different orders on different devices");
}

TEST_F(NcclRulesTest, GroupsNest) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    OK(ncclGroupEnd());
    EXPECT_THAT(r.Download<int>(a, 1), ElementsAre(1));  // nothing has started yet
    OK(ncclGroupEnd());
    EXPECT_THAT(r.Download<int>(a, 1), ElementsAre(2));
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(NcclRulesTest, GroupEndWithoutStart) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ExpectViolation("ncclGroupEnd without ncclGroupStart");
}

TEST_F(NcclRulesTest, AnOpenGroupIsALeak) {
  OK(ncclGroupStart());
  EXPECT_EQ(fake_report()->record_leaks(), 1);
  ExpectViolation("ncclGroupStart without ncclGroupEnd");
  OK(ncclGroupEnd());
  std::thread([] { OK(ncclGroupStart()); }).join();
  ExpectViolation("a thread ended inside ncclGroupStart");
}

TEST_F(NcclRulesTest, AGroupMakesCommunicatorsOrCommunicates) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1});
    ncclComm_t child = nullptr;
    OK(ncclGroupStart());
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    OK(ncclCommSplit(r.comm, 0, 0, &child, nullptr));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(child, nullptr);
  });
  ExpectViolation("a group both makes communicators and communicates");
}

// They have no order among each other. Two calls that only read are allowed, and so is one in
// place.
TEST_F(NcclRulesTest, CallsOfAGroupAreApart) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2, 3, 4});
    const CUdeviceptr b = r.Upload<int>({0, 0, 0, 0});
    const int peer = 1 - r.rank;
    const auto group = [&](const auto& calls) {
      OK(ncclGroupStart());
      calls();
      OK(ncclGroupEnd());
      r.Sync();
      Barrier(2);
    };
    const auto send = [&](CUdeviceptr data, size_t count) {
      OK(ncclSend(r.At(data), count, ncclInt, peer, r.comm, r.stream));
    };
    const auto receive = [&](CUdeviceptr data, size_t count) {
      OK(ncclRecv(r.At(data), count, ncclInt, peer, r.comm, r.stream));
    };
    group([&] {
      send(a, 2);
      send(a + 4, 2);
      receive(b, 2);
      receive(b + 8, 2);
      OK(ncclAllReduce(r.At(a, 12), r.At(a, 12), 1, ncclInt, ncclSum, r.comm, r.stream));
    });
    EXPECT_EQ(Violations(), "");
    Barrier(2);
    group([&] {
      send(a, 2);
      send(a, 2);
      receive(b, 2);
      receive(b + 4, 2);
    });
    if (r.rank == 0) ExpectViolation("ncclRecv and ncclRecv in one group use the same bytes");
    Barrier(2);
    group([&] {
      send(a, 2);
      receive(a + 4, 2);
    });
    if (r.rank == 0) ExpectViolation("ncclSend and ncclRecv in one group use the same bytes");
    Barrier(2);
    group([&] {
      OK(ncclAllReduce(r.At(a), r.At(b), 4, ncclInt, ncclSum, r.comm, r.stream));
      OK(ncclAllReduce(r.At(b, 12), r.At(a, 0), 0, ncclInt, ncclSum, r.comm, r.stream));
      OK(ncclBroadcast(r.At(b, 12), r.At(b, 12), 1, ncclInt, 0, r.comm, r.stream));
    });
    if (r.rank == 0) ExpectViolation("ncclAllReduce and ncclBroadcast in one group");
    Barrier(2);
  });
}

TEST_F(NcclRulesTest, NoCapturedAndOtherCallsInOneGroup) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    const CUstream other = r.Stream();
    const CUdeviceptr a = r.Upload<int>({1, 2});
    r.Sync();
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(ncclGroupStart());
    OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    OK(ncclAllReduce(r.At(a, 4), r.At(a, 4), 1, ncclInt, ncclSum, r.comm, other));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture(r.stream, &graph));
    OK(cuGraphDestroy(graph));
  });
  ExpectViolation("captured and other operations in one NCCL group");
}

TEST_F(NcclRulesTest, ALeftOutWaitBeforeACollective) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUstream other = r.Stream();
    const CUdeviceptr a = r.Buffer(8);
    OK(cuMemsetD8Async(a, 1, 8, r.stream));
    OK(ncclAllReduce(r.At(a), r.At(a), 2, ncclInt, ncclSum, r.comm, other));
    OK(cuStreamSynchronize(other));
    OK(cuMemsetD8Async(a, 1, 8, r.stream));  // fine: the host has waited
  });
  EXPECT_EQ(fake_report()->violation_count(), 4)
      << Violations();  // a read and a write on each rank
  ExpectViolation("race: ncclAllReduce");
}

TEST_F(NcclRulesTest, ALeftOutWaitAfterACollective) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUstream other = r.Stream();
    const CUdeviceptr a = r.Upload<int>({1, 2});
    r.Order(r.stream, other);
    OK(ncclAllReduce(r.At(a), r.At(a), 2, ncclInt, ncclSum, r.comm, other));
    r.Download<int>(a, 2);
    OK(cuStreamSynchronize(other));
  });
  EXPECT_EQ(fake_report()->violation_count(), 2) << Violations();
  ExpectViolation("race: cuMemcpyDtoHAsync");
}

TEST_F(NcclRulesTest, BuffersOverlapOnlyInPlace) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1, 2, 3});
    OK(ncclAllGather(r.At(a, static_cast<size_t>(4 * r.rank)), r.At(a), 1, ncclInt, r.comm,
                     r.stream));
    EXPECT_EQ(Violations(), "");
    Barrier(2);
    OK(ncclAllReduce(r.At(a), r.At(a, 4), 2, ncclInt, ncclSum, r.comm, r.stream));
    r.Sync();
  });
  ExpectViolation("ncclAllReduce: send and receive buffer overlap");
}

// Each other collective has one in-place form, or none.
TEST_F(NcclRulesTest, OfOtherCollectivesToo) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    char* const a = static_cast<char*>(r.At(r.Buffer(64)));
    OK(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(a), 1, 64, r.stream));
    const size_t own = 2 * static_cast<size_t>(r.rank);
    OK(ncclAllGather(a + own, a, 2, ncclInt8, r.comm, r.stream));
    OK(ncclReduceScatter(a, a + own, 2, ncclInt8, ncclSum, r.comm, r.stream));
    OK(ncclBroadcast(a, a, 2, ncclInt8, 0, r.comm, r.stream));
    OK(ncclReduce(a, a, 2, ncclInt8, ncclSum, 0, r.comm, r.stream));
    OK(ncclAlltoAll(a, a + 4, 2, ncclInt8, r.comm, r.stream));
    r.Sync();
    EXPECT_EQ(Violations(), "");
    Barrier(2);
    const size_t off = own + 1;
    OK(ncclAllGather(a + off, a, 2, ncclInt8, r.comm, r.stream));
    OK(ncclReduceScatter(a, a + off, 2, ncclInt8, ncclSum, r.comm, r.stream));
    OK(ncclBroadcast(a, a + 1, 2, ncclInt8, 0, r.comm, r.stream));
    OK(ncclReduce(a, a + 1, 2, ncclInt8, ncclSum, 0, r.comm, r.stream));
    OK(ncclAlltoAll(a, a, 2, ncclInt8, r.comm, r.stream));
    r.Sync();
  });
  for (const char* name :
       {"ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclAlltoAll"}) {
    ExpectViolation(std::string(name) + ": send and receive buffer overlap");
  }
}

TEST_F(NcclRulesTest, AStreamOfAnotherDevice) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    void* a = r.At(r.Buffer(4));
    {
      TestRank other(1, 2);
      EXPECT_EQ(ncclAllReduce(a, a, 1, ncclInt, ncclSum, r.comm, other.stream), ncclInvalidUsage);
    }
    OK(cuCtxSetCurrent(r.context));
  });
  ExpectViolation("a communicator of device 0 on a stream of device 1");
}

TEST_F(NcclRulesTest, ArgumentsThatNcclRefuses) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    void* a = r.At(r.Buffer(64));
    int local[2] = {};
    const auto refused = [&](ncclResult_t result) { EXPECT_EQ(result, ncclInvalidArgument); };
    refused(ncclAllReduce(a, a, 1, ncclNumTypes, ncclSum, r.comm, r.stream));
    refused(ncclAllReduce(a, a, 1, ncclInt, ncclNumOps, r.comm, r.stream));
    refused(ncclAllReduce(a, a, 1, ncclInt, ncclSum, nullptr, r.stream));
    refused(ncclBroadcast(a, a, 1, ncclInt, 2, r.comm, r.stream));
    refused(ncclSend(a, 1, ncclInt, -1, r.comm, r.stream));
    refused(ncclAllReduce(local, local, 1, ncclInt, ncclSum, r.comm, r.stream));
    refused(ncclAllReduce(a, a, 17, ncclInt, ncclSum, r.comm, r.stream));
    OK(ncclAllReduce(a, a, 0, ncclInt, ncclSum, r.comm, r.stream));
  });
  ExpectViolation("which is not memory of a device");
  ExpectViolation("68 bytes at byte 0 of an allocation of 64 bytes");
}

TEST_F(NcclRulesTest, AKilledDeviceIsARemoteError) {
  const ncclUniqueId id = NewId();
  RunRanks(3, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    const CUdeviceptr a = r.Upload<int>({1, 2});
    r.Sync();
    Barrier(3);
    if (r.rank == 1) {
      fake_report()->kill_device(1);
      Barrier(3);
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // nothing was left to do
      Barrier(3);
      fake_report()->revive_device(1);
      OK(ncclCommAbort(r.comm));
      r.comm = nullptr;
      return;
    }
    Barrier(3);
    ncclResult_t state = ncclSuccess;
    OK(ncclCommGetAsyncError(r.comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_EQ(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream),
              ncclRemoteError);
    Barrier(3);
    Abort(r);
  });
  EXPECT_EQ(Violations(), "");
}

TEST_F(NcclRulesTest, AnAsynchronousErrorComesWhenTold) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr a = r.Upload<int>({1});
    fake_report()->async_error(r.comm, 2, ncclSystemError);
    for (int i = 0; i < 2; ++i) {
      OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
    }
    EXPECT_THAT(r.Download<int>(a, 1), ElementsAre(4));
    EXPECT_EQ(Settle(r.comm), ncclSystemError);
    Abort(r);
  });
}

TEST_F(NcclRulesTest, AFunctionFailsWhenTold) {
  fake_report()->fail("ncclGetUniqueId", 1, ncclSystemError);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
  OK(ncclGetUniqueId(&id));
}

// Two windows of one rank.
struct TwoWindows {
  explicit TwoWindows(TestRank& r, size_t bytes = 8192) {
    for (int i = 0; i < 2; ++i) {
      OK(ncclMemAlloc(&memory[i], bytes));
      OK(ncclCommWindowRegister(r.comm, memory[i], bytes, &window[i], NCCL_WIN_COLL_SYMMETRIC));
    }
  }
  char* At(int i, int64_t offset) const { return static_cast<char*>(memory[i]) + offset; }
  void* memory[2] = {};
  ncclWindow_t window[2] = {};
};

TEST_F(NcclRulesTest, WindowsAreOfOneSizeOnAllRanks) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const TwoWindows windows(r, r.rank == 0 ? 4096 : 8192);
  });
  ExpectViolation("ncclCommWindowRegister: rank ");
  ExpectViolation("registers 4096 bytes with flags 1, rank 1 8192 bytes with flags 1");
}

TEST_F(NcclRulesTest, SymmetricCallsMeanOnePlaceOnAllRanks) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const TwoWindows windows(r);
    OK(ncclAllGather(windows.At(0, 0), windows.At(1, r.rank == 0 ? 0 : 16), 16, ncclUint8, r.comm,
                     r.stream));
    ExpectHang(r);
    Abort(r);
  });
  EXPECT_EQ(fake_report()->call_count("symmetric"), 2);
  ExpectViolation("window 0+0 to 1+0");
  ExpectViolation("window 0+0 to 1+16");
}

TEST_F(NcclRulesTest, MemoryIsDeregisteredBeforeItIsFreedAndOnce) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    const TwoWindows windows(r);
    OK(ncclMemFree(windows.memory[0]));
    OK(ncclCommWindowDeregister(r.comm, windows.window[1]));
    EXPECT_NE(ncclCommWindowDeregister(r.comm, windows.window[1]), ncclSuccess);
  });
  ExpectViolation("ncclMemFree of memory that is registered with a communicator");
  ExpectViolation("ncclCommWindowDeregister of no window of the communicator");
}

TEST_F(NcclRulesTest, WindowsStayWhileTheyAreUsed) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](TestRank& r) {
    r.Join(id);
    const TwoWindows windows(r);
    OK(ncclAllGather(windows.At(0, 0), windows.At(1, 0), 16, ncclUint8, r.comm, r.stream));
    OK(ncclCommWindowDeregister(r.comm, windows.window[0]));
    r.Sync();
  });
  ExpectViolation("ncclCommWindowDeregister while operations are unfinished");
}

TEST_F(NcclRulesTest, MemoryIsRegisteredOnceAndAligned) {
  const ncclUniqueId id = NewId();
  RunRanks(1, [&](TestRank& r) {
    r.Join(id);
    const TwoWindows windows(r);
    ncclWindow_t again = nullptr;
    OK(ncclCommWindowRegister(r.comm, windows.At(0, 512), 512, &again, NCCL_WIN_COLL_SYMMETRIC));
  });
  ExpectViolation("ncclCommWindowRegister of memory that is registered already");
  ExpectViolation("is not a multiple of 4096");
}

}  // namespace
}  // namespace meshift
