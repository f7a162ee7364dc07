// The lock of a job, for its own files.
//
//   const Lock lock(*this);
#ifndef MESHIFT_COMM_NCCL_JOB_LOCK_H_
#define MESHIFT_COMM_NCCL_JOB_LOCK_H_

#include <optional>

#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/job.h"

namespace meshift {

class MESHIFT_THREAD_ANNOTATION_(scoped_lockable) NcclJob::Lock {
 public:
  explicit Lock(NcclJob& job) MESHIFT_THREAD_ANNOTATION_(acquire_capability(job.mutex_))
      : job_(job), scope_(*job.device_) {
    lock_.emplace(job.mutex_);
  }
  ~Lock() MESHIFT_THREAD_ANNOTATION_(release_capability()) {
    if (job_.failed_.load()) job_.EndGroups();
    lock_.reset();
    // Who failed just now found the lock held, and left the end to its holder.
    job_.TryEndGroups();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  NcclJob& job_;
  const CudaDevice::Scope scope_;
  std::optional<MutexLock> lock_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_JOB_LOCK_H_
