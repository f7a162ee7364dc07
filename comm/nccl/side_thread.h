// A thread for NCCL calls that may block for long, or never return. Its owner can wait for it with
// a time-out, and leave it running. It cannot be cancelled. Internal to comm/nccl.
//
//   std::unique_ptr<SideThread> thread = SideThread::Start(device, [=] { return Abort(comms); });
//   thread->Await(patience);    // true: Abort() has returned true
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
  // Runs `work`, which returns whether it succeeded, with the device's context current. `work` and
  // its captures live until it returns.
  static std::unique_ptr<SideThread> Start(std::shared_ptr<CudaDevice> device,
                                           std::function<bool()> work);
  // Detaches the thread if `work` has not returned; it keeps the device alive.
  ~SideThread();
  // Waits at most `patience` for `work`. True: it has returned true. False: it has returned false,
  // or has not returned.
  bool Await(std::chrono::nanoseconds patience);
  // Whether `work` has returned.
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
