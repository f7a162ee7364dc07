// State that the NCCL engine of one rank and its communicators share: the group handles, the order
// of launches, the watchdog, and the first error. Any thread may call it; Close() is the last call.
// Internal to comm/nccl.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, context->MakeRoot("ncclCommInitRankConfig", ranks, make));
//   MESHIFT_ASSIGN_OR_RETURN(auto group, context->Split(root, {.ranks = ranks, ...}));
//   context->Launch(group, {CollectiveKind::kAllGather, 8, DType::kF32}, stream, [&] {
//     return NcclResult{nccl.AllGather(..., group->comm(), ...), "ncclAllGather"};
//   });
//
// Launches. Two kernels of different groups can deadlock if ranks start them in different orders,
// or if they do not fit on a device together. Thus callers on all ranks must issue calls in one
// order, and launch number n waits, on the device, for launch n - `max_in_flight`. A launch that is
// captured in a CUDA graph waits only for launches of its capture, and has no time-out once it is
// captured. A lock orders the launches of several threads.
//
// Time. On a communicator that NCCL calls blocking, a call returns when its kernel is launched, not
// when it has ended. A first call waits in NCCL for its peers; any call waits while the device's
// queue is full. A watchdog thread periodically checks the launches, also one that is still inside
// NCCL. It fails the context if a launch takes too long, whether a caller waits for it or not.
//
// Failure. The first error of any group aborts all groups that this context has made. Later
// launches and waits return that error. If NCCL refuses arguments but can still use the
// communicator, only the caller gets the error, and the context does not fail. After Join() the
// control channel reports the error to the peers, and their failures end this context in the same
// way. A lent communicator is never aborted; calls on it are refused.
//
// After a failure a thread inside an NCCL call waits until NCCL returns, and so do the threads that
// wait for its lock. Other waits are limited (shutdown_times.h):
// - A wait for work on the device takes at most kGrace.
// - A launch that fails while NCCL works on it waits for the abort, at most kSettleGrace: no other
//   work may use its stream before.
// - Split() and RegisterWindow() wait at most kSettleGrace + kGrace for NCCL.
// - Close() waits at most kPatience for NCCL's destroy calls, and as long for its abort calls.
//
// Errors. DEADLINE_EXCEEDED: a call or launch takes longer than its time-out. FAILED_PRECONDITION:
// Close() has ended the communicators, or NCCL returns ncclInvalidUsage. Other errors come from
// NCCL, the driver, a peer, the lender of a communicator, or a caller of Fail().
#ifndef MESHIFT_COMM_NCCL_CONTEXT_H_
#define MESHIFT_COMM_NCCL_CONTEXT_H_

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/launches.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/watchdog.h"
#include "meshift/bootstrap.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

// The result of an NCCL call, and the function's name for messages.
struct NcclResult {
  ncclResult_t code = ncclSuccess;
  const char* function = "";
};

// The arguments of ncclCommSplit.
struct NcclSplit {
  int color = NCCL_SPLIT_NOCOLOR;
  int key = 0;                 // the member number in the new group
  std::vector<int64_t> ranks;  // of the color, ascending; empty without a color
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::string net_name;  // config.netName; empty: not set
  std::string name;      // config.commName; empty: not set
  std::string kind;      // identifies the configuration: groups of equal ranks and kind are shared
};

struct NcclContextOptions {
  Timeouts timeouts;
  int max_in_flight = 1;  // launches that may run at once; at least 1
  // Split groups are blocking communicators, whose calls return once launched, and Split connects
  // their members. If false, NCCL makes each call on a thread of its own and the caller polls.
  bool blocking_groups = true;
  // Returns the error of a lent communicator, as its owner knows it; may be empty. Called from any
  // thread.
  std::function<absl::Status()> lender_error;
};

