#include <chrono>

#include "base/status.h"
#include "gtest/gtest.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/mpi_engine.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(TimeoutsTest, AreTenMinutes) {
  NoopEngine engine(0, 2);
  EXPECT_EQ(engine.timeouts(), Timeouts::Of(minutes(10)));
  EXPECT_EQ(Bootstrap::kDefaultTimeout, minutes(10));
  EXPECT_EQ(MpiEngineOptions{}.timeout, minutes(10));
  EXPECT_EQ(LocalWorldOptions{}.timeout, minutes(10));
}

TEST(TimeoutsTest, AreSetWhileRunning) {
  NoopEngine engine(0, 2);
  ASSERT_TRUE(engine.SetTimeouts({.setup = minutes(1), .running = seconds(2)}).ok());
  EXPECT_EQ(engine.timeouts().setup, minutes(1));
  EXPECT_EQ(engine.timeouts().running, seconds(2));
}

TEST(TimeoutsTest, OthersThanPositiveOnesAreRefused) {
  NoopEngine engine(0, 2);
  ASSERT_TRUE(engine.SetTimeouts(Timeouts::Of(seconds(3))).ok());
  EXPECT_EQ(Message(engine.SetTimeouts({.setup = nanoseconds(0)})),
            "a setup time-out of 0 ns is not positive");
  EXPECT_EQ(Message(engine.SetTimeouts({.running = nanoseconds(-5)})),
            "a running time-out of -5 ns is not positive");
  EXPECT_EQ(engine.timeouts(), Timeouts::Of(seconds(3)));
}

}  // namespace
}  // namespace meshift
