// Breaks each CUDA rule that the stand-in checks once, and expects the report. cuda_test.cc keeps
// the rules; there any report fails the test.
#include <cstring>

#include "comm/cuda/kernel_params.h"
#include "gmock/gmock.h"
#include "testing/fake_gpu/test_rank.h"

namespace meshift {
namespace {

using ::testing::HasSubstr;

class CudaRulesTest : public ::testing::Test {
 protected:
  CudaRulesTest() { fake_report()->reset(); }
  ~CudaRulesTest() override { fake_report()->reset(); }

  static CUgraph EmptyGraph(const TestRank& r) {
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuStreamEndCapture(r.stream, &graph));
    return graph;
  }

  // Expects that the violations so far contain `text`, and forgets them.
  static void ExpectViolation(const std::string& text) {
    EXPECT_THAT(Violations(), HasSubstr(text));
    fake_report()->reset();
  }
};

// A missing wait is found in every run, even if the data is right.
TEST_F(CudaRulesTest, ALeftOutWaitIsARace) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    fake_report()->set_seed(seed);
    TestRank r(0, 1);
    CUstream other = r.Stream();
    const CUdeviceptr a = r.Buffer(64);
    const CUdeviceptr b = r.Buffer(64);
    OK(cuMemsetD8Async(a, 1, 64, r.stream));
    OK(cuMemcpyDtoDAsync(b, a, 64, other));
    EXPECT_EQ(fake_report()->violation_count(), 1);
    ExpectViolation("race: cuMemcpyDtoDAsync");
  }
}

// Streams are delayed and reordered enough that it often gives wrong data, too.
TEST_F(CudaRulesTest, ALeftOutWaitShowsAsWrongData) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    fake_report()->set_seed(seed);
    TestRank r(0, 1);
    CUstream other = r.Stream();
    const CUdeviceptr a = r.Buffer(4);
    for (uint8_t round = 0; round < 10; ++round) {
      OK(cuMemsetD8Async(a, round, 1, r.stream));
      OK(cuMemsetD8Async(a, 100 + round, 1, other));  // must come second, but is not ordered
      OK(cuStreamSynchronize(other));
      wrong += r.Download<uint8_t>(a, 1)[0] == 100 + round ? 0 : 1;
    }
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 200);
  ExpectViolation("race: cuMemsetD8Async");
}

TEST_F(CudaRulesTest, AWaitForTheWrongEventIsARace) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(64);
  CUevent early = r.Event();
  OK(cuEventRecord(early, r.stream));
  OK(cuMemsetD8Async(a, 1, 64, r.stream));
  OK(cuStreamWaitEvent(other, early, 0));
  OK(cuMemsetD8Async(a, 2, 64, other));
  ExpectViolation("race: cuMemsetD8Async");
}

TEST_F(CudaRulesTest, OverwritingWhatIsStillReadIsARace) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(64);
  const CUdeviceptr b = r.Buffer(64);
  OK(cuMemcpyDtoDAsync(b, a, 64, r.stream));
  OK(cuMemsetD8Async(a, 1, 64, other));
  ExpectViolation("race: cuMemsetD8Async");
}

TEST_F(CudaRulesTest, PinnedMemoryRacesToo) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(64);
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 64, 0));
  OK(cuMemcpyDtoHAsync(pinned, a, 64, r.stream));
  OK(cuMemcpyHtoDAsync(r.Buffer(64), pinned, 64, other));
  EXPECT_THAT(Violations(), HasSubstr("race: cuMemcpyHtoDAsync"));
  r.Sync();
  OK(cuStreamSynchronize(other));
  OK(cuMemFreeHost(pinned));
  fake_report()->reset();
}

TEST_F(CudaRulesTest, WhatTheHostHasSeenIsOrdered) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(64);
  OK(cuMemsetD8Async(a, 1, 64, r.stream));
  r.Sync();
  OK(cuMemsetD8Async(a, 2, 64, other));
  CUevent event = r.Event();
  OK(cuEventRecord(event, other));
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  OK(cuMemsetD8Async(a, 3, 64, r.stream));
  EXPECT_EQ(Violations(), "");
}

TEST_F(CudaRulesTest, OutOfBounds) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(64);
  EXPECT_EQ(cuMemsetD8Async(a + 60, 1, 5, r.stream), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("writes 5 bytes at byte 60 of an allocation of 64 bytes");
}

