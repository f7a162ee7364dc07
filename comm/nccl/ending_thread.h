// Ends communicators on a thread of its own, where nobody has to wait for it.
//
//   std::unique_ptr<EndingThread> aborting = EndingThread::Abort(nccl, device, groups, kept);
//   std::unique_ptr<EndingThread> destroying = EndingThread::Destroy(nccl, device, finalized);
//   destroying->Await(patience);    // true: NCCL is through
//
// ncclCommDestroy and ncclCommAbort wait for the ranks of the same host to call them too (NCCL's
// documentation calls them intra-node collective), and for work of the device. Threads whose groups
// are in the order in which they were made, which is one on all ranks, never wait for each other in
// a circle, whatever groups each of them has.
//
// What ncclCommAbort waits for may be held up by kernels of another communicator; so all are
// aborted in one NCCL group. Even so it may not return for long: it also waits for graphs with
// captured operations to be destroyed, and a lent communicator that hangs is its owner's to end.
// Not a public header.
#ifndef MESHIFT_COMM_NCCL_ENDING_THREAD_H_
#define MESHIFT_COMM_NCCL_ENDING_THREAD_H_

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {

class EndingThread {
 public:
  // Nobody else may use `comms` any more. Keeps `kept`, to which NCCL may still write, until it is
  // through.
  static std::unique_ptr<EndingThread> Abort(std::shared_ptr<const NcclLibrary> nccl,
                                             std::shared_ptr<CudaDevice> device,
                                             std::vector<ncclComm_t> comms,
                                             std::vector<std::shared_ptr<void>> kept);
  // One after the other. REQUIRES: all are finalized, and in the order in which they were made.
  static std::unique_ptr<EndingThread> Destroy(std::shared_ptr<const NcclLibrary> nccl,
                                               std::shared_ptr<CudaDevice> device,
                                               std::vector<ncclComm_t> comms);
  // Where NCCL is not through, the thread is left to the process, with the device.
  ~EndingThread();
  // Waits for NCCL, so long at most. True: it is through, so nothing of the communicators comes to
  // a stream any more. False as well where it refused.
  bool Await(std::chrono::nanoseconds patience);
  // Whether NCCL is through, or has refused.
  bool IsDone();
  EndingThread(const EndingThread&) = delete;
  EndingThread& operator=(const EndingThread&) = delete;

 private:
  struct State {
    Mutex mutex;
    std::condition_variable changed;
    bool done MESHIFT_GUARDED_BY(mutex) = false;
    bool refused MESHIFT_GUARDED_BY(mutex) = false;
  };
  // Runs `end` with the device current; it says whether NCCL did it.
  EndingThread(std::shared_ptr<CudaDevice> device, std::function<bool()> end);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_ENDING_THREAD_H_
