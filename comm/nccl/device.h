// The CUDA device of one NCCL rank: its primary context, Meshift's kernels, pooled events, and
// memory from a pool, which usually does not wait for the device's work. Internal to comm/nccl.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto device, CudaDevice::Open(driver, 0, /*timed=*/false));
//   CudaDevice::Scope scope(*device);                 // its context is current on this thread
//   MESHIFT_ASSIGN_OR_RETURN(CUevent event, device->TakeEvent(/*timed=*/false));
//
// Methods that call CUDA need a Scope on the calling thread: all but Open(), the destructor, the
// accessors, GiveEvent(), FreeLater(), Abandon() and LeakAtEnd(). Thread-safe.
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

// A CUstream, and whether its Stream object still exists.
struct DeviceStream {
  CUstream handle = nullptr;
  std::atomic<bool> alive{true};
};

// Whether both are certainly one stream, so that their work is in one order. CUDA may give the
// handle of a destroyed stream to a later one, so equal handles are not enough. REQUIRES: the owner
// of a lent CUstream keeps it while its Stream object exists.
inline bool IsSameStream(const DeviceStream& before, const DeviceStream& now) {
  return before.handle == now.handle && (&before == &now || before.alive.load());
}

// A point in time on the device's clock (`event`) and on the host's steady clock (`ns`). It is the
// reference of the timed events of the following second.
struct ClockBase {
  CUevent event = nullptr;
  int64_t ns = 0;
};

// An external allocator for device memory, such as a framework's. Both empty: Meshift allocates
// from a CUDA memory pool of its own, or with cuMemAlloc if the device does not support pools. They
// may be called on any thread.
struct MemorySource {
  std::function<void*(int64_t bytes)> allocate;  // returns null when out of memory
  std::function<void(void* memory)> free;
};

class CudaDevice {
 public:
  // Retains the primary context of device `ordinal`. Events record times, for Event::ReachedNs(),
  // only if `timed`. INVALID_ARGUMENT if this process does not see such a device. Other errors are
  // those of CudaDriver and CudaKernels::Create().
  static absl::StatusOr<std::shared_ptr<CudaDevice>> Open(std::shared_ptr<const CudaDriver> driver,
                                                          int ordinal, bool timed,
                                                          MemorySource memory = {});
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Makes the context current on this thread for the Scope's lifetime, then restores the previous
  // one. Does not report errors of CUDA.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const CudaDriver* pushed_ = nullptr;  // null: the context was current already
  };

  const CudaDriver& driver() const { return *driver_; }
  const CudaKernels& kernels() const { return *kernels_; }
  CUstream utility() const { return utility_; }  // for set-up
  int ordinal() const { return ordinal_; }
  int num_sms() const { return num_sms_; }
  bool timed() const { return timed_; }

  // The id of the graph capture that `stream` is part of; 0: it is not being captured.
  absl::StatusOr<uint64_t> CaptureOf(CUstream stream) const;

  // Whether `event` is reached. Allowed while this or another thread captures a graph, in any
  // capture mode.
  absl::StatusOr<bool> IsReached(CUevent event) const;

  // Takes an event from the pool; its last use may still be pending. Return it with GiveEvent.
  absl::StatusOr<CUevent> TakeEvent(bool timed);
  void GiveEvent(CUevent event, bool timed);
  // The reference point for the next timed event; null if events are not timed. If CUDA fails, the
  // previous one, or null.
  std::shared_ptr<const ClockBase> Clock();
  // When `event` was reached, in ns of the host's steady clock, computed from the device's elapsed
  // time since `base`; -1: not yet, or unknown.
  int64_t ReachedNs(const ClockBase& base, CUevent event) const;

  // Memory aligned to 256 bytes (a MemorySource must give such memory). RESOURCE_EXHAUSTED if there
  // is not enough. Does not wait for work of the device: memory comes from a pool that keeps freed
  // memory. But a MemorySource may wait, and a device without memory pools uses cuMemAlloc and
  // cuMemFree, which may wait.
  absl::StatusOr<CUdeviceptr> Allocate(int64_t bytes);
  // Frees `memory` during a later Allocate once `event` (null: none) is reached, at the latest with
  // the device, unless that leaks its memory. Takes ownership of the event, which is not a timed
  // one. After Abandon() or LeakAtEnd() no Allocate frees memory.
  void FreeLater(CUdeviceptr memory, CUevent event);
  // The caller stops waiting for `event`, an event of the pool. The destructor waits at most 200 ms
  // for all such events. If one is still not reached, the memory, streams and kernels are leaked:
  // freeing them would wait for work that may never end.
  void Abandon(CUevent event);
  // Abandons all work on the utility stream.
  void AbandonUtility();
  // NCCL may still launch work later, so the device leaks its memory, streams and kernels when it
  // is destroyed.
  void LeakAtEnd() { leaks_at_end_.store(true); }

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
  // Whether all abandoned work has ended and no more can be launched. Waits at most 200 ms.
  bool IsQuiet() const MESHIFT_REQUIRES(mutex_);
  // Frees the memory in dead_ whose events are reached, or all of it if `all`. Without `all`, frees
  // nothing once work was abandoned.
  void FreeDead(bool all);

  const std::shared_ptr<const CudaDriver> driver_;
  const int ordinal_;
  const bool timed_;
  const MemorySource lender_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream utility_ = nullptr;
  // Null if there is a MemorySource, or the device does not support memory pools.
  CUmemoryPool pool_ = nullptr;
  CUstream memory_ = nullptr;  // orders the pool's allocations and frees; has no other work
  int num_sms_ = 0;
  std::atomic<bool> leaks_at_end_{false};
  std::unique_ptr<CudaKernels> kernels_;

  Mutex mutex_;
  std::array<std::vector<CUevent>, 2> events_ MESHIFT_GUARDED_BY(mutex_);  // by `timed`
  std::vector<Dead> dead_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<CUevent> abandoned_ MESHIFT_GUARDED_BY(mutex_);
  std::shared_ptr<const ClockBase> clock_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_DEVICE_H_
