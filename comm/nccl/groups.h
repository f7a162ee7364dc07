// The communicators of a job: their handles, and how all of them end at once while other threads
// are inside NCCL.
//
//   if (!groups->Begin(*group)) return Error();          // all of them are ended
//   const ncclResult_t result = nccl.AllReduce(..., group->comm(), stream);
//   groups->End(*group, /*through=*/result != ncclInProgress);
//   ...
//   groups->Abort();                                     // any thread; waits for nobody
//
// Whoever has a handle may use it, so it is taken from its group before the communicator is ended:
// afterwards nobody asks it for its state. A call of a communicator that blocks may be inside NCCL
// then; the abort lets short calls come out first, and ends those that do not. A communicator that
// is being made is stored by a thread of NCCL's, at any time until the call that makes it is
// through or its parent's abort has returned: only then it is looked for.
//
// ncclCommAbort waits for the ranks of the same host to call it too, for work of the device, and
// for graphs with captured operations to be destroyed. What it waits for may be held up by kernels
// of another communicator; so all are aborted in one NCCL group, on a thread of its own.
//
// Not a public header.
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

// One ncclComm_t. Owned by its NcclGroups, but for a lent one.
struct NcclGroup {
  // Set before others see the group.
  bool lent = false;
  // Split from one that the abort of all aborts, and does not block: NCCL stores it by itself.
  bool made_aside = false;
  bool blocking = false;  // its calls return once they are launched; false as well: it is not known
  bool may_split = true;
  std::vector<int64_t> ranks;  // ascending world ranks
  int member = 0;
  std::string config;                   // by which it was made, beside the ranks
  std::string name;                     // NCCL's tools show it; NCCL keeps the pointer
  std::shared_ptr<NcclGroup> splitter;  // whose communicator is split in place of its own; or null
  CUdeviceptr word = 0;                 // 4 bytes for barriers, and 4 for each member

  // Of the thread that makes calls (NcclJob).
  uint32_t kinds = 0;        // of calls that were made
  int64_t calls = 0;         // launched so far, not counting captured ones
  uint64_t last_launch = 0;  // its number; 0: none

  // Null once somebody ends it.
  ncclComm_t comm() const { return comm_.load(std::memory_order_acquire); }
  std::string ToString() const;  // "group {0,1,4}"

 private:
  friend class NcclGroups;
  std::atomic<ncclComm_t> comm_ = nullptr;
  ncclComm_t made_ = nullptr;  // where NCCL stores it
  // Guarded by the lock of the NcclGroups.
  bool making_ = false;
  bool busy_ = false;  // a call is under way
};

class NcclGroups : public std::enable_shared_from_this<NcclGroups> {
 public:
  NcclGroups(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device)
      : nccl_(std::move(nccl)), device_(std::move(device)) {}

  // A communicator that exists.
  void Add(const std::shared_ptr<NcclGroup>& group, ncclComm_t comm);
  // One that is to be made: the result is what NCCL is to be given for it, which stays.
  ncclComm_t* Make(const std::shared_ptr<NcclGroup>& group);
  // The call that makes it is through: it is the group's now. False: all are ended, it too.
  bool Adopt(NcclGroup& group);
  // It will not be made. No thread of NCCL's may store it any more.
  void Drop(const NcclGroup& group);
  std::vector<std::shared_ptr<NcclGroup>> all() const;

  // Around each call of NCCL for a group. False: all are ended, and no call may be made.
  bool Begin(NcclGroup& group);
  // `through`: NCCL is not working on it any longer.
  void End(NcclGroup& group, bool through);
  // Of a call that was not through: ncclCommGetAsyncError. False: the communicator is ended.
  bool Ask(NcclGroup& group, ncclResult_t* state);
  // `result` of a call for the group, with NCCL's last words about it.
  absl::Status StatusOf(const NcclGroup& group, ncclResult_t result, const char* function) const;
  // The first error that a group reports by itself. Asks none that is lent or has a call under way.
  absl::Status AsyncErrors();

  // Takes the handle to end it; null: somebody else does.
  ncclComm_t Take(NcclGroup& group);
  // Aborts all that are not lent. Any thread, any number of times.
  void Abort();
  // Aborts, where nobody has yet, and waits for it, so long at most. True: NCCL is through, so
  // nothing comes to a stream any more. False as well where there was nothing to abort, or NCCL
  // refused.
  bool AwaitAbort(std::chrono::nanoseconds patience);

 private:
  bool AbortAll() MESHIFT_THREAD_ANNOTATION_(no_thread_safety_analysis);
  bool AbortTogether(const std::vector<ncclComm_t>& comms) const;

  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<CudaDevice> device_;

  mutable Mutex mutex_;  // never held while NCCL may block
  std::condition_variable changed_;
  int calling_ MESHIFT_GUARDED_BY(mutex_) = 0;
  bool ended_ MESHIFT_GUARDED_BY(mutex_) = false;      // no call may begin
  bool collected_ MESHIFT_GUARDED_BY(mutex_) = false;  // the abort has its handles
  std::vector<std::shared_ptr<NcclGroup>> groups_ MESHIFT_GUARDED_BY(mutex_);  // as they were made
  std::shared_ptr<SideThread> aborting_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_GROUPS_H_
