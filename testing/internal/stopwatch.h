// Measures how long something takes, also on a machine that is busy with other things.
//
//   const Stopwatch stopwatch;
//   const absl::Status status = run.Wait();
//   EXPECT_LT(stopwatch.Took(), timeout + std::chrono::seconds(1));
//
// A thread of its own wants to run every few milliseconds. By how much it comes late is time that
// the machine did not give to this process, and does not count. What hangs keeps no other thread
// from running: its time counts in full.
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

  // Since it was made, without what was lost. Any thread.
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
  std::atomic<Clock::time_point> due_{begin_ + kTick};  // when the thread wants to run
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_STOPWATCH_H_
