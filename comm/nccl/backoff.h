// Pauses between the polls of a loop: short ones first, then longer ones.
//
//   for (Backoff pause; !IsDone(); pause.Next()) {
//     if (pause.elapsed() > timeout) return TooLate();
//   }
//
// It has no time-out of its own. For one thread and one loop. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_BACKOFF_H_
#define MESHIFT_COMM_NCCL_BACKOFF_H_

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace meshift {

// Next() waits between two polls. In the first 50 us it only yields, since any sleep takes longer
// (the kernel's timer slack is 50 us). After that it sleeps, from 10 us up to 100 us.
class Backoff {
 public:
  static constexpr std::chrono::microseconds kSpin{50};

  std::chrono::nanoseconds elapsed() const { return std::chrono::steady_clock::now() - start_; }
  void Next() {
    if (elapsed() < kSpin) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(sleep_);
      sleep_ = std::min(sleep_ * 9 / 8, kLongest);
    }
  }

 private:
  static constexpr std::chrono::nanoseconds kLongest{100000};  // keeps the delay of a wait small

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds sleep_{10000};
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_BACKOFF_H_
