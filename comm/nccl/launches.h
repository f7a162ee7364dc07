// The launches of a job that are not known to have ended: what waits for them, and what has been
// under way for too long. With a lock of its own, so that others can look while a launch is inside
// NCCL.
//
//   MESHIFT_RETURN_IF_ERROR(launches.Open(group, {kind, 8, DType::kF32}, false, stream, 0));
//   ... NCCL's call ...
//   MESHIFT_RETURN_IF_ERROR(launches.Close());      // its number is launches.last()
//
// At most `in_flight` launches run at once: number n waits, on the device, for number n -
// in_flight, and for the last one of its group. So of each class of numbers modulo in_flight the
// first that has not ended is all that can run.
//
// Not a public header.
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

// What is launched, for messages.
struct CallText {
  CollectiveKind kind = CollectiveKind::kBarrier;
  int64_t count = 0;
  DType dtype = DType::kU8;
};

class Launches {
 public:
  // Makes its events; so many launches are remembered before it needs more.
  static constexpr uint64_t kFirstCapacity = 256;
  static absl::StatusOr<std::unique_ptr<Launches>> Create(std::shared_ptr<CudaDevice> device,
                                                          int in_flight);
  // Gives its events back. What has not ended is abandoned (CudaDevice::Abandon).
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // --- By one thread at a time, which makes the launches. Needs a scope of the device.

  // What goes to `stream` next is a launch of `group`. `setup`: it may make connections.
  // `capture`: the number of the capture that the stream is part of, or 0.
  absl::Status Open(const std::shared_ptr<NcclGroup>& group, const CallText& text, bool setup,
                    const std::shared_ptr<DeviceStream>& stream, uint64_t capture);
  // It is on its stream; one that was captured is forgotten.
  absl::Status Close();
  // It will not be on its stream.
  void Drop();
  uint64_t last() const { return last_; }  // 0: none; only those that were not captured

  // --- Any thread, with a scope of the device.

  // Whether number `number` has ended.
  absl::StatusOr<bool> IsDone(uint64_t number);
  // Of a launch that has not ended; valid until it has. Null: it has.
  CUevent EventOf(uint64_t number);

  // A launch that could run for longer than it may.
  struct Late {
    std::string text;  // "call 12 of group {0,1}, all_reduce of 8 f32 (32 bytes),"
    bool launched = false;
    int64_t limit_ns = 0;
  };
  // Called every so often: time counts from the first look at which a launch could run, all that
  // was on its stream before being done, and so the launch before it.
  absl::StatusOr<std::optional<Late>> Look(const Timeouts& timeouts);

 private:
  struct Record {
    std::shared_ptr<NcclGroup> group;
    int64_t call = 0;      // of the group
    uint64_t follows = 0;  // the launch of the group before it; 0: none
    CallText text;
    bool setup = false;
    std::shared_ptr<DeviceStream> stream;
    CUevent before = nullptr;  // reached when all is done that was on the stream before
    CUevent after = nullptr;
    int64_t since_ns = 0;  // it could run; 0: not yet, as far as anyone has looked
  };

  Launches(std::shared_ptr<CudaDevice> device, int in_flight)
      : device_(std::move(device)), in_flight_(static_cast<uint64_t>(in_flight)) {}
  absl::Status AddRecords(uint64_t count);
  Record& At(uint64_t number) MESHIFT_REQUIRES(mutex_) { return *ring_[number % ring_.size()]; }
  // Makes room for one more. Errors are the device's.
  absl::Status MakeRoom();
  absl::StatusOr<bool> HaveEnded(uint64_t first, uint64_t last) MESHIFT_REQUIRES(mutex_);
  static std::string TextOf(const Record& record);

  const std::shared_ptr<CudaDevice> device_;
  const uint64_t in_flight_;
  uint64_t last_ = 0;  // of the thread that launches

  Mutex mutex_;
  uint64_t first_ MESHIFT_GUARDED_BY(mutex_) = 1;  // the first that may not have ended
  uint64_t next_ MESHIFT_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Record>> ring_ MESHIFT_GUARDED_BY(mutex_);
  // The one that is inside NCCL; then it is number next_, unless it is captured.
  bool open_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool captured_ MESHIFT_GUARDED_BY(mutex_) = false;
  Record inside_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_LAUNCHES_H_
