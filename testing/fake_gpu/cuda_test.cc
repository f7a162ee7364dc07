// The driver stand-in by CUDA's documentation: devices, memory, streams, events and graphs.
#include <atomic>
#include <csignal>
#include <cstring>
#include <numeric>

#include "comm/cuda/kernel_params.h"
#include "gmock/gmock.h"
#include "testing/fake_gpu/test_rank.h"

namespace meshift {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class CudaTest : public ::testing::TestWithParam<int> {
 protected:
  CudaTest() {
    fake_report()->reset();
    fake_report()->set_seed(static_cast<uint64_t>(GetParam()));
  }
  ~CudaTest() override {
    EXPECT_EQ(Violations(), "");
    EXPECT_EQ(fake_report()->record_leaks(), 0) << Violations();
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, CudaTest, ::testing::Range(1, 11));

TEST_P(CudaTest, DevicesAreHoppers) {
  OK(cuInit(0));
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 8);
  int major = 0;
  OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7));
  EXPECT_EQ(major, 9);
  EXPECT_EQ(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8),
            CUDA_ERROR_INVALID_DEVICE);
  const char* name = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &name));
  EXPECT_STREQ(name, "CUDA_ERROR_NOT_READY");
}

TEST_P(CudaTest, ACallNeedsAContext) {
  OK(cuInit(0));
  OK(cuCtxSetCurrent(nullptr));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_P(CudaTest, CopiesAndFills) {
  TestRank r(0, 1);
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  const CUdeviceptr a = r.Upload(values);
  const CUdeviceptr b = r.Buffer(4000);
  OK(cuMemcpyDtoDAsync(b, a, 4000, r.stream));
  OK(cuMemsetD8Async(b, 7, 40, r.stream));
  OK(cuMemsetD8Async(b + 40, 0xff, 4, r.stream));
  std::fill(values.begin(), values.begin() + 10, 0x07070707);
  values[10] = -1;
  EXPECT_EQ(r.Download<int>(b, 1000), values);
}

TEST_P(CudaTest, TheDefaultStreamAndBlockingOnesWaitForEachOther) {
  TestRank r(0, 1);
  CUstream blocking = nullptr;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  const CUdeviceptr a = r.Buffer(100);
  OK(cuMemsetD8Async(a, 5, 100, blocking));
  std::vector<uint8_t> values(100);
  OK(cuMemcpyDtoHAsync(values.data(), a, 100, nullptr));
  EXPECT_THAT(values, Each(5));
  OK(cuMemsetD8Async(a, 6, 100, nullptr));
  OK(cuMemcpyDtoHAsync(values.data(), a, 100, blocking));
  OK(cuStreamSynchronize(blocking));
  EXPECT_THAT(values, Each(6));
  OK(cuStreamDestroy(blocking));
}

TEST_P(CudaTest, EventsOrderStreams) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(1);
  for (uint8_t i = 0; i < 50; ++i) {
    OK(cuMemsetD8Async(a, i, 1, r.stream));
    r.Order(r.stream, other);
    const CUdeviceptr b = r.Buffer(1);
    OK(cuMemcpyDtoDAsync(b, a, 1, other));
    r.Order(other, r.stream);
    EXPECT_THAT(r.Download<uint8_t>(b, 1), ElementsAre(i));
  }
}

TEST_P(CudaTest, AnEventIsReadyWhenItsWorkIs) {
  TestRank r(0, 1);
  CUevent event = r.Event();
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);  // never recorded
  std::atomic<bool> go = false;
  OK(cuLaunchHostFunc(
      r.stream,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
      },
      &go));
  OK(cuEventRecord(event, r.stream));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(r.stream), CUDA_ERROR_NOT_READY);
  go = true;
  OK(cuEventSynchronize(event));
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
}

TEST_P(CudaTest, TimedEventsMeasure) {
  TestRank r(0, 1);
  CUevent start = nullptr;
  CUevent end = nullptr;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventRecord(start, r.stream));
  OK(cuLaunchHostFunc(
      r.stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }, nullptr));
  OK(cuEventRecord(end, r.stream));
  r.Sync();
  float milliseconds = 0;
  OK(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 2.9F);
  EXPECT_LT(milliseconds, 3000.0F);
  OK(cuEventDestroy(start));
  OK(cuEventDestroy(end));
}

TEST_P(CudaTest, PoolMemoryLivesInStreamOrder) {
  TestRank r(0, 1);
  CUdeviceptr a = 0;
  OK(cuMemAllocFromPoolAsync(&a, 400, r.Pool(), r.stream));
  OK(cuMemsetD8Async(a, 3, 400, r.stream));
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 400, 0));
  OK(cuMemcpyDtoHAsync(pinned, a, 400, r.stream));
  OK(cuMemFreeAsync(a, r.stream));
  r.Sync();
  EXPECT_EQ(static_cast<char*>(pinned)[399], 3);
  OK(cuMemFreeHost(pinned));
  EXPECT_EQ(fake_report()->allocated_bytes(), 0);
}

