// A thread that calls a function periodically.
//
//   Watchdog watchdog([&] { context.CheckForErrors(); }, [&] { return context.CheckInterval(); });
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
  // Calls `check` after each wait. `interval` is called before each wait, and returns its length.
  Watchdog(std::function<void()> check, std::function<std::chrono::nanoseconds()> interval);
  // Waits for a running call of `check` or `interval`, but not for the length of the interval.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();

  const std::function<void()> check_;
  const std::function<std::chrono::nanoseconds()> interval_;
  Mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_WATCHDOG_H_
