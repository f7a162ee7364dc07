// What the NCCL engine of one rank and its communicators share: the group handles, the order of
// launches, waiting with a time-out, and the one failure that ends it all. Not a public header.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, job->Adopt(comm, ranks, member));
//   job->Launch(*root, {"all_gather", 8, DType::kF32}, stream, [&] {
//     return nccl.AllGather(...);
//   });
//
// Launches. Two kernels of different groups may wait for each other for ever if ranks start them in
// different orders, or if both do not fit on a device. So all ranks issue in one order, which is
// the callers' matter, and a launch waits, on the device, for the last but `max_in_flight` - 1
// before it: by default for the last one, which puts all collectives of a rank in one row.
//
// Failure. The first error of any group aborts all groups that this job has made, and is what every
// later call returns; the peers are told through the control channel, and their failures end this
// job likewise. Nobody waits for the abort but Close(), for a while, and a launch that fails while
// NCCL works on it: until the abort nobody else may touch its stream. A lent communicator is never
// aborted: calls on it are refused.
#ifndef MESHIFT_COMM_NCCL_JOB_H_
#define MESHIFT_COMM_NCCL_JOB_H_

#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/control/control.h"
#include "comm/engine/engine.h"
#include "comm/nccl/device.h"
#include "comm/nccl/ending_thread.h"
#include "comm/nccl/nccl_library.h"
#include "placement/dtype.h"

namespace meshift {

// One ncclComm_t. Owned by its NcclJob, but for a lent one.
struct NcclGroup {
  ncclComm_t comm = nullptr;  // null once aborted or destroyed
  bool lent = false;
  bool leaving = false;  // finalized, not destroyed yet
  bool may_split = true;
  std::vector<int64_t> ranks;  // ascending world ranks
  int member = 0;
  CUdeviceptr word = 0;          // 4 bytes for barriers
  int64_t calls = 0;             // launched so far, not counting captured ones
  uint64_t last_launch = 0;      // its number; 0: none
  CUevent last_event = nullptr;  // of last_launch, once the list of launches has lost it
  std::string ToString() const;  // "group {0,1,4}"
};

// What is launched, for messages.
struct CallText {
  const char* name = "";
  int64_t count = 0;
  DType dtype = DType::kU8;
};

// What a call of NCCL gave.
struct NcclResult {
  ncclResult_t code = ncclSuccess;
  const char* function = "";
};

struct NcclJobOptions {
  std::chrono::nanoseconds timeout{};        // of what runs
  std::chrono::nanoseconds setup_timeout{};  // of making and ending communicators
  int max_in_flight = 1;
};

class NcclJob {
 public:
  NcclJob(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device, int64_t rank,
          const NcclJobOptions& options);
  ~NcclJob() MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);

  const NcclLibrary& nccl() const { return *nccl_; }
  CudaDevice& device() const { return *device_; }
  int64_t rank() const { return rank_; }

  // Learns of peers' failures from now on, and tells them of its own. All of `ranks` call it.
  absl::Status Join(ControlChannel* control, absl::Span<const int64_t> ranks);

