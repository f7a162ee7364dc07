// A thread that calls a function periodically.
//
//   Watchdog watchdog([&] { job.Look(); }, [&] { return job.LookEvery(); });
//
// Both functions run on that thread, and must not destroy the Watchdog. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_WATCHDOG_H_
#define MESHIFT_COMM_NCCL_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace meshift {

class Watchdog {
 public:
  // Calls `look` after each interval that `every` returns; `every` is called before each wait.
  Watchdog(std::function<void()> look, std::function<std::chrono::nanoseconds()> every);
  // Waits for a running call of `look`.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();

  const std::function<void()> look_;
  const std::function<std::chrono::nanoseconds()> every_;
  Mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_WATCHDOG_H_
