// A cheap clock: the processor's time-stamp counter, which takes one instruction, if the kernel
// itself keeps time with it; else the steady clock. The constructor makes this choice, once. Ticks
// become nanoseconds later, in ToNs().
//
//   const TickClock clock;
//   const int64_t ticks = clock.Now();
//   clock.Read().ToNs(ticks);      // of the steady clock
//
// The rate is measured between the clock's construction and Read(), so two readings may convert the
// same ticks to slightly different nanoseconds.
#ifndef MESHIFT_COMM_RECORD_TICK_CLOCK_H_
#define MESHIFT_COMM_RECORD_TICK_CLOCK_H_

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace meshift {

inline int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Safe for concurrent use.
class TickClock {
 public:
  TickClock();
  int64_t Now() const {
#if defined(__x86_64__)
    if (counts_) return static_cast<int64_t>(__rdtsc());
#endif
    return SteadyNowNs();
  }
  // A reading of both clocks, which converts ticks since the TickClock was made.
  struct Reading {
    int64_t ns = 0;
    int64_t ticks = 0;
    double ns_per_tick = 1;
    int64_t ToNs(int64_t then) const {
      return ns - static_cast<int64_t>(static_cast<double>(ticks - then) * ns_per_tick);
    }
  };
  Reading Read() const;

 private:
  const bool counts_;
  const int64_t first_ticks_;
  const int64_t first_ns_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_TICK_CLOCK_H_
