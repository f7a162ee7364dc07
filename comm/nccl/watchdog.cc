#include "comm/nccl/watchdog.h"

#include <sys/prctl.h>

#include <chrono>
#include <functional>
#include <utility>

#include "base/mutex.h"

namespace meshift {

Watchdog::Watchdog(std::function<void()> look, std::function<std::chrono::nanoseconds()> every)
    : look_(std::move(look)), every_(std::move(every)), thread_([this] { Run(); }) {}

void Watchdog::Run() {
  // By default the kernel adds up to 50 us to each wait.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  while (true) {
    const std::chrono::nanoseconds every = every_();
    {
      MutexLock lock(mutex_);
      const bool stopped =
          lock.WaitFor(changed_, every, [&]() MESHIFT_REQUIRES(mutex_) { return stopped_; });
      if (stopped) return;
    }
    look_();
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
