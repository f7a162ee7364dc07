// Aborts communicators, all of them at once, where nobody has to wait for it.
//
//   auto aborting = std::make_unique<AbortThread>(nccl, device, groups);
//   aborting = nullptr;   // waits for a while
//
// ncclCommAbort may wait for all work of the device, which kernels of another communicator hold up;
// so all are aborted in one NCCL group, which tells every kernel to stop before it waits for any.
// Even so it may not return for long: it also waits for graphs with captured operations to be
// destroyed, and a lent communicator that hangs is its owner's to end. Not a public header.
#ifndef MESHIFT_COMM_NCCL_ABORT_THREAD_H_
#define MESHIFT_COMM_NCCL_ABORT_THREAD_H_

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {

class AbortThread {
 public:
  // Nobody else may use `comms` any more. Keeps `kept`, to which NCCL may still write, until it is
  // through.
  AbortThread(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device,
              std::vector<ncclComm_t> comms, std::vector<std::shared_ptr<void>> kept);
  // Waits for NCCL, two seconds at most. Afterwards the thread is left to the process, with the
  // device.
  ~AbortThread();
  // Waits for NCCL, so long at most. True: it is through, so nothing of `comms` comes to a stream
  // any more. False as well where it refused.
  bool Await(std::chrono::nanoseconds patience);
  AbortThread(const AbortThread&) = delete;
  AbortThread& operator=(const AbortThread&) = delete;

 private:
  struct State {
    Mutex mutex;
    std::condition_variable changed;
    bool done MESHIFT_GUARDED_BY(mutex) = false;
    bool refused MESHIFT_GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_ABORT_THREAD_H_
