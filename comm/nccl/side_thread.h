// A thread for calls of NCCL that may block for long, or never return: who has started it need not
// wait for it.
//
//   std::unique_ptr<SideThread> thread = SideThread::Start(device, [=] { return Abort(comms); });
//   thread->Await(patience);    // true: it is through, and has done it
//
// Not a public header.
#ifndef MESHIFT_COMM_NCCL_SIDE_THREAD_H_
#define MESHIFT_COMM_NCCL_SIDE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "comm/nccl/device.h"

namespace meshift {

class SideThread {
 public:
  // Runs `work` with the device current; it says whether it did what it should. What it has
  // captured is kept until it returns.
  static std::unique_ptr<SideThread> Start(std::shared_ptr<CudaDevice> device,
                                           std::function<bool()> work);
  // Where `work` has not returned, the thread is left to the process, with the device.
  ~SideThread();
  // Waits for it, so long at most. True: it has returned true.
  bool Await(std::chrono::nanoseconds patience);
  // Whether it has returned.
  bool IsDone();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

 private:
  struct State {
    Mutex mutex;
    std::condition_variable changed;
    bool done MESHIFT_GUARDED_BY(mutex) = false;
    bool result MESHIFT_GUARDED_BY(mutex) = false;
  };
  SideThread(std::shared_ptr<CudaDevice> device, std::function<bool()> work);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_SIDE_THREAD_H_
