#include "comm/nccl/watchdog.h"

#include <sys/prctl.h>

#include <chrono>
#include <functional>
#include <utility>

#include "base/mutex.h"

namespace meshift {

Watchdog::Watchdog(std::function<void()> check, std::function<std::chrono::nanoseconds()> interval)
    : check_(std::move(check)), interval_(std::move(interval)), thread_([this] { Run(); }) {}

void Watchdog::Run() {
  // By default the kernel adds up to 50 us to each wait.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  while (true) {
    const std::chrono::nanoseconds interval = interval_();
    {
      MutexLock lock(mutex_);
      const bool stopped =
          lock.WaitFor(changed_, interval, [&]() MESHIFT_REQUIRES(mutex_) { return stopped_; });
      if (stopped) return;
    }
    check_();
  }
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

}  // namespace meshift
