#include "comm/nccl/watchdog.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "comm/nccl/backoff.h"

namespace meshift {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(WatchdogTest, ChecksEverySoOftenAndWakesInTime) {
  std::atomic<int> checks{0};
  std::atomic<int> slack{0};
  {
    const Watchdog watchdog(
        [&] {
          slack = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
          ++checks;
        },
        [] { return milliseconds(1); });
    while (checks < 3) std::this_thread::yield();
  }
  EXPECT_EQ(slack, 1);
  const int at_end = checks;
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(checks, at_end);
}

TEST(WatchdogTest, EndsWithoutWaitingForItsNextCheck) {
  const auto start = std::chrono::steady_clock::now();
  {
    const Watchdog watchdog([] {}, [] { return std::chrono::hours(1); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

int64_t Sleeps() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// A wait of less than 50 us does not sleep, since a sleep alone takes that long. The test repeats
// if its thread loses the core meanwhile.
TEST(BackoffTest, DoesNotSleepAtFirst) {
  bool slept = true;
  for (int i = 0; i < 200 && slept; ++i) {
    const int64_t before = Sleeps();
    for (Backoff pause; pause.elapsed() < microseconds(40);) pause.Next();
    slept = Sleeps() > before;
  }
  EXPECT_FALSE(slept);
}

TEST(BackoffTest, SleepsLater) {
  const int64_t before = Sleeps();
  for (Backoff pause; pause.elapsed() < milliseconds(20);) pause.Next();
  EXPECT_GT(Sleeps(), before);
}

}  // namespace
}  // namespace meshift