TEST_F(CudaRulesTest, UseAfterFree) {
  TestRank r(0, 1);
  CUdeviceptr a = 0;
  OK(cuMemAlloc(&a, 64));
  OK(cuMemFree(a));
  EXPECT_EQ(cuMemsetD8Async(a, 1, 4, r.stream), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("which is freed memory");
  EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("freed twice");
  EXPECT_EQ(cuMemFree(a + 1), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("not the start of an allocation");
}

TEST_F(CudaRulesTest, MemoryOfAnotherDevice) {
  TestRank one(1, 2);
  const CUdeviceptr a = one.Buffer(64);
  TestRank r(0, 2);
  EXPECT_EQ(cuMemsetD8Async(a, 1, 4, r.stream), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("without peer access");
}

TEST_F(CudaRulesTest, HostMemoryIsNoDeviceMemory) {
  TestRank r(0, 1);
  int local = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(&local);
  EXPECT_EQ(cuMemsetD8Async(address, 1, 4, r.stream), CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("is not device memory");
  EXPECT_EQ(cuMemcpyHtoDAsync(r.Buffer(8), TestRank::At(r.Buffer(8)), 8, r.stream),
            CUDA_ERROR_INVALID_VALUE);
  ExpectViolation("is not host memory");
}

TEST_F(CudaRulesTest, HandlesAreDeadAfterDestruction) {
  TestRank r(0, 1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  ExpectViolation("the stream was destroyed");
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  OK(cuEventDestroy(event));
  EXPECT_EQ(cuEventRecord(event, r.stream), CUDA_ERROR_INVALID_HANDLE);
  ExpectViolation("the event was destroyed");
  CUgraph graph = EmptyGraph(r);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  OK(cuGraphExecDestroy(exec));
  EXPECT_NE(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ExpectViolation("the graph was destroyed");
  EXPECT_NE(cuGraphLaunch(exec, r.stream), CUDA_SUCCESS);
  ExpectViolation("the executable graph was destroyed");
}

TEST_F(CudaRulesTest, TheHotPathDoesNotSynchroniseOrAllocate) {
  TestRank r(0, 1);
  CUevent event = r.Event();
  const CUdeviceptr a = r.Buffer(8);
  std::vector<char> pageable(8);
  CUdeviceptr address = 0;
  CUgraph graph = EmptyGraph(r);
  const CUmemoryPool pool = r.Pool();
  fake_report()->hot_begin(0);
  OK(cuMemsetD8Async(a, 1, 8, r.stream));
  OK(cuEventRecord(event, r.stream));
  OK(cuStreamWaitEvent(r.stream, event, 0));
  cuEventQuery(event);
  EXPECT_EQ(Violations(), "");
  const auto broken = [&](CUresult result, const std::string& text) {
    EXPECT_EQ(result, CUDA_SUCCESS);
    ExpectViolation(text);
    fake_report()->hot_begin(0);  // the reset ended it
  };
  broken(cuStreamSynchronize(r.stream), "cuStreamSynchronize on the hot path");
  broken(cuEventSynchronize(event), "cuEventSynchronize on the hot path");
  broken(cuCtxSynchronize(), "cuCtxSynchronize on the hot path");
  broken(cuMemAlloc(&address, 8), "cuMemAlloc on the hot path");
  broken(cuMemFree(address), "cuMemFree on the hot path");
  broken(cuMemsetD8Async(a, 1, 8, nullptr), "legacy default stream on the hot path");
  broken(cuMemcpyDtoHAsync(pageable.data(), a, 8, r.stream),
         "pageable host memory on the hot path");
  CUevent made = nullptr;
  CUstream stream = nullptr;
  CUgraphExec exec = nullptr;
  void* pinned = nullptr;
  broken(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate on the hot path");
  broken(cuEventDestroy(made), "cuEventDestroy on the hot path");
  broken(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate on the hot path");
  broken(cuStreamDestroy(stream), "cuStreamDestroy on the hot path");
  broken(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate on the hot path");
  broken(cuGraphExecDestroy(exec), "cuGraphExecDestroy on the hot path");
  broken(cuGraphDestroy(graph), "cuGraphDestroy on the hot path");
  broken(cuMemHostAlloc(&pinned, 8, 0), "cuMemHostAlloc on the hot path");
  broken(cuMemFreeHost(pinned), "cuMemFreeHost on the hot path");
  broken(cuMemAllocFromPoolAsync(&address, 8, pool, r.stream),
         "cuMemAllocFromPoolAsync on the hot path");
  broken(cuMemFreeAsync(address, r.stream), "cuMemFreeAsync on the hot path");
  fake_report()->hot_end(0);
  fake_report()->hot_end(0);
  ExpectViolation("hot_end without hot_begin");
}

TEST_F(CudaRulesTest, AWholeProcessCanBeHot) {
  TestRank r(0, 1);
  fake_report()->hot_begin(1);
  std::thread([&] { OK(cuStreamSynchronize(r.stream)); }).join();
  ExpectViolation("cuStreamSynchronize on the hot path");
}

TEST_F(CudaRulesTest, LentStreamsAreLeftAlone) {
  TestRank r(0, 1);
  CUstream lent = nullptr;
  OK(cuStreamCreate(&lent, CU_STREAM_NON_BLOCKING));
  fake_report()->lend_stream(lent);
  OK(cuMemsetD8Async(r.Buffer(8), 1, 8, lent));
  EXPECT_EQ(Violations(), "");
  OK(cuStreamSynchronize(lent));
  EXPECT_THAT(Violations(), HasSubstr("a lent stream is synchronised"));
  OK(cuStreamQuery(lent));
  EXPECT_THAT(Violations(), HasSubstr("a lent stream is queried"));
  OK(cuStreamDestroy(lent));
  ExpectViolation("a lent stream is destroyed");
}

TEST_F(CudaRulesTest, LeaksAreReported) {
  TestRank r(0, 1);
  r.Buffer(24);
  r.Event();
  CUgraph graph = EmptyGraph(r);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(fake_report()->record_leaks(), 6);
  EXPECT_THAT(Violations(), HasSubstr("leak: an event"));
  EXPECT_THAT(Violations(), HasSubstr("leak: a graph"));
  EXPECT_THAT(Violations(), HasSubstr("leak: an executable graph"));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  EXPECT_THAT(Violations(), HasSubstr("leak: stream"));
  EXPECT_THAT(Violations(), HasSubstr("leak: the primary context of device 0"));
  ExpectViolation("leak: 24 bytes");
}

// --- Captures

class CaptureRulesTest : public CudaRulesTest {
 protected:
  void Begin(TestRank& r) {
    OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  static void EndInvalid(TestRank& r, CUresult expected) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(r.stream, &graph), expected);
    EXPECT_EQ(graph, nullptr);
  }
};

TEST_F(CaptureRulesTest, NoSynchronisation) {
  TestRank r(0, 1);
  Begin(r);
  EXPECT_EQ(cuStreamSynchronize(r.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ExpectViolation("cuStreamSynchronize of a stream that is captured");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(r);
  EXPECT_EQ(cuStreamQuery(r.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    OK(cuStreamBeginCapture(r.stream, mode));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(CaptureRulesTest, NoAllocation) {
  TestRank r(0, 1);
  Begin(r);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ExpectViolation("cuMemAlloc during a stream capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, AGlobalCaptureForbidsAllocationToAllThreads) {
  TestRank r(0, 1);
  OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    OK(cuCtxSetCurrent(r.context));
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  ExpectViolation("cuMemAlloc during a stream capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, AQueryIsAnUnsafeCallToo) {
  TestRank r(0, 1);
  CUevent event = r.Event();
  OK(cuEventRecord(event, r.Stream()));
  OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    OK(cuCtxSetCurrent(r.context));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_NE(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(Violations(), "");
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  ExpectViolation("cuEventQuery during a stream capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, NoQueryOfACapturedEvent) {
  TestRank r(0, 1);
  CUevent event = r.Event();
  Begin(r);
  OK(cuEventRecord(event, r.stream));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
  ExpectViolation("cuEventQuery of an event that was recorded in a capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, NoLegacyStream) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(8);
  Begin(r);
  OK(cuMemsetD8Async(a, 1, 8, nullptr));  // the captured stream is non-blocking
  ExpectViolation("uses the legacy default stream during a capture");
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(r.stream, &graph));
  OK(cuGraphDestroy(graph));
  CUstream blocking = nullptr;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuMemsetD8Async(a, 1, 8, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  ExpectViolation("legacy default stream during the capture");
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamDestroy(blocking));
}

TEST_F(CaptureRulesTest, NoWaitForWorkOutside) {
  TestRank r(0, 1);
  CUevent event = r.Event();
  OK(cuEventRecord(event, r.Stream()));
  Begin(r);
  EXPECT_EQ(cuStreamWaitEvent(r.stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  ExpectViolation("recorded outside the capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, NoUnjoinedWork) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(8);
  Begin(r);
  r.Order(r.stream, other);
  OK(cuMemsetD8Async(a, 1, 8, other));
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  ExpectViolation("was not joined");
}

TEST_F(CaptureRulesTest, OnlyTheOriginEndsACapture) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  Begin(r);
  r.Order(r.stream, other);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  ExpectViolation("did not begin the capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, NoPageableMemory) {
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(8);
  int64_t local = 0;
  Begin(r);
  EXPECT_EQ(cuMemcpyDtoHAsync(&local, a, 8, r.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ExpectViolation("pageable host memory in a capture");
  EndInvalid(r, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureRulesTest, ALeftOutForkRacesWhenTheGraphRuns) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(8);
  Begin(r);
  r.Order(r.stream, other);
  OK(cuMemsetD8Async(a, 1, 8, r.stream));  // after the fork: unordered with later work
  OK(cuMemsetD8Async(a, 2, 8, other));
  r.Order(other, r.stream);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(r.stream, &graph));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(Violations(), "");
  OK(cuGraphLaunch(exec, r.stream));
  ExpectViolation("race: cuMemsetD8Async");
  r.Sync();
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

}  // namespace
}  // namespace meshift