TEST_P(CudaTest, PointersAreKnown) {
  TestRank r(2, 3);
  const CUdeviceptr a = r.Buffer(100);
  int device = -1;
  unsigned type = 0;
  CUdeviceptr base = 0;
  OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a + 50));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 50));
  OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 50));
  EXPECT_EQ(device, 2);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(base, a);
  int local = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_P(CudaTest, OutOfMemory) {
  TestRank r(0, 1);
  size_t free = 0;
  size_t total = 0;
  OK(cuMemGetInfo(&free, &total));
  EXPECT_EQ(free, total);
  CUdeviceptr a = 0;
  EXPECT_EQ(cuMemAlloc(&a, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_P(CudaTest, AGraphReplaysWhatWasCaptured) {
  TestRank r(0, 1);
  CUstream other = r.Stream();
  const CUdeviceptr a = r.Buffer(1);
  const CUdeviceptr b = r.Buffer(1);
  CUevent fork = r.Event();
  CUevent join = r.Event();
  OK(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuEventRecord(fork, r.stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuMemcpyDtoDAsync(b, a, 1, other));
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(r.stream, join, 0));
  OK(cuMemsetD8Async(a, 9, 1, r.stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(r.stream, &graph));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  OK(cuMemsetD8Async(a, 4, 1, r.stream));
  OK(cuGraphLaunch(exec, r.stream));
  EXPECT_THAT(r.Download<uint8_t>(b, 1), ElementsAre(4));  // as it was before the launch
  OK(cuGraphLaunch(exec, r.stream));
  EXPECT_THAT(r.Download<uint8_t>(b, 1), ElementsAre(9));
  OK(cuGraphExecDestroy(exec));
}

TEST_P(CudaTest, KernelsRunTheirTwins) {
  TestRank r(0, 1);
  const uint32_t image = 0xba55ed50;  // looks like a fatbin
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, &image));
  CUfunction fill = nullptr;
  OK(cuModuleGetFunction(&fill, module, cuda::kFillEntry));
  CUfunction nothing = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&nothing, module, "no_kernel"), CUDA_ERROR_NOT_FOUND);
  const CUdeviceptr a = r.Buffer(40);
  cuda::FillParams params = {};
  params.data = a;
  params.count = 10;
  params.element_bytes = 4;
  const int value = 77;
  std::memcpy(params.element, &value, 4);
  void* arguments[] = {&params};
  OK(cuLaunchKernel(fill, 1, 1, 1, 256, 1, 1, 0, r.stream, arguments, nullptr));
  params.count = 0;  // the launch has its own copy
  EXPECT_THAT(r.Download<int>(a, 10), Each(77));

  // Every second int, in reverse.
  CUfunction copy = nullptr;
  OK(cuModuleGetFunction(&copy, module, cuda::kCopyBoxesEntry));
  const CUdeviceptr from = r.Upload<int>({0, 1, 2, 3, 4, 5});
  static cuda::CopyBoxesParams boxes;
  boxes.num_boxes = 1;
  boxes.num_tiles = 1;
  boxes.boxes[0] = {.src = from,
                    .dst = a + 8,
                    .units = 3,
                    .tile_end = 1,
                    .first_dim = 0,
                    .rank = 1,
                    .unit_bytes = 4,
                    .lanes = 1,
                    .run_bytes = 0};
  boxes.dims[0] = {.size = 3, .magic = 0, .src_stride = 8, .dst_stride = -4};
  void* copy_arguments[] = {&boxes};
  OK(cuLaunchKernel(copy, 1, 1, 1, 256, 1, 1, 0, r.stream, copy_arguments, nullptr));
  EXPECT_THAT(r.Download<int>(a, 3), ElementsAre(4, 2, 0));
  OK(cuModuleUnload(module));
}

TEST(CudaDeathTest, TheHostCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake_report()->reset();
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, SIG_DFL);
        TestRank r(0, 1);
        const CUdeviceptr a = r.Buffer(64);
        r.Sync();
        *reinterpret_cast<volatile int*>(a) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(CudaFaultTest, ACallFailsWhenTold) {
  fake_report()->reset();
  TestRank r(0, 1);
  fake_report()->fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  r.Buffer(10);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 10), CUDA_ERROR_OUT_OF_MEMORY);
  r.Buffer(10);
  EXPECT_EQ(fake_report()->call_count("cuMemAlloc"), 3);
}

TEST(CudaFaultTest, ADeviceIsLateWhenTold) {
  fake_report()->reset();
  TestRank r(0, 1);
  const CUdeviceptr a = r.Buffer(4);
  const auto start = std::chrono::steady_clock::now();
  fake_report()->delay_device(0, 30);
  OK(cuMemsetD8Async(a, 1, 1, r.stream));
  r.Sync();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
}

TEST(CudaLogTest, CallsAreLogged) {
  fake_report()->reset();
  TestRank r(0, 1);
  OK(cuMemsetD8Async(r.Buffer(8), 1, 8, r.stream));
  char line[200];
  const int64_t last = fake_report()->log_size() - 1;
  ASSERT_GT(fake_report()->log_line(last, line, sizeof(line)), 0);
  EXPECT_THAT(line, ::testing::HasSubstr("cuMemsetD8Async"));
  EXPECT_EQ(fake_report()->log_line(last + 1, line, sizeof(line)), -1);
}

}  // namespace
}  // namespace meshift
