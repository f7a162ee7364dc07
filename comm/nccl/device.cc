#include "comm/nccl/device.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/kernels.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Events that are created with the device, for remembered launches and runs in flight. More are
// created on demand.
constexpr int kFirstEvents = 128;
// A ClockBase is replaced after this time: cuEventElapsedTime gives milliseconds as a float, which
// is exact to about 100 ns within a second.
constexpr int64_t kClockNs = 1000000000;
// How long the destructor waits for abandoned work.
constexpr int64_t kLastWaitNs = 200000000;

int64_t HostNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CudaDevice::Scope::Scope(const CudaDevice& device) {
  CUcontext current = nullptr;
  if (device.driver_->CtxGetCurrent(&current).ok() && current == device.context_) return;
  if (device.driver_->CtxPushCurrent(device.context_).ok()) pushed_ = device.driver_.get();
}

CudaDevice::Scope::~Scope() {
  CUcontext popped = nullptr;
  if (pushed_ != nullptr) pushed_->CtxPopCurrent(&popped).IgnoreError();
}

absl::StatusOr<std::shared_ptr<CudaDevice>> CudaDevice::Open(
    std::shared_ptr<const CudaDriver> driver, int ordinal, bool timed, MemorySource memory) {
  MESHIFT_ASSIGN_OR_RETURN(const int count, driver->InitAndCountDevices());
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgument("CUDA device {} is not one of the {} that this process sees", ordinal,
                           count);
  }
  auto device = std::shared_ptr<CudaDevice>(
      new CudaDevice(std::move(driver), ordinal, timed, std::move(memory)));
  const CudaDriver& cuda = *device->driver_;
  MESHIFT_RETURN_IF_ERROR(cuda.DeviceGet(&device->device_, ordinal));
  MESHIFT_RETURN_IF_ERROR(cuda.DevicePrimaryCtxRetain(&device->context_, device->device_));
  MESHIFT_RETURN_IF_ERROR(cuda.DeviceGetAttribute(
      &device->num_sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->device_));
  const Scope scope(*device);
  MESHIFT_ASSIGN_OR_RETURN(device->kernels_, CudaKernels::Create(device->driver_));
  MESHIFT_RETURN_IF_ERROR(cuda.StreamCreate(&device->utility_, CU_STREAM_NON_BLOCKING));
  if (!device->lender_.allocate) MESHIFT_RETURN_IF_ERROR(device->MakePool());
  for (const bool is_timed : {false, timed}) {
    std::vector<CUevent> events;
    for (int i = 0; i < kFirstEvents; ++i) {
      MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device->TakeEvent(is_timed));
      events.push_back(event);
    }
    for (const CUevent event : events) device->GiveEvent(event, is_timed);
  }
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const Scope scope(*this);
    if (!IsQuiet()) {
      static_cast<void>(kernels_.release());
      clock_ = nullptr;
      return;
    }
    FreeDead(/*all=*/true);
    clock_ = nullptr;  // gives its event back
    for (const std::vector<CUevent>& events : events_) {
      for (const CUevent event : events) driver_->EventDestroy(event).IgnoreError();
    }
    if (utility_ != nullptr) driver_->StreamDestroy(utility_).IgnoreError();
    if (memory_ != nullptr) {
      driver_->StreamSynchronize(memory_).IgnoreError();  // only frees are pending
      driver_->StreamDestroy(memory_).IgnoreError();
    }
    if (pool_ != nullptr) driver_->MemPoolDestroy(pool_).IgnoreError();
    kernels_ = nullptr;
  }
  driver_->DevicePrimaryCtxRelease(device_).IgnoreError();
}

