// Measures the duration of a call, also on a busy machine.
//
//   const Stopwatch stopwatch;
//   const absl::Status status = run.Wait();
//   EXPECT_LT(stopwatch.Took(), timeout + std::chrono::seconds(1));
//
// A separate thread wakes up every few milliseconds. The time by which it is late was not given to
// this process, and is subtracted. A hang does not delay other threads, so its time counts in full.
#ifndef MESHIFT_TESTING_INTERNAL_STOPWATCH_H_
#define MESHIFT_TESTING_INTERNAL_STOPWATCH_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace meshift {

class Stopwatch {
 public:
  Stopwatch() : thread_([this] { Watch(); }) {}
  ~Stopwatch() {
    stop_.store(true);
    thread_.join();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // The time since construction, without the lost time. Thread-safe.
  std::chrono::nanoseconds Took() const { return Clock::now() - begin_ - Lost(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kTick{5};

  std::chrono::nanoseconds Late(Clock::time_point now) const {
    return std::max<Clock::duration>(now - due_.load() - kTick, Clock::duration::zero());
  }
  std::chrono::nanoseconds Lost() const { return lost_.load() + Late(Clock::now()); }
  void Watch() {
    while (!stop_.load()) {
      std::this_thread::sleep_until(due_.load());
      const Clock::time_point now = Clock::now();
      lost_.store(lost_.load() + Late(now));
      due_.store(now + kTick);
    }
  }

  const Clock::time_point begin_ = Clock::now();
  std::atomic<std::chrono::nanoseconds> lost_{std::chrono::nanoseconds(0)};
  std::atomic<Clock::time_point> due_{begin_ +
                                      kTick};  // the next time at which the thread should run
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_STOPWATCH_H_
