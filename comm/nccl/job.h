// What the NCCL engine of one rank and its communicators share: the group handles, the order of
// launches, the watchdog, and the one failure that ends it all. Not a public header.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto root, job->MakeRoot("ncclCommInitRankConfig", ranks, make));
//   MESHIFT_ASSIGN_OR_RETURN(auto group, job->Split(root, {.ranks = ranks, ...}));
//   job->Launch(group, {CollectiveKind::kAllGather, 8, DType::kF32}, stream, [&] {
//     return NcclResult{nccl.AllGather(..., group->comm(), ...), "ncclAllGather"};
//   });
//
// Launches. Two kernels of different groups may wait for each other for ever if ranks start them in
// different orders, or if both do not fit on a device. So all ranks issue in one order, which is
// the callers' matter, and a launch waits, on the device, for the last but `max_in_flight` - 1
// before it.
//
// Time. Calls of a blocking communicator return once they are launched; a first call waits in NCCL
// for its peers, and others do while the device's queue is full. A watchdog looks at the launches
// every so often, also at one inside NCCL, and fails the job where one takes too long, whoever
// waits for it.
//
// Failure. The first error of any group aborts all groups that this job has made, and is what every
// later call returns; the peers are told through the control channel, and their failures end this
// job likewise. Nobody waits for the abort but Close(), for a while, and a launch that fails while
// NCCL works on it: until the abort nobody else may touch its stream. A lent communicator is never
// aborted: calls on it are refused.
#ifndef MESHIFT_COMM_NCCL_JOB_H_
#define MESHIFT_COMM_NCCL_JOB_H_

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

// What a call gave.
struct NcclResult {
  ncclResult_t code = ncclSuccess;
  const char* function = "";
};

// A group to be split from another.
struct NcclSplit {
  int color = NCCL_SPLIT_NOCOLOR;
  int key = 0;
  std::vector<int64_t> ranks;  // of the color; empty without one
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::string net_name;  // of the configuration; empty: none
  std::string name;      // likewise
  std::string kind;      // of the configuration, beside the ranks: groups of equal ones are one
};

struct NcclJobOptions {
  Timeouts timeouts;
  int max_in_flight = 1;
  // Groups are split so that their calls return once they are launched, and are connected at once.
  bool blocking_groups = true;
  // The error of somebody else's communicator, as far as he knows; may be empty. Any thread.
  std::function<absl::Status()> lender_error;
};

class NcclJob : public std::enable_shared_from_this<NcclJob> {
 public:
  static absl::StatusOr<std::shared_ptr<NcclJob>> Create(std::shared_ptr<const NcclLibrary> nccl,
                                                         std::shared_ptr<CudaDevice> device,
                                                         int64_t rank, NcclJobOptions options);
  ~NcclJob();

  const NcclLibrary& nccl() const { return *nccl_; }
  CudaDevice& device() const { return *device_; }
  int64_t rank() const { return rank_; }
  bool blocking_groups() const { return options_.blocking_groups; }
  Timeouts timeouts() const { return timeouts_.Get(); }
  absl::Status SetTimeouts(const Timeouts& timeouts) { return timeouts_.Set(timeouts); }

  // Learns of peers' failures from now on, and tells them of its own. All of `ranks` call it.
  absl::Status Join(ControlChannel* control, absl::Span<const int64_t> ranks);

