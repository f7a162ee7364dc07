#include "comm/nccl/nccl_config.h"

#include <gtest/gtest.h>

#include "meshift/nccl_engine.h"
#include "testing/internal/nccl/fake_environment.h"

namespace meshift {
namespace {

int MaxCtas(int num_sms, const NcclOptions& options = {}) {
  return ConfigOf(options, num_sms).maxCTAs;
}

// So few that several collectives fit on a device: a quarter of its multiprocessors, 32 at most.
TEST(NcclConfigTest, CollectivesLeaveRoomForOthers) {
  EXPECT_EQ(MaxCtas(132), 32);  // H100
  EXPECT_EQ(MaxCtas(148), 32);  // B200
  EXPECT_EQ(MaxCtas(108), 16);  // A100
  EXPECT_EQ(MaxCtas(4), 1);
  EXPECT_EQ(MaxCtas(1), 1);
  EXPECT_EQ(MaxCtas(132, {.max_ctas = 7}), 7);
  EXPECT_EQ(MaxCtas(132, {.min_ctas = 40}), 40);
}

TEST(NcclConfigTest, AsManyRunAtATimeAsFit) {
  const FakeEnvironment none({});
  EXPECT_EQ(MaxInFlight({}, 132, none), 3);
  EXPECT_EQ(MaxInFlight({.max_ctas = 8}, 132, none), 12);
  EXPECT_EQ(MaxInFlight({.max_ctas = 1}, 132, none), 16);
  EXPECT_EQ(MaxInFlight({.max_ctas = 132}, 132, none), 1);
  EXPECT_EQ(MaxInFlight({.max_in_flight = 1}, 132, none), 1);
  EXPECT_EQ(MaxInFlight({.max_in_flight = 16}, 132, none), 3);
}

// A variable that gives communicators more channels leaves room for fewer of them.
TEST(NcclConfigTest, VariablesThatGiveMoreChannelsCount) {
  for (const char* name :
       {"NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"}) {
    for (const char* value : {"64", "0x40", "0100", "unknown: /etc/nccl.conf is a FIFO"}) {
      const FakeEnvironment environment(FakeEnvironment::Variables{{name, value}});
      EXPECT_EQ(MaxInFlight({}, 132, environment), 1) << name << "=" << value;
    }
    for (const char* value : {"", "8", "-1"}) {
      const FakeEnvironment environment(FakeEnvironment::Variables{{name, value}});
      EXPECT_EQ(MaxInFlight({}, 132, environment), 3) << name << "=" << value;
    }
  }
}

}  // namespace
}  // namespace meshift