class NcclContext : public std::enable_shared_from_this<NcclContext> {
 public:
  static absl::StatusOr<std::shared_ptr<NcclContext>> Create(
      std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device, int64_t rank,
      NcclContextOptions options);
  ~NcclContext();

  const NcclLibrary& nccl() const { return *nccl_; }
  CudaDevice& device() const { return *device_; }
  int64_t rank() const { return rank_; }
  bool blocking_groups() const { return options_.blocking_groups; }
  Timeouts timeouts() const { return timeouts_.Get(); }
  absl::Status SetTimeouts(const Timeouts& timeouts) { return timeouts_.Set(timeouts); }

  // Exchanges failures with `ranks` through `control` from now on. All of `ranks` call it.
  absl::Status Join(ControlChannel* control, absl::Span<const int64_t> ranks);

  // Runs `make`, which sets *comm to a non-blocking communicator, and waits until it is ready, at
  // most for the set-up time-out. Collective over `ranks`, which ascend and include this rank. The
  // context owns the group. With blocking_groups it has no memory for barriers: only split it.
  absl::StatusOr<std::shared_ptr<NcclGroup>> MakeRoot(
      const char* function, std::vector<int64_t> ranks,
      absl::FunctionRef<ncclResult_t(ncclComm_t* comm)> make);
  // A group of an external communicator, which its owner keeps.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Lend(ncclComm_t comm, bool may_split,
                                                  std::vector<int64_t> ranks, int member);
  // Waits for all work on `parent`, splits a group from it, and with blocking_groups connects the
  // members for small all-reduces and all-gathers. If this rank already has a group of these ranks
  // and this kind, returns that one (all its members have it). Null if the color is
  // NCCL_SPLIT_NOCOLOR. Collective over the parent. Fails the context after the set-up time-out.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Split(const std::shared_ptr<NcclGroup>& parent,
                                                   NcclSplit split);

  // Waits for the group's work so far, then registers `memory` as a symmetric window. Null: NCCL
  // has no symmetric memory for this group. Collective. Fails the context after the set-up
  // time-out.
  absl::StatusOr<ncclWindow_t> RegisterWindow(const std::shared_ptr<NcclGroup>& group, void* memory,
                                              int64_t bytes);
  // Waits for all work of all groups, then deregisters the window. Not collective. False if the
  // context has failed, the communicator has ended, or NCCL refuses: then the memory may be in use
  // for ever. Does nothing more for a null window.
  bool DropWindow(NcclGroup& group, ncclWindow_t window);

  // Runs `issue`, which makes one NCCL call on `group` and `stream`, as the next launch in order.
  absl::Status Launch(const std::shared_ptr<NcclGroup>& group, const LaunchText& text,
                      const std::shared_ptr<DeviceStream>& stream,
                      absl::FunctionRef<NcclResult()> issue);

  // Makes later work on `stream` wait for the work so far on `before`, within `capture`. Does
  // nothing if `before` is the same stream or no longer part of that capture.
  absl::Status ChainCaptured(const DeviceStream& before, CUstream stream, uint64_t capture);

  // Waits on the host until `event` is reached; after a failure, for 300 ms at most. Returns the
  // context's error even if the event is reached. Has no time-out of its own.
  absl::Status Await(CUevent event);

  // Keeps the first error, starts to abort all groups, and reports the error to the peers, unless
  // it comes from a peer (`told`). Returns the first error. The report takes at most half a second.
  absl::Status Fail(const absl::Status& error, bool told = false);
  absl::Status Health() const {
    return failed_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // When it failed, in ns of the host's steady clock; INT64_MAX: it has not.
  int64_t failed_ns() const { return failed_ns_.load(std::memory_order_acquire); }
  // An error if streams must not be used nor memory freed any more: NCCL has not finished with a
  // failed launch, split or registration, and may use its stream or memory at any time. Else OK,
  // also after other failures.
  absl::Status MayUseStreams() const {
    return unsettled_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // Waits for all work, then ends all communicators that this context has made. Collective: each
  // step waits for peers, at most for the set-up time-out.
  void Close();

 private:
  enum class Purpose : uint8_t { kCall, kConnect };
  struct Splitting;

  NcclContext(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device,
              int64_t rank, NcclContextOptions options);
  absl::Status Error() const;
  // The watchdog's check, and its interval: a tenth of the shorter time-out, 1 to 200 ms.
  void CheckForErrors();
  std::chrono::nanoseconds CheckInterval() const;

  // Makes one NCCL call for `group`; the result may be ncclInProgress. `makes`: the call makes or
  // ends a communicator or window, so its state must be asked even after success.
  absl::StatusOr<NcclResult> Call(NcclGroup& group, bool makes,
                                  absl::FunctionRef<NcclResult()> call);
  // Waits until NCCL has finished a call for `group` that returned `result`, for `at_most` (0:
  // until the context fails). Any error fails the context, except bad arguments if the communicator
  // can still be used.
  absl::Status AwaitComm(NcclGroup& group, const NcclResult& result,
                         std::chrono::nanoseconds at_most);
  // Waits at most 5 s until NCCL has stopped working on a failed call for `group`. True: it has.
  bool Settle(NcclGroup& group);
  // Runs `work`, in which NCCL may block, on a thread of its own, and waits for it. Fails the
  // context after the set-up time-out.
  absl::Status RunAside(const char* function, const NcclGroup& group,
                        std::function<absl::Status()> work);
  absl::Status MakeChild(Splitting& splitting);
  absl::Status AllocateBarrierMemory(NcclGroup& group);
  absl::Status Connect(const std::shared_ptr<NcclGroup>& group);
  // This rank's existing group of the same ranks and kind; null if there is none.
  std::shared_ptr<NcclGroup> FindGroup(const NcclSplit& split) const;
  // As Launch; the caller holds the lock, or works for a thread that holds it.
  absl::Status LaunchNext(const std::shared_ptr<NcclGroup>& group, const LaunchText& text,
                          Purpose purpose, const std::shared_ptr<DeviceStream>& stream,
                          absl::FunctionRef<NcclResult()> issue);
  absl::Status ChainInCapture(const std::shared_ptr<DeviceStream>& stream, uint64_t capture);
  absl::Status AwaitUntil(absl::FunctionRef<absl::StatusOr<bool>()> done,
                          absl::FunctionRef<CUevent()> abandoned);
  absl::Status AwaitLaunch(uint64_t number);
  absl::Status AwaitLast(NcclGroup& group);  // waits for the last launch on the group
  absl::Status AwaitAll();                   // the same for every group
  void EndGroups();

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<CudaDevice> device_;
  const int64_t rank_;
  const NcclContextOptions options_;
  AtomicTimeouts timeouts_;
  const std::shared_ptr<NcclGroups> groups_;
  const std::shared_ptr<DeviceStream> utility_ = std::make_shared<DeviceStream>();

  // Held during NCCL calls on communicators, except aborts and queries of errors. Guards launches_,
  // capture_, captured_ and the counters of the groups.
  Mutex mutex_;
  std::unique_ptr<Launches> launches_;  // has a lock of its own, for readers
  // The last capture that had launches, and the streams of its last launches, max_in_flight at
  // most.
  uint64_t capture_ = 0;
  std::vector<std::shared_ptr<DeviceStream>> captured_;

  std::atomic<bool> failed_{false};
  std::atomic<int64_t> failed_ns_{INT64_MAX};
  std::atomic<bool> unsettled_{false};
  mutable Mutex error_mutex_;
  absl::Status error_ MESHIFT_GUARDED_BY(error_mutex_);
  std::unique_ptr<ControlRoot> root_ MESHIFT_GUARDED_BY(error_mutex_);

  std::unique_ptr<Watchdog> watchdog_;  // destroyed first
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_CONTEXT_H_
