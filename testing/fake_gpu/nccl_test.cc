// The NCCL stand-in with ranks as threads: results, communicators, groups.
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "testing/fake_gpu/test_rank.h"

namespace meshift {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class NcclTest : public ::testing::TestWithParam<int> {
 protected:
  NcclTest() {
    fake_report()->reset();
    fake_report()->set_seed(static_cast<uint64_t>(GetParam()));
  }
  ~NcclTest() override {
    EXPECT_EQ(Violations(), "");
    EXPECT_EQ(fake_report()->record_leaks(), 0) << Violations();
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, NcclTest, ::testing::Range(1, 11));

TEST_P(NcclTest, CollectivesMoveAndAdd) {
  const ncclUniqueId id = NewId();
  RunRanks(4, [&](TestRank& r) {
    r.Join(id, GetParam() % 2 == 0);
    const auto call = [&](ncclResult_t result) {
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
      EXPECT_EQ(Settle(r.comm), ncclSuccess);
    };
    std::vector<int> values(8);
    std::iota(values.begin(), values.end(), 10 * r.rank);
    const CUdeviceptr in = r.Upload(values);
    const CUdeviceptr out = r.Buffer(8 * sizeof(int));
    const int n = r.rank;
    call(ncclAllReduce(r.At(in), r.At(out), 8, ncclInt32, ncclSum, r.comm, r.stream));
    EXPECT_THAT(r.Download<int>(out, 8), ElementsAre(60, 64, 68, 72, 76, 80, 84, 88));
    call(ncclReduceScatter(r.At(in), r.At(out), 2, ncclInt32, ncclMax, r.comm, r.stream));
    EXPECT_THAT(r.Download<int>(out, 2), ElementsAre(30 + 2 * n, 31 + 2 * n));
    call(ncclAllGather(r.At(in), r.At(out), 2, ncclInt32, r.comm, r.stream));
    EXPECT_THAT(r.Download<int>(out, 8), ElementsAre(0, 1, 10, 11, 20, 21, 30, 31));
    call(ncclBroadcast(r.At(in), r.At(out), 2, ncclInt32, 2, r.comm, r.stream));
    EXPECT_THAT(r.Download<int>(out, 2), ElementsAre(20, 21));
    call(ncclAlltoAll(r.At(in), r.At(out), 2, ncclInt32, r.comm, r.stream));
    EXPECT_THAT(r.Download<int>(out, 8),
                ElementsAre(2 * n, 2 * n + 1, 2 * n + 10, 2 * n + 11, 2 * n + 20, 2 * n + 21,
                            2 * n + 30, 2 * n + 31));
    call(ncclReduce(r.At(in), r.At(out), 1, ncclInt32, ncclMin, 3, r.comm, r.stream));
    if (n == 3) {
      EXPECT_THAT(r.Download<int>(out, 1), ElementsAre(0));
    }
  });
}

TEST_P(NcclTest, GroupedSendsAndReceivesMeet) {
  const ncclUniqueId id = NewId();
  RunRanks(3, [&](TestRank& r) {
    r.Join(id);
    const CUdeviceptr in = r.Upload<int>({r.rank, 100 + r.rank, 200 + r.rank});
    const CUdeviceptr out = r.Buffer(3 * sizeof(int));
    OK(ncclGroupStart());
    for (int peer = 0; peer < 3; ++peer) {
      OK(ncclSend(r.At(in, 4 * static_cast<size_t>(peer)), 1, ncclInt32, peer, r.comm, r.stream));
      OK(ncclRecv(r.At(out, 4 * static_cast<size_t>(peer)), 1, ncclInt32, peer, r.comm, r.stream));
    }
    OK(ncclGroupEnd());
    const int mine = 100 * r.rank;
    EXPECT_THAT(r.Download<int>(out, 3), ElementsAre(mine, mine + 1, mine + 2));
  });
}

TEST_P(NcclTest, SplitsByColorAndKey) {
  const ncclUniqueId id = NewId();
  RunRanks(4, [&](TestRank& r) {
    const bool blocking = GetParam() % 2 == 0;
    r.Join(id, blocking);
    ncclComm_t child = nullptr;
    // Rank 3 stays out; the order of the others is reversed.
    const int color = r.rank == 3 ? NCCL_SPLIT_NOCOLOR : 5;
    const ncclResult_t result = ncclCommSplit(r.comm, color, -r.rank, &child, nullptr);
    EXPECT_TRUE(result == ncclSuccess || (!blocking && result == ncclInProgress)) << result;
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
    if (r.rank == 3) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(Settle(child), ncclSuccess);
    int rank = -1;
    int count = 0;
    OK(ncclCommUserRank(child, &rank));
    OK(ncclCommCount(child, &count));
    EXPECT_EQ(rank, 2 - r.rank);
    EXPECT_EQ(count, 3);
    const CUdeviceptr data = r.Upload<float>({1.0F + static_cast<float>(r.rank)});
    const ncclResult_t reduced =
        ncclAllReduce(r.At(data), r.At(data), 1, ncclFloat, ncclSum, child, r.stream);
    EXPECT_TRUE(reduced == ncclSuccess || reduced == ncclInProgress);
    EXPECT_EQ(Settle(child), ncclSuccess);
    EXPECT_THAT(r.Download<float>(data, 1), ElementsAre(6.0F));
    OK(ncclCommDestroy(child));
  });
}

// Whatever the call returns, the child exists once the parent's state is ready.
TEST_P(NcclTest, TheResultOfASplitDoesNotTellWhetherItIsThrough) {
  const ncclUniqueId id = NewId();
  std::set<ncclResult_t> results;
  RunRanks(2, [&](TestRank& r) {
    r.Join(id, /*blocking=*/false);
    for (int i = 0; i < 20; ++i) {
      ncclComm_t child = nullptr;
      const ncclResult_t result = ncclCommSplit(r.comm, 0, r.rank, &child, nullptr);
      if (r.rank == 0) results.insert(result);
      EXPECT_EQ(Settle(r.comm), ncclSuccess);
      ASSERT_NE(child, nullptr);
      EXPECT_EQ(Settle(child), ncclSuccess);
      OK(ncclCommDestroy(child));
    }
  });
  EXPECT_THAT(results, ElementsAre(ncclSuccess, ncclInProgress));
}

// Two communicators in one group, on one stream and on two.
TEST_P(NcclTest, GroupsSpanCommunicatorsAndStreams) {
  const ncclUniqueId id = NewId();
  RunRanks(4, [&](TestRank& r) {
    const bool blocking = GetParam() % 2 == 0;
    r.Join(id, blocking);
    ncclComm_t pair = nullptr;
    ncclCommSplit(r.comm, r.rank / 2, r.rank, &pair, nullptr);
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
    EXPECT_EQ(Settle(pair), ncclSuccess);
    for (int round = 0; round < 3; ++round) {
      const CUstream other = round == 0 ? r.stream : r.Stream();
      const CUdeviceptr a = r.Upload<int>({1, 10, 100});
      r.Order(r.stream, other);
      OK(ncclGroupStart());
      OK(ncclAllReduce(r.At(a), r.At(a), 1, ncclInt, ncclSum, r.comm, r.stream));
      OK(ncclAllReduce(r.At(a, 4), r.At(a, 4), 1, ncclInt, ncclSum, pair, r.stream));
      OK(ncclAllReduce(r.At(a, 8), r.At(a, 8), 1, ncclInt, ncclSum, pair, other));
      const ncclResult_t result = ncclGroupEnd();
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
      EXPECT_EQ(Settle(r.comm), ncclSuccess);
      EXPECT_EQ(Settle(pair), ncclSuccess);
      // The streams of a communicator in a group are joined.
      EXPECT_THAT(r.Download<int>(a, 3), ElementsAre(4, 20, 200));
    }
    OK(ncclCommDestroy(pair));
  });
}

// The kernels of one communicator run in order, whatever their streams.
TEST_P(NcclTest, CapturedCollectivesReplay) {
  const ncclUniqueId id = NewId();
  RunRanks(3, [&](TestRank& r) {
    r.Join(id, GetParam() % 2 == 0);
    const CUdeviceptr a = r.Upload<int>({r.rank, 5});
    const CUdeviceptr b = r.Buffer(8);
    const ncclResult_t warm =
        ncclAllReduce(r.At(a, 4), r.At(a, 4), 1, ncclInt, ncclMax, r.comm, r.stream);
    EXPECT_TRUE(warm == ncclSuccess || warm == ncclInProgress);
    EXPECT_EQ(Settle(r.comm), ncclSuccess);
    CUstream other = r.Stream();
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const auto call = [&](ncclResult_t result) {
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
      EXPECT_EQ(Settle(r.comm), ncclSuccess);
    };
    call(ncclAllReduce(r.At(a), r.At(b), 2, ncclInt, ncclSum, r.comm, r.stream));
    r.Order(r.stream, other);
    call(ncclBroadcast(r.At(b), r.At(b), 1, ncclInt, 1, r.comm, other));
    r.Order(other, r.stream);
    OK(cuMemcpyDtoDAsync(a, b, 8, r.stream));
    OK(cuStreamEndCapture(r.stream, &graph));
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, r.stream));
    OK(cuGraphLaunch(exec, r.stream));
    EXPECT_THAT(r.Download<int>(a, 2), ElementsAre(9, 45));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
  });
}

