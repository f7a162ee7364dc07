// Remembers the launches of an NcclContext that may not have ended: makes later launches wait for
// them on the device, and finds one that takes too long. Has a lock of its own, so that the
// watchdog can check while a launch is inside NCCL.
//
//   MESHIFT_RETURN_IF_ERROR(launches.Open(group, text, /*setup=*/false, stream, /*capture=*/0));
//   ... NCCL's call ...
//   MESHIFT_RETURN_IF_ERROR(launches.Close());      // its number is launches.last()
//
// At most `in_flight` launches run at once, not counting captured ones. On the device, launch n
// waits for launch n - in_flight and for the last launch of its group. So among the launches whose
// numbers are equal modulo in_flight, only the first that has not ended can run.
//
// Launches captured into a CUDA graph are neither numbered nor remembered. CheckTimeouts() sees one
// only while it is inside NCCL. Errors are the driver's. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_LAUNCHES_H_
#define MESHIFT_COMM_NCCL_LAUNCHES_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/engine/collective_kind.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

// Says in messages what a launch does.
struct LaunchText {
  CollectiveKind kind = CollectiveKind::kBarrier;
  int64_t count = 0;  // elements
  DType dtype = DType::kU8;
};

class Launches {
 public:
  static constexpr uint64_t kFirstCapacity = 256;  // launches; grows on demand
  // Makes the events for kFirstCapacity launches. Needs a scope of the device. REQUIRES: in_flight
  // >= 1.
  static absl::StatusOr<std::unique_ptr<Launches>> Create(std::shared_ptr<CudaDevice> device,
                                                          int in_flight);
  // Returns its events to the device. Launches that are not known to have ended are abandoned
  // (CudaDevice::Abandon).
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // --- Called by the thread that makes the launches, one at a time. Needs a scope of the device.

  // The next work on `stream` will be a launch of `group`. `setup`: NCCL may connect members, so
  // the set-up time-out counts. `capture`: the id of the capture that the stream is part of, or 0.
  absl::Status Open(const std::shared_ptr<NcclGroup>& group, const LaunchText& text, bool setup,
                    const std::shared_ptr<DeviceStream>& stream, uint64_t capture);
  // The opened launch is on its stream. A captured one is forgotten, and so is any one after an
  // error.
  absl::Status Close();
  // The opened launch has failed and will not be on its stream.
  void Drop();
  // The number of the last launch, not counting captured ones; 0: none.
  uint64_t last() const { return last_; }

  // --- Any thread, with a scope of the device.

  // Whether launch `number` has ended. REQUIRES: it is not after last().
  absl::StatusOr<bool> IsDone(uint64_t number);
  // The event at the end of launch `number`, valid until it has ended; null if it is known to have
  // ended.
  CUevent EventOf(uint64_t number);

  // A launch that has exceeded its time-out.
  struct Late {
    std::string text;       // "call 12 of group {0,1}, all_reduce of 8 f32 (32 bytes),"
    bool launched = false;  // else it is still inside NCCL
    int64_t limit_ns = 0;   // the time-out
  };
  // Called periodically. A launch's time counts from the first CheckTimeouts() at which it could
  // run: the earlier work of its stream, the previous launch of its group and the launch
  // `in_flight` numbers before it have ended. A launch inside NCCL does not wait for its stream or
  // its group: its time counts once the launches a multiple of `in_flight` numbers before it have
  // ended, or at once if it is captured.
  absl::StatusOr<std::optional<Late>> CheckTimeouts(const Timeouts& timeouts);

 private:
  struct Record {
    std::shared_ptr<NcclGroup> group;
    int64_t call = 0;      // its number in the group
    uint64_t follows = 0;  // the previous launch of the group; 0: none
    LaunchText text;
    bool setup = false;
    std::shared_ptr<DeviceStream> stream;
    CUevent before = nullptr;  // reached when the stream's earlier work has ended
    CUevent after = nullptr;   // reached when the launch has ended
    // The first CheckTimeouts() at which it could run, steady clock; 0: none yet.
    int64_t since_ns = 0;
  };

  Launches(std::shared_ptr<CudaDevice> device, int in_flight)
      : device_(std::move(device)), in_flight_(static_cast<uint64_t>(in_flight)) {}
  absl::Status AddRecords(uint64_t count);
  Record& At(uint64_t number) MESHIFT_REQUIRES(mutex_) { return *ring_[number % ring_.size()]; }
  // Makes room in ring_ for one more. Errors are the device's.
  absl::Status MakeRoom();
  absl::StatusOr<bool> HaveEnded(uint64_t first, uint64_t last) MESHIFT_REQUIRES(mutex_);
  static std::string TextOf(const Record& record);

  const std::shared_ptr<CudaDevice> device_;
  const uint64_t in_flight_;
  uint64_t last_ = 0;  // used by the launching thread only

  Mutex mutex_;
  uint64_t first_ MESHIFT_GUARDED_BY(mutex_) = 1;  // the first that may not have ended
  uint64_t next_ MESHIFT_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Record>> ring_ MESHIFT_GUARDED_BY(mutex_);  // by number modulo size
  // The launch between Open and Close; its number is next_, unless it is captured.
  bool open_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool captured_ MESHIFT_GUARDED_BY(mutex_) = false;
  Record inside_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_LAUNCHES_H_