  // Runs `make`, which sets *comm, and waits until *comm can be used. The group is the job's.
  absl::StatusOr<std::shared_ptr<NcclGroup>> MakeRoot(
      const char* function, std::vector<int64_t> ranks,
      absl::FunctionRef<ncclResult_t(ncclComm_t* comm)> make);
  // A communicator that somebody else keeps.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Lend(ncclComm_t comm, bool may_split,
                                                  std::vector<int64_t> ranks, int member);
  // ncclCommSplit with this rank's color and key, once all work on `parent` is done. Null where
  // `color` is NCCL_SPLIT_NOCOLOR.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Split(NcclGroup& parent, int color, int key,
                                                   ncclConfig_t* config,
                                                   std::vector<int64_t> ranks);
  // Ends a group for which nothing will be launched any more. Waits for nobody: members need not
  // release their groups in one order. Not of a lent one.
  void Release(NcclGroup& group);

  // Registers `memory` with all members of `group`, once its work so far is done. Collective.
  absl::StatusOr<ncclWindow_t> RegisterWindow(NcclGroup& group, void* memory, int64_t bytes);
  // Once all work so far is done, for which NCCL may wait. Not collective. False where the group
  // has failed: then the memory may be in use for ever.
  bool DropWindow(NcclGroup& group, ncclWindow_t window);

  // Puts on `stream` what `issue` launches on `group`, in its place in the order of launches.
  absl::Status Launch(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                      const std::shared_ptr<DeviceStream>& stream,
                      absl::FunctionRef<NcclResult()> issue);

  // Makes later work on `stream` wait for the work so far on `before`, both being captured as part
  // of `capture`; nothing where that has ended for `before`.
  absl::Status ChainCaptured(const DeviceStream& before, CUstream stream, uint64_t capture);

  // Waits on the host until `event` is reached.
  absl::Status Await(CUevent event) MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);

  // Keeps the first error, ends all groups and tells the peers, unless one of them has `told` this
  // rank. Returns that first error. Any thread; waits for nobody.
  absl::Status Fail(const absl::Status& error, bool told = false);
  absl::Status Health() const {
    return failed_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // Why nothing may be put on streams or freed any more: NCCL is not through with a launch that has
  // failed, and may put it on its stream at any time. Else OK, after other failures as well.
  absl::Status MayUseStreams() const {
    return unsettled_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // Finalizes and destroys what this job has made. Collective.
  void Close();

 private:
  // A launch that is not known to be done, or old.
  struct LaunchRecord {
    uint64_t number = 0;  // 1, 2, ...; 0: none
    std::shared_ptr<NcclGroup> group;
    int64_t call = 0;  // of the group
    CallText text;
    std::shared_ptr<DeviceStream> stream;
    CUevent event = nullptr;
  };
  // Holds mutex_, and ends the groups when it lets go where the job has failed meanwhile.
  class Lock;
  static constexpr uint64_t kRemembered = 64;

  absl::Status Error() const;
  absl::Status SetError(const absl::Status& error, bool told);
  void EndGroups() MESHIFT_REQUIRES(mutex_);
  void TryEndGroups() MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);
  // Waits until `comm` is through with a call that gave `result`. An error but for bad arguments is
  // the job's.
  absl::Status AwaitComm(ncclComm_t comm, const NcclResult& result,
                         std::chrono::nanoseconds timeout, const NcclGroup& group)
      MESHIFT_REQUIRES(mutex_);
  // Waits, not for long, until a launch on `group` that has failed cannot come to its stream any
  // more.
  void Settle(const NcclGroup& group) MESHIFT_REQUIRES(mutex_);
  absl::Status MakeWord(NcclGroup& group);
  absl::Status Order(const DeviceStream& stream, uint64_t capture) MESHIFT_REQUIRES(mutex_);
  absl::Status Remember(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                        const std::shared_ptr<DeviceStream>& stream) MESHIFT_REQUIRES(mutex_);
  // Waits for the last launch on `group`; on any group.
  absl::Status AwaitLast(NcclGroup& group);
  absl::Status AwaitAll();
  void Finalize(NcclGroup& group) MESHIFT_REQUIRES(mutex_);
  // Begins to destroy the groups that have left. Whether any is still leaving or being destroyed.
  bool Sweep() MESHIFT_REQUIRES(mutex_);
  void Forget(NcclGroup& group) MESHIFT_REQUIRES(mutex_);
  // The first error that a group reports by itself.
  absl::Status AsyncErrors() MESHIFT_REQUIRES(mutex_);
  std::string FirstUnfinished() MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<CudaDevice> device_;
  const int64_t rank_;
  const NcclJobOptions options_;

  Mutex mutex_;  // one NCCL call at a time
  bool ended_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::unique_ptr<EndingThread> aborting_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<EndingThread>> ending_ MESHIFT_GUARDED_BY(mutex_);  // what was left
  std::vector<std::shared_ptr<NcclGroup>> groups_ MESHIFT_GUARDED_BY(mutex_);
  uint64_t launches_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::array<LaunchRecord, kRemembered> recent_ MESHIFT_GUARDED_BY(mutex_);
  // The streams of the last launches into the last graph that is or was captured.
  uint64_t capture_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<DeviceStream>> captured_ MESHIFT_GUARDED_BY(mutex_);

  std::atomic<bool> failed_{false};
  std::atomic<bool> unsettled_{false};
  mutable Mutex error_mutex_;
  absl::Status error_ MESHIFT_GUARDED_BY(error_mutex_);
  std::unique_ptr<ControlRoot> root_ MESHIFT_GUARDED_BY(error_mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_JOB_H_
