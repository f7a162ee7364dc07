// A rank tries every host of a hub's address: a host without a listener, a name that does not
// resolve, and hosts where a stranger answers or stays silent.
#include "comm/control/connect.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/client.h"
#include "comm/control/hub.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "testing/internal/played_peer.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong(20000);
constexpr char kHubHost[] = "127.0.0.1";
constexpr char kOtherHost[] = "127.0.0.2";
constexpr char kNoListener[] = "127.0.0.3";

// A hub that listens on kHubHost alone.
struct RunningHub {
  explicit RunningHub(const JobKey& key) {
    Listening listening = *Listening::Open(0, kHubHost, Clock::now());
    address = {.key = key, .hosts = {kHubHost}, .port = listening.port()};
    hub = *Hub::Start(2, key, std::move(listening));
  }
  HubAddress Behind(const std::vector<std::string>& hosts) const {
    HubAddress behind = address;
    behind.hosts.insert(behind.hosts.begin(), hosts.begin(), hosts.end());
    return behind;
  }

  HubAddress address;
  std::unique_ptr<Hub> hub;
};

// `asked`: how often the address was looked up.
absl::Status Meet(const HubAddress& address, milliseconds timeout, int* asked) {
  *asked = 0;
  const auto where = [&]() -> absl::StatusOr<HubAddress> {
    ++*asked;
    return address;
  };
  return ConnectToHub({.rank = 1, .world_size = 2}, where, Clock::now() + timeout).status();
}

TEST(ConnectTest, AHostWithoutAHubIsPassedOver) {
  const RunningHub running({.name = "t"});
  int asked = 0;
  EXPECT_EQ(Meet(running.Behind({kNoListener, "no.such.host.invalid"}), kLong, &asked),
            absl::OkStatus());
  EXPECT_EQ(asked, 1) << "the hub's host was not tried in the first round";
}

TEST(ConnectTest, AHostWithAnotherJobsHubIsPassedOver) {
  const RunningHub running({.name = "t"});
  const auto other = *Hub::Start(2, {.name = "another"},
                                 *Listening::Open(running.address.port, kOtherHost, Clock::now()));
  int asked = 0;
  EXPECT_EQ(Meet(running.Behind({kOtherHost}), kLong, &asked), absl::OkStatus());
  EXPECT_EQ(asked, 1);
}

TEST(ConnectTest, AHostThatHangsUpIsPassedOver) {
  const RunningHub running({.name = "t"});
  const Listening stranger = *Listening::Open(running.address.port, kOtherHost, Clock::now());
  std::thread hangs_up([&] { Accepted(stranger); });
  int asked = 0;
  EXPECT_EQ(Meet(running.Behind({kOtherHost}), kLong, &asked), absl::OkStatus());
  EXPECT_EQ(asked, 1);
  hangs_up.join();
}

// The kernel makes the connection, and no process ever answers.
TEST(ConnectTest, AHostThatSaysNothingIsPassedOverInTime) {
  const RunningHub running({.name = "t"});
  const Listening silent = *Listening::Open(running.address.port, kOtherHost, Clock::now());
  int asked = 0;
  const auto begin = Clock::now();
  EXPECT_EQ(Meet(running.Behind({kOtherHost}), kLong, &asked), absl::OkStatus());
  EXPECT_EQ(asked, 1);
  EXPECT_LT(Clock::now() - begin, Client::kHelloTime + milliseconds(5000));
}

TEST(ConnectTest, TheJobsOwnHubThatRefusesARankIsNotAskedAgain) {
  const RunningHub running({.name = "t"});
  int asked = 0;
  const auto where = [&]() -> absl::StatusOr<HubAddress> {
    ++asked;
    return running.address;
  };
  const auto first = ConnectToHub({.rank = 1, .world_size = 2}, where, Clock::now() + kLong);
  ASSERT_TRUE(first.ok()) << first.status();
  asked = 0;
  const absl::Status second =
      ConnectToHub({.rank = 1, .world_size = 2}, where, Clock::now() + kLong).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << second;
  EXPECT_EQ(asked, 1);
}

TEST(ConnectTest, WithoutFreeDescriptorsNoneAreReserved) {
  EXPECT_TRUE(ReserveDescriptors(2).ok());
  const pid_t child = fork();
  if (child == 0) {
    const int lowest = dup(STDIN_FILENO);
    close(lowest);
    const rlimit none = {static_cast<rlim_t>(lowest), static_cast<rlim_t>(lowest)};
    const bool limited = setrlimit(RLIMIT_NOFILE, &none) == 0;
    _exit(limited && absl::IsResourceExhausted(ReserveDescriptors(2)) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ConnectTest, RefusedAddressesDoNotShowTheSecret) {
  for (const std::string text :
       {"job.s3cret", "job.s3cret@", "job.s3cret@host", "job.s3cret@host:0", "job.s3cret@,:7",
        "job.s3cret:7", "job.s3cret@host:port"}) {
    const absl::Status status = ParseHubAddress(text).status();
    EXPECT_TRUE(Contains(status, "is not of the form token@host,host:port")) << status;
    EXPECT_FALSE(Contains(status, "s3cret")) << status;
  }
  EXPECT_EQ(
      ParseHubAddress("nonsense").status(),
      absl::InvalidArgumentError("hub address 'nonsense' is not of the form token@host,host:port"));
}

TEST(ConnectTest, WhereNoHostHasTheHubTheLastTryIsSaid) {
  int asked = 0;
  const HubAddress nowhere = {.key = {.name = "t"}, .hosts = {kNoListener, kOtherHost}, .port = 1};
  const absl::Status status = Meet(nowhere, milliseconds(300), &asked);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Contains(status, "port 1 of 127.0.0.3, 127.0.0.2: connect: Connection refused"))
      << status;
  EXPECT_GT(asked, 1);
}

}  // namespace
}  // namespace meshift
