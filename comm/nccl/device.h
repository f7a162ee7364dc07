// One CUDA device as a rank of the NCCL engine uses it: its primary context, Meshift's kernels,
// pooled events, and memory that is freed where it disturbs nobody. Not a public header.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto device, CudaDevice::Open(driver, 0, {}));
//   CudaDevice::Scope scope(*device);                 // its context is current on this thread
//   MESHIFT_ASSIGN_OR_RETURN(CUevent event, device->TakeEvent(/*timed=*/false));
//
// All methods but Open() and those of Scope need a Scope on the calling thread. Safe for concurrent
// use.
#ifndef MESHIFT_COMM_NCCL_DEVICE_H_
#define MESHIFT_COMM_NCCL_DEVICE_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/kernels.h"

namespace meshift {

// A CUstream, and whether there still is a Stream of it.
struct DeviceStream {
  CUstream handle = nullptr;
  std::atomic<bool> alive{true};
};

// Whether the work of both is in one order for sure: of a stream that is gone a later one may have
// the handle.
inline bool IsSame(const DeviceStream& before, const DeviceStream& now) {
  return before.handle == now.handle && (&before == &now || before.alive.load());
}

// A point in time on the device's clock and on the host's. Shared by events of about its age.
struct ClockBase {
  CUevent event = nullptr;
  int64_t ns = 0;
};

// Where somebody else's memory of the device comes from; both empty: from a pool of the device's.
struct MemorySource {
  std::function<void*(int64_t bytes)> allocate;  // null: there is no more
  std::function<void(void* memory)> free;
};

class CudaDevice {
 public:
  // Keeps the primary context of device `ordinal`. Events for Event::ReachedNs() take the time only
  // where `timed`.
  static absl::StatusOr<std::shared_ptr<CudaDevice>> Open(std::shared_ptr<const CudaDriver> driver,
                                                          int ordinal, bool timed,
                                                          MemorySource memory = {});
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Makes the context current for its own lifetime, and the one before it again afterwards.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const CudaDriver* pushed_ = nullptr;  // null: it was current already
  };

  const CudaDriver& driver() const { return *driver_; }
  const CudaKernels& kernels() const { return *kernels_; }
  CUstream utility() const { return utility_; }  // for set-up
  int ordinal() const { return ordinal_; }
  int num_sms() const { return num_sms_; }
  bool timed() const { return timed_; }

  // The number of the capture that `stream` is part of; 0: it is not being captured.
  absl::StatusOr<uint64_t> CaptureOf(CUstream stream) const;

  // Whether `event` is reached; may be asked while this or another thread captures, in any mode.
  absl::StatusOr<bool> IsReached(CUevent event) const;

  // An event of the pool; its last use may still be under way. Give it back.
  absl::StatusOr<CUevent> TakeEvent(bool timed);
  void GiveEvent(CUevent event, bool timed);
  // What to measure the next timed event by; null where that cannot be.
  std::shared_ptr<const ClockBase> Clock();
  // When `event` was reached on the host's steady clock, as far as the device tells; -1: not yet,
  // or unknown.
  int64_t ReachedNs(const ClockBase& base, CUevent event) const;

  // Aligned to 256 bytes. RESOURCE_EXHAUSTED where there is no more. Waits for no work of the
  // device: memory comes from a pool that keeps what is freed, or from who lends it.
  absl::StatusOr<CUdeviceptr> Allocate(int64_t bytes);
  // Frees `memory` at a later Allocate, once `event` (null: none) is reached, or with the device.
  // Takes the event, which is not timed.
  void FreeLater(CUdeviceptr memory, CUevent event);
  // Nobody waits for `event`, of the pool, any longer. Where it is not reached when the device is
  // given up, its memory, streams and kernels are left to the process: freeing them would wait for
  // work that may never end.
  void Abandon(CUevent event);
  // As Abandon, for whatever was put on the utility stream.
  void AbandonUtility();
  // As Abandon, for work that may yet come.
  void Leave() { left_.store(true); }

 private:
  struct Dead {
    CUdeviceptr memory;
    CUevent event;
  };

  CudaDevice(std::shared_ptr<const CudaDriver> driver, int ordinal, bool timed, MemorySource memory)
      : driver_(std::move(driver)), ordinal_(ordinal), timed_(timed), lender_(std::move(memory)) {}
  absl::Status MakePool();
  absl::StatusOr<CUdeviceptr> AllocateNow(int64_t bytes);
  void FreeNow(CUdeviceptr memory);
  // Whether what was abandoned has ended after all, and no more can come.
  bool IsQuiet() const MESHIFT_REQUIRES(mutex_);
  // Frees what may be freed; all of it where `all`.
  void FreeDead(bool all);

  const std::shared_ptr<const CudaDriver> driver_;
  const int ordinal_;
  const bool timed_;
  const MemorySource lender_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream utility_ = nullptr;
  // Of the pool: memory is allocated and freed in this stream's order, and nothing else is on it.
  // Null where there is a lender, or the device has no pools.
  CUmemoryPool pool_ = nullptr;
  CUstream memory_ = nullptr;
  int num_sms_ = 0;
  std::atomic<bool> left_{false};
  std::unique_ptr<CudaKernels> kernels_;

  Mutex mutex_;
  std::array<std::vector<CUevent>, 2> events_ MESHIFT_GUARDED_BY(mutex_);  // by `timed`
  std::vector<Dead> dead_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<CUevent> abandoned_ MESHIFT_GUARDED_BY(mutex_);
  std::shared_ptr<const ClockBase> clock_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_DEVICE_H_
