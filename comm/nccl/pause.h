// Waiting for what must be asked for again and again.
//
//   for (Pause pause; !IsDone(); pause.Next()) {
//     if (pause.elapsed() > timeout) return TooLate();
//   }
#ifndef MESHIFT_COMM_NCCL_PAUSE_H_
#define MESHIFT_COMM_NCCL_PAUSE_H_

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace meshift {

// Waits between two looks at something: first not at all, then ever longer.
class Pause {
 public:
  std::chrono::nanoseconds elapsed() const { return std::chrono::steady_clock::now() - start_; }
  // True once in a while: time for the dearer looks.
  bool IsTime() const { return tries_ % 16 == 15; }
  void Next() {
    if (++tries_ <= 64) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(tries_ < 256 ? std::chrono::microseconds(20)
                                               : std::chrono::microseconds(100));
    }
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t tries_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_PAUSE_H_
