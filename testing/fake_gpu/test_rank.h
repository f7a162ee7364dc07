// One rank of a test: a device with its context current on the calling thread, buffers and streams,
// through the C APIs only. Every failed call is a failure of the test.
//
//   RunRanks(4, [](TestRank& rank) {
//     const CUdeviceptr data = rank.Upload<float>({1, 2});
//     OK(ncclAllReduce(...));
//     rank.Sync();
//     EXPECT_THAT(rank.Download<float>(data, 2), ElementsAre(4, 8));
//   });
#ifndef MESHIFT_TESTING_FAKE_GPU_TEST_RANK_H_
#define MESHIFT_TESTING_FAKE_GPU_TEST_RANK_H_

#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "testing/fake_gpu/fake_report.h"

namespace meshift {

#define OK(call) EXPECT_EQ(static_cast<int>(call), 0) << #call

inline std::string Violations() { return FakeViolations(*fake_report()); }

// Waits until the communicator is ready; returns its asynchronous error.
inline ncclResult_t Settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return state;
}

class TestRank {
 public:
  TestRank(int index, int count) : rank(index), ranks(count) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, index));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~TestRank() {
    OK(cuCtxSetCurrent(context));
    OK(ncclCommDestroy(comm));  // NULL is allowed
    for (const CUdeviceptr address : buffers_) OK(cuMemFree(address));
    for (CUstream other : streams_) OK(cuStreamDestroy(other));
    for (CUevent event : events_) OK(cuEventDestroy(event));
    for (CUmemoryPool pool : pools_) OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy(stream));
    OK(cuDevicePrimaryCtxRelease(rank));
  }
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  // Joins the communicator of all ranks; blocking unless `blocking` is false.
  void Join(const ncclUniqueId& id, bool blocking = true) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    EXPECT_EQ(result, blocking ? ncclSuccess : ncclInProgress);
    EXPECT_EQ(Settle(comm), ncclSuccess);
  }

  CUdeviceptr Buffer(size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc(&address, bytes));
    buffers_.push_back(address);
    return address;
  }
  CUstream Stream() {
    CUstream made = nullptr;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    streams_.push_back(made);
    return made;
  }
  CUevent Event() {
    CUevent made = nullptr;
    OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    events_.push_back(made);
    return made;
  }
  CUmemoryPool Pool() {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank};
    CUmemoryPool made = nullptr;
    OK(cuMemPoolCreate(&made, &props));
    pools_.push_back(made);
    return made;
  }
  // Orders `later` after the current work of `first`.
  void Order(CUstream first, CUstream later) {
    CUevent event = Event();
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(later, event, 0));
  }

  template <typename T>
  CUdeviceptr Upload(const std::vector<T>& values) {
    const CUdeviceptr address = Buffer(values.size() * sizeof(T));
    OK(cuMemcpyHtoDAsync(address, values.data(), values.size() * sizeof(T), stream));
    return address;
  }
  template <typename T>
  std::vector<T> Download(CUdeviceptr address, size_t count) {
    std::vector<T> values(count);
    OK(cuMemcpyDtoHAsync(values.data(), address, count * sizeof(T), stream));
    OK(cuStreamSynchronize(stream));
    return values;
  }
  void Sync() { OK(cuStreamSynchronize(stream)); }

  static void* At(CUdeviceptr address, size_t offset = 0) {
    return reinterpret_cast<void*>(address + offset);
  }

  const int rank;
  const int ranks;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  ncclComm_t comm = nullptr;

 private:
  std::vector<CUdeviceptr> buffers_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUmemoryPool> pools_;
};

inline ncclUniqueId NewId() {
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  return id;
}

// Calls `body` for each rank, on its own thread and device.
inline void RunRanks(int ranks, const std::function<void(TestRank&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([=] {
      TestRank one(rank, ranks);
      body(one);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace meshift

#endif  // MESHIFT_TESTING_FAKE_GPU_TEST_RANK_H_