  // Runs `make`, which sets *comm to a communicator that does not block, and waits until it can be
  // used. The group is the job's, to be split.
  absl::StatusOr<std::shared_ptr<NcclGroup>> MakeRoot(
      const char* function, std::vector<int64_t> ranks,
      absl::FunctionRef<ncclResult_t(ncclComm_t* comm)> make);
  // A communicator that somebody else keeps.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Lend(ncclComm_t comm, bool may_split,
                                                  std::vector<int64_t> ranks, int member);
  // Splits a group from `parent`, once all work on that is done, and connects its members. Where
  // this rank has a group of these ranks and this configuration already, as all its members have
  // then, it is that one. Null where the color is NCCL_SPLIT_NOCOLOR. Collective over the parent.
  absl::StatusOr<std::shared_ptr<NcclGroup>> Split(const std::shared_ptr<NcclGroup>& parent,
                                                   NcclSplit split);

  // Registers `memory` with all members of `group`, once its work so far is done. Collective.
  absl::StatusOr<ncclWindow_t> RegisterWindow(const std::shared_ptr<NcclGroup>& group, void* memory,
                                              int64_t bytes);
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

  // Waits on the host until `event` is reached, or for a while after a failure.
  absl::Status Await(CUevent event);

  // Keeps the first error, ends all groups and tells the peers, unless one of them has `told` this
  // rank. Returns that first error. Any thread; waits for nobody.
  absl::Status Fail(const absl::Status& error, bool told = false);
  absl::Status Health() const {
    return failed_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // When it failed, on the host's steady clock; INT64_MAX: it has not.
  int64_t failed_ns() const { return failed_ns_.load(std::memory_order_acquire); }
  // Why nothing may be put on streams or freed any more: NCCL is not through with a launch that has
  // failed, and may put it on its stream at any time. Else OK, after other failures as well.
  absl::Status MayUseStreams() const {
    return unsettled_.load(std::memory_order_acquire) ? Error() : absl::OkStatus();
  }
  // Ends what this job has made. Collective.
  void Close();

 private:
  enum class Purpose : uint8_t { kCall, kConnect };
  struct Splitting;

  NcclJob(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device, int64_t rank,
          NcclJobOptions options);
  absl::Status Error() const;
  // What the watchdog does.
  void Look();
  std::chrono::nanoseconds LookEvery() const;

  // One NCCL call for `group`, whose result may be in progress. `makes`: something of the group.
  absl::StatusOr<NcclResult> Call(NcclGroup& group, bool makes,
                                  absl::FunctionRef<NcclResult()> call);
  // Waits until NCCL is through with a call for `group` that gave `result`, so long at most (0: for
  // as long as nothing fails). An error but for bad arguments is the job's.
  absl::Status AwaitComm(NcclGroup& group, const NcclResult& result,
                         std::chrono::nanoseconds at_most);
  // Waits, not for long, until a call for `group` that has failed cannot go on any more. True: NCCL
  // is through.
  bool Settle(NcclGroup& group);
  // Runs `work`, in which NCCL may block, on a thread of its own, and waits until the time-out of
  // setting up.
  absl::Status RunAside(const char* function, const NcclGroup& group,
                        std::function<absl::Status()> work);
  absl::Status MakeChild(Splitting& splitting);
  absl::Status MakeWord(NcclGroup& group);
  absl::Status Connect(const std::shared_ptr<NcclGroup>& group);
  // This rank's group of the ranks and configuration, if it has one.
  std::shared_ptr<NcclGroup> Known(const NcclSplit& split) const;
  // As Launch, for one that holds the lock, or works for one that does.
  absl::Status LaunchNext(const std::shared_ptr<NcclGroup>& group, const CallText& text,
                          Purpose purpose, const std::shared_ptr<DeviceStream>& stream,
                          absl::FunctionRef<NcclResult()> issue);
  absl::Status ChainInCapture(const std::shared_ptr<DeviceStream>& stream, uint64_t capture);
  absl::Status AwaitUntil(absl::FunctionRef<absl::StatusOr<bool>()> done,
                          absl::FunctionRef<CUevent()> abandoned);
  absl::Status AwaitLaunch(uint64_t number);
  // Waits for the last launch on `group`; on any group.
  absl::Status AwaitLast(NcclGroup& group);
  absl::Status AwaitAll();
  void EndGroups();

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<CudaDevice> device_;
  const int64_t rank_;
  const NcclJobOptions options_;
  AtomicTimeouts timeouts_;
  const std::shared_ptr<NcclGroups> groups_;
  const std::shared_ptr<DeviceStream> utility_ = std::make_shared<DeviceStream>();

  Mutex mutex_;  // one NCCL call at a time, but for aborts; guards what follows
  std::unique_ptr<Launches> launches_;  // which has a lock of its own for those who only look
  // The streams of the last launches into the last graph that is or was captured.
  uint64_t capture_ = 0;
  std::vector<std::shared_ptr<DeviceStream>> captured_;

  std::atomic<bool> failed_{false};
  std::atomic<int64_t> failed_ns_{INT64_MAX};
  std::atomic<bool> unsettled_{false};
  mutable Mutex error_mutex_;
  absl::Status error_ MESHIFT_GUARDED_BY(error_mutex_);
  std::unique_ptr<ControlRoot> root_ MESHIFT_GUARDED_BY(error_mutex_);

  std::unique_ptr<Watchdog> watchdog_;  // goes first
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_JOB_H_