bool CudaDevice::IsQuiet() const {
  if (leaks_at_end_.load()) return false;
  const int64_t give_up = HostNs() + kLastWaitNs;
  for (const CUevent event : abandoned_) {
    while (true) {
      const absl::StatusOr<bool> done = IsReached(event);
      if (!done.ok()) return false;
      if (*done) break;
      if (HostNs() > give_up) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

absl::StatusOr<uint64_t> CudaDevice::CaptureOf(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  MESHIFT_RETURN_IF_ERROR(driver_->StreamIsCapturing(stream, &status));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]] {
    return 0;
  }
  cuuint64_t id = 0;
  MESHIFT_RETURN_IF_ERROR(
      driver_->StreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  return id;
}

absl::StatusOr<bool> CudaDevice::IsReached(CUevent event) const {
  // CUDA counts a query as an unsafe call: it invalidates captures of this thread, and those in
  // global mode of any thread. Relaxed mode avoids that.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MESHIFT_RETURN_IF_ERROR(driver_->ThreadExchangeStreamCaptureMode(&mode));
  absl::StatusOr<bool> reached = driver_->EventDone(event);
  MESHIFT_RETURN_IF_ERROR(driver_->ThreadExchangeStreamCaptureMode(&mode));
  return reached;
}

absl::StatusOr<CUevent> CudaDevice::TakeEvent(bool timed) {
  {
    const MutexLock lock(mutex_);
    std::vector<CUevent>& events = events_[timed ? 1 : 0];
    if (!events.empty()) {
      const CUevent event = events.back();
      events.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  const unsigned int flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  MESHIFT_RETURN_IF_ERROR(driver_->EventCreate(&event, flags));
  return event;
}

void CudaDevice::GiveEvent(CUevent event, bool timed) {
  const MutexLock lock(mutex_);
  events_[timed ? 1 : 0].push_back(event);
}

std::shared_ptr<const ClockBase> CudaDevice::Clock() {
  if (!timed_) return nullptr;
  const int64_t now = HostNs();
  std::shared_ptr<const ClockBase> last;
  {
    const MutexLock lock(mutex_);
    last = clock_;
  }
  if (last != nullptr && now - last->ns < kClockNs) return last;
  const absl::StatusOr<CUevent> event = TakeEvent(/*timed=*/true);
  if (!event.ok() || !driver_->EventRecord(*event, utility_).ok()) return last;
  // Events that refer to it do not outlive the device, so `this` stays valid.
  auto next =
      std::shared_ptr<const ClockBase>(new ClockBase{*event, now}, [this](const ClockBase* base) {
        GiveEvent(base->event, /*timed=*/true);
        delete base;
      });
  {
    const MutexLock lock(mutex_);
    clock_.swap(next);
    last = clock_;
  }
  return last;  // `next` now holds the previous base, which is released without the lock
}

int64_t CudaDevice::ReachedNs(const ClockBase& base, CUevent event) const {
  const absl::StatusOr<bool> done = IsReached(event);
  if (!done.ok() || !*done) return -1;
  const absl::StatusOr<float> ms = driver_->ElapsedMs(base.event, event);
  if (!ms.ok()) return -1;
  // The base is recorded on another stream, so it may be reached a little later than the event.
  return std::max<int64_t>(0, base.ns + static_cast<int64_t>(static_cast<double>(*ms) * 1e6));
}

absl::Status CudaDevice::MakePool() {
  int has_pools = 0;
  MESHIFT_RETURN_IF_ERROR(
      driver_->DeviceGetAttribute(&has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device_));
  if (has_pools == 0) return absl::OkStatus();
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  MESHIFT_RETURN_IF_ERROR(driver_->MemPoolCreate(&pool_, &props));
  // Freed memory stays in the pool: returning it to the system may wait for the device.
  cuuint64_t all = std::numeric_limits<cuuint64_t>::max();
  MESHIFT_RETURN_IF_ERROR(driver_->MemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                                       static_cast<void*>(&all)));
  return driver_->StreamCreate(&memory_, CU_STREAM_NON_BLOCKING);
}

absl::StatusOr<CUdeviceptr> CudaDevice::AllocateNow(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  CUdeviceptr memory = 0;
  if (lender_.allocate) {
    void* const lent = lender_.allocate(static_cast<int64_t>(size));
    if (lent == nullptr) return absl::ResourceExhaustedError("the lender's allocate returned null");
    return reinterpret_cast<CUdeviceptr>(lent);
  }
  if (pool_ == nullptr) {
    MESHIFT_RETURN_IF_ERROR(driver_->MemAlloc(&memory, size));
    return memory;
  }
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, TakeEvent(/*timed=*/false));
  absl::Status status = driver_->MemAllocFromPoolAsync(&memory, size, pool_, memory_);
  if (status.ok()) status = driver_->EventRecord(event, memory_);
  // Only frees precede it on this stream, so it completes almost at once.
  while (status.ok()) {
    const absl::StatusOr<bool> there = IsReached(event);
    status = there.status();
    if (there.ok() && *there) break;
    sched_yield();
  }
  GiveEvent(event, /*timed=*/false);
  if (!status.ok()) return status;
  return memory;
}

absl::StatusOr<CUdeviceptr> CudaDevice::Allocate(int64_t bytes) {
  FreeDead(/*all=*/false);
  absl::StatusOr<CUdeviceptr> memory = AllocateNow(bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(),
                    fmt::format("device {} cannot allocate {} bytes", ordinal_, bytes));
  }
  return memory;
}

void CudaDevice::FreeNow(CUdeviceptr memory) {
  if (lender_.free) {
    lender_.free(reinterpret_cast<void*>(memory));
  } else if (pool_ != nullptr) {
    driver_->MemFreeAsync(memory, memory_).IgnoreError();
  } else {
    driver_->MemFree(memory).IgnoreError();
  }
}

void CudaDevice::FreeLater(CUdeviceptr memory, CUevent event) {
  const MutexLock lock(mutex_);
  dead_.push_back({memory, event});
}

void CudaDevice::Abandon(CUevent event) {
  const MutexLock lock(mutex_);
  abandoned_.push_back(event);
}

void CudaDevice::AbandonUtility() {
  const absl::StatusOr<CUevent> event = TakeEvent(/*timed=*/false);
  if (!event.ok()) return;
  driver_->EventRecord(*event, utility_).IgnoreError();
  Abandon(*event);
  GiveEvent(*event, /*timed=*/false);
}

void CudaDevice::FreeDead(bool all) {
  std::vector<Dead> dead;
  {
    const MutexLock lock(mutex_);
    // Abandoned work may still use the memory.
    if (!all && (leaks_at_end_.load() || !abandoned_.empty())) return;
    dead.swap(dead_);
  }
  for (const Dead& d : dead) {
    if (d.event != nullptr && !all) {
      const absl::StatusOr<bool> done = IsReached(d.event);
      if (done.ok() && !*done) {
        FreeLater(d.memory, d.event);
        continue;
      }
    }
    FreeNow(d.memory);
    if (d.event != nullptr) GiveEvent(d.event, /*timed=*/false);
  }
}

}  // namespace meshift
