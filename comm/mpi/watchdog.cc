#include "comm/mpi/watchdog.h"

#include <unistd.h>

#include <chrono>

namespace meshift {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool MpiWatchdog::GiveUp(int64_t ns) {
  int64_t since = since_.load(std::memory_order_acquire);
  return since < ns && since != kLost &&
         since_.compare_exchange_strong(since, kLost, std::memory_order_acq_rel);
}

void MpiWatchdog::Enter() { since_.store(NowNs() - overdue_ns_, std::memory_order_release); }

void MpiWatchdog::Leave() {
  int64_t since = since_.load(std::memory_order_relaxed);
  if (since != kLost &&
      since_.compare_exchange_strong(since, kOutside, std::memory_order_acq_rel)) {
    return;
  }
  for (;;) pause();  // its data belong to the thread that gave it up
}

}  // namespace meshift