// One thread may make the communicators of several ranks in a group.
TEST_P(NcclTest, OneThreadMakesCommunicatorsInAGroup) {
  const ncclUniqueId id = NewId();
  TestRank zero(0, 2);
  TestRank one(1, 2);
  OK(ncclGroupStart());
  OK(cuCtxSetCurrent(zero.context));
  OK(ncclCommInitRankConfig(&zero.comm, 2, id, 0, nullptr));
  OK(cuCtxSetCurrent(one.context));
  OK(ncclCommInitRankConfig(&one.comm, 2, id, 1, nullptr));
  OK(ncclGroupEnd());
  OK(ncclGroupStart());
  OK(ncclCommAbort(zero.comm));
  OK(ncclCommAbort(one.comm));
  OK(ncclGroupEnd());
  zero.comm = nullptr;
  one.comm = nullptr;
}

TEST_P(NcclTest, MemoryForRegistration) {
  TestRank r(0, 1);
  void* memory = nullptr;
  OK(ncclMemAlloc(&memory, 1000));
  OK(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory), 1, 1000, r.stream));
  r.Join(NewId());
  ncclWindow_t window = nullptr;
  OK(ncclCommWindowRegister(r.comm, memory, 1000, &window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclCommWindowDeregister(r.comm, window));
  OK(ncclMemFree(memory));
}

TEST_P(NcclTest, AllRanksGetTheSameBits) {
  const ncclUniqueId id = NewId();
  std::vector<std::vector<float>> results(5);
  RunRanks(5, [&](TestRank& r) {
    r.Join(id);
    std::vector<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0F / (1.0F + static_cast<float>(i) + 7.3F * static_cast<float>(r.rank));
    }
    const CUdeviceptr data = r.Upload(values);
    OK(ncclAllReduce(r.At(data), r.At(data), 1000, ncclFloat, ncclSum, r.comm, r.stream));
    results[static_cast<size_t>(r.rank)] = r.Download<float>(data, 1000);
  });
  EXPECT_THAT(results, Each(results[0]));
}

}  // namespace
}  // namespace meshift
