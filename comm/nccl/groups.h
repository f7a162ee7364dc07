// The ncclComm_t handles of an NcclContext, and how to abort all of them at once while other
// threads are inside NCCL calls.
//
//   if (!groups->Begin(*group)) return Error();          // the communicator has ended
//   const ncclResult_t result = nccl.AllReduce(..., group->comm(), stream);
//   groups->End(*group, /*through=*/result != ncclInProgress);
//   ...
//   groups->Abort();                                     // any thread; returns at once
//
// A handle is removed from its group before its communicator is ended, so that no thread uses it
// afterwards. A call of a blocking communicator may still be inside NCCL then: the abort waits at
// most 100 ms for such calls, then ends them. While a communicator is being made, a thread of
// NCCL's may store its handle at any time until the call that makes it has finished, or until the
// abort of its parent has returned. The handle is read only after that.
//
// ncclCommAbort waits for three things: the ranks of the same host must call it too, work on the
// device must end, and graphs with captured operations must be destroyed. Kernels of another
// communicator may delay these, so all communicators that exist are aborted in one NCCL group, on a
// thread of its own. Those that are being made are aborted after it; Adopt() may wait for such an
// abort.
//
// Thread-safe. A lent communicator is never ended. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_GROUPS_H_
#define MESHIFT_COMM_NCCL_GROUPS_H_

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/side_thread.h"

namespace meshift {

// One ncclComm_t. Its NcclContext ends it, unless it is lent: then its owner does.
struct NcclGroup {
  // Constant once NcclContext has returned the group.
  bool lent = false;  // an external communicator, borrowed from a framework
  // Split from a parent that is neither blocking nor lent: a thread of NCCL's stores the handle.
  bool handle_stored_by_nccl_thread = false;
  bool blocking = false;  // calls return once launched; false also if unknown (lent)
  bool may_split = true;
  std::vector<int64_t> ranks;           // ascending world ranks
  int member = 0;                       // this rank's index in `ranks`
  std::string config;                   // NcclSplit::kind that it was made with
  std::string name;                     // for NCCL's tools; NCCL keeps the pointer
  std::shared_ptr<NcclGroup> splitter;  // the parent of its splits in place of itself; may be null
  CUdeviceptr barrier_memory = 0;       // 4 bytes for barriers, then 4 bytes per member

  // Guarded by NcclContext's lock.
  uint32_t kinds = 0;        // bit set of the kinds of calls launched so far
  int64_t calls = 0;         // launched so far, not counting captured ones
  uint64_t last_launch = 0;  // its number; 0: none

  // Null before Add() or Adopt(), and once a thread has taken the handle to end the communicator.
  ncclComm_t comm() const { return comm_.load(std::memory_order_acquire); }
  std::string ToString() const;  // "group {0,1,4}"

 private:
  friend class NcclGroups;
  std::atomic<ncclComm_t> comm_ = nullptr;
  ncclComm_t made_ = nullptr;  // where NCCL stores the handle of a new communicator
  // Guarded by the lock of the NcclGroups.
  bool making_ = false;
  bool busy_ = false;  // NCCL has not finished a call
};

class NcclGroups : public std::enable_shared_from_this<NcclGroups> {
 public:
  NcclGroups(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device)
      : nccl_(std::move(nccl)), device_(std::move(device)) {}

  // Adds a group whose communicator exists.
  void Add(const std::shared_ptr<NcclGroup>& group, ncclComm_t comm);
  // Adds a group whose communicator is to be made. Returns the address to give to NCCL for the new
  // handle; it is valid as long as the group.
  ncclComm_t* Make(const std::shared_ptr<NcclGroup>& group);
  // Gives the new handle to the group, after the call that makes it. False: the abort of all
  // communicators has begun, and ends this one too; the call may wait for that.
  bool Adopt(NcclGroup& group);
  // Removes a group whose communicator was not made. NCCL must not store its handle any more.
  void Drop(const NcclGroup& group);
  std::vector<std::shared_ptr<NcclGroup>> all() const;

  // Begin and End surround each NCCL call for a group. False: an abort has begun, or the
  // communicator has ended or is not made yet; then no call may be made, and End must not be
  // called.
  bool Begin(NcclGroup& group);
  // `through`: NCCL has finished with the call.
  void End(NcclGroup& group, bool through);
  // ncclCommGetAsyncError, after a call that NCCL has not finished. False: the communicator has
  // ended.
  bool Ask(NcclGroup& group, ncclResult_t* state);
  // `result` of a call for the group as a Status, with NCCL's last error text about it.
  absl::Status StatusOf(const NcclGroup& group, ncclResult_t result, const char* function) const;
  // The first asynchronous error of any group. Does not ask lent groups, or non-blocking ones with
  // an unfinished call. OK once an abort has begun.
  absl::Status AsyncErrors();

  // Takes the handle, for the caller to end the communicator; null: another thread has taken it.
  ncclComm_t Take(NcclGroup& group);
  // Starts to abort all communicators that are not lent. Any thread, any number of times.
  void Abort();
  // Calls Abort() and waits at most `patience` for it. True: NCCL has finished, so it puts nothing
  // on a stream any more. False: not yet, or there was nothing to abort, or NCCL refused.
  bool AwaitAbort(std::chrono::nanoseconds patience);

 private:
  bool AbortAll() MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);
  bool AbortTogether(const std::vector<ncclComm_t>& comms) const;

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<CudaDevice> device_;

  mutable Mutex mutex_;  // never held while NCCL may block
  std::condition_variable changed_;
  int calling_ MESHIFT_GUARDED_BY(mutex_) = 0;         // calls between Begin and End
  bool ended_ MESHIFT_GUARDED_BY(mutex_) = false;      // no call may begin
  bool collected_ MESHIFT_GUARDED_BY(mutex_) = false;  // the abort has taken the handles
  std::vector<std::shared_ptr<NcclGroup>> groups_ MESHIFT_GUARDED_BY(mutex_);  // in order of making
  std::shared_ptr<SideThread> aborting_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_GROUPS_H_
