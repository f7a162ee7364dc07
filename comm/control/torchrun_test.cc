// How ranks started by torchrun find the hub: by torchrun's store, by MASTER_PORT or MESHIFT_PORT;
// and that ranks of an earlier attempt are refused.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/interfaces.h"
#include "comm/control/socket.h"
#include "comm/control/torch_store.h"
#include "meshift/bootstrap.h"
#include "testing/internal/testing_store.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(300);
constexpr milliseconds kLong(20000);

using Environment = std::map<std::string, std::string>;

std::function<const char*(const char*)> Getenv(const Environment& variables) {
  return [&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

Environment Of(int64_t rank, int64_t world_size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

int FreePort() { return Listening::Open(0)->port(); }

bool Contains(const absl::Status& status, const std::string& part) {
  return Message(status).find(part) != std::string::npos;
}

// Expects that all ranks connect and exchange their numbers. `change` edits each rank's
// environment.
void ExpectToMeet(int64_t n, int port, const std::function<void(int64_t, Environment*)>& change) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> left = n;
  for (int64_t r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      Environment variables = Of(r, n, port);
      change(r, &variables);
      const auto bootstrap = Bootstrap::FromTorchrun(kLong, Getenv(variables));
      EXPECT_TRUE(bootstrap.ok()) << bootstrap.status();
      if (bootstrap.ok()) {
        const auto all = (*bootstrap)->Exchange(std::to_string(r));
        EXPECT_TRUE(all.ok()) << all.status();
        EXPECT_EQ(all->size(), n);
        for (int64_t i = 0; i < n && all.ok(); ++i) EXPECT_EQ((*all)[i], std::to_string(i));
      }
      // Rank 0 ends last.
      for (--left; r == 0 && left > 0;) std::this_thread::sleep_for(milliseconds(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TorchrunTest, RanksMeetThroughTorchrunsStore) {
  const TestingStore store;
  ExpectToMeet(3, store.port(), [](int64_t, Environment* variables) {
    (*variables)["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    (*variables)["TORCHELASTIC_RUN_ID"] = "a.b@c/d";
    (*variables)["MESHIFT_SECRET"] = "s3cret";
  });
  // The store has the hub's address, but not the secret.
  EXPECT_EQ(store.Size(), 1);
  EXPECT_FALSE(store.Has("s3cret"));
}

TEST(TorchrunTest, RanksMeetOnMasterPortWhereNobodyElseDoes) {
  ExpectToMeet(3, FreePort(), [](int64_t, Environment*) {});
}

TEST(TorchrunTest, RanksMeetOnAPortThatIsNamed) {
  const int port = FreePort();
  ExpectToMeet(2, 1, [&](int64_t, Environment* variables) {
    (*variables)["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    (*variables)["MESHIFT_PORT"] = std::to_string(port);
    (*variables)["LOCAL_WORLD_SIZE"] = "2";
    // Not resolved, since all ranks are on this host.
    (*variables)["MASTER_ADDR"] = "no.such.host.invalid";
  });
}

// Linux first uses even ports for outgoing connections. A rank that dials such a port again and
// again before the hub listens may connect to itself.
TEST(TorchrunTest, ALateRankZeroIsMetOnAPortOfTheKernelsOwn) {
  const int port = 2 * (FreePort() / 2);
  const absl::StatusOr<std::vector<Address>> address = Resolve("127.0.0.1", port);
  ASSERT_TRUE(address.ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int i = 0; i < 60000 && std::chrono::steady_clock::now() < end; ++i) {
    const auto socket = Dial(address->front(), end);
    ASSERT_FALSE(socket.ok()) << "reached itself at try " << i;
  }
  // The port is free immediately.
  EXPECT_TRUE(Listening::Open(port).ok());
}

TEST(TorchrunTest, AStaleRankOfTheAttemptBeforeIsRefused) {
  const int port = FreePort();
  Environment zero = Of(0, 2, port);
  zero["TORCHELASTIC_RUN_ID"] = "none";
  zero["TORCHELASTIC_RESTART_COUNT"] = "1";
  const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
  ASSERT_TRUE(hub.ok()) << hub.status();
  Environment stale = zero;
  stale["RANK"] = "1";
  stale["TORCHELASTIC_RESTART_COUNT"] = "0";
  const absl::Status status = Bootstrap::FromTorchrun(kShort, Getenv(stale)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Contains(status, "the hub refuses rank 1: it belongs to another job")) << status;
  // The new attempt's rank 1 is accepted.
  Environment fresh = stale;
  fresh["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_TRUE(Bootstrap::FromTorchrun(kLong, Getenv(fresh)).ok());
}

// Two jobs without a run id whose hub has one port.
TEST(TorchrunTest, ARankOfAJobWithAnotherMasterIsRefused) {
  Environment zero = Of(0, 2, 29500);
  zero["MESHIFT_PORT"] = std::to_string(FreePort());
  const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
  ASSERT_TRUE(hub.ok()) << hub.status();
  Environment other = zero;
  other["RANK"] = "1";
  other["MASTER_PORT"] = "29600";
  const absl::Status status = Bootstrap::FromTorchrun(kShort, Getenv(other)).status();
  EXPECT_TRUE(Contains(status, "the hub refuses rank 1: it belongs to another job")) << status;
  other["MASTER_PORT"] = "29500";
  EXPECT_TRUE(Bootstrap::FromTorchrun(kLong, Getenv(other)).ok());
}

TEST(TorchrunTest, ARankWithAnotherSecretIsRefused) {
  const TestingStore store;
  for (const bool by_store : {false, true}) {
    Environment zero = Of(0, 2, by_store ? store.port() : FreePort());
    if (by_store) zero["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    zero["MESHIFT_SECRET"] = "a";
    const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
    ASSERT_TRUE(hub.ok()) << hub.status();
    Environment one = zero;
    one["RANK"] = "1";
    for (const char* secret : {"b", ""}) {
      one["MESHIFT_SECRET"] = secret;
      const absl::Status status = Bootstrap::FromTorchrun(kShort, Getenv(one)).status();
      EXPECT_TRUE(Contains(status, "secret")) << status;
      EXPECT_FALSE(status.ok());
    }
    one["MESHIFT_SECRET"] = "a";
    EXPECT_TRUE(Bootstrap::FromTorchrun(kLong, Getenv(one)).ok());
  }
}

TEST(TorchrunTest, ARankThatReadsAnOldAddressFindsTheNewHub) {
  const TestingStore store;
  Environment zero = Of(0, 2, store.port());
  zero["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  ASSERT_TRUE(Bootstrap::FromTorchrun(kLong, Getenv(zero)).ok());  // and is destroyed
  std::unique_ptr<Bootstrap> hub;
  std::thread late([&] {
    std::this_thread::sleep_for(kShort);
    hub = *Bootstrap::FromTorchrun(kLong, Getenv(zero));
  });
  Environment one = zero;
  one["RANK"] = "1";
  const auto bootstrap = Bootstrap::FromTorchrun(kLong, Getenv(one));
  late.join();
  EXPECT_TRUE(bootstrap.ok()) << bootstrap.status();
}

TEST(TorchrunTest, ABadVariableIsNamed) {
  Environment variables;
  const auto error = [&] {
    return Message(Bootstrap::FromTorchrun(kShort, Getenv(variables)).status());
  };
  EXPECT_EQ(error(), "the environment has no RANK, which torchrun sets");
  variables = {{"RANK", "x"}};
  EXPECT_EQ(error(), "RANK='x' is not a number");
  variables = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  EXPECT_EQ(error(), "the environment has no MASTER_PORT, which torchrun sets");
  variables["MASTER_PORT"] = "70000";
  EXPECT_EQ(error(), "port 70000 is not between 1 and 65535");
  variables["MASTER_PORT"] = "1";
  EXPECT_EQ(error(), "the environment has no MASTER_ADDR, which torchrun sets");
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["LOCAL_WORLD_SIZE"] = "3";
  EXPECT_EQ(error(), "a local world size of 3 is not between 0 and 2");
  variables.erase("LOCAL_WORLD_SIZE");
  EXPECT_NE(
      error().find(
          "port 1 of 127.0.0.1: connect: Connection refused; set MESHIFT_PORT to use another port"),
      std::string::npos)
      << error();
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_NE(error().find("torchrun's store on port 1 of 127.0.0.1: connect"), std::string::npos)
      << error();
  variables["RANK"] = "0";
  variables["MESHIFT_SOCKET_IFNAME"] = "=nosuch0";
  EXPECT_NE(error().find("no interface that is up matches '=nosuch0'; known interfaces: "),
            std::string::npos)
      << error();
}

TEST(TorchrunTest, APortThatIsTakenIsNamedWithTheVariable) {
  const Listening taken = *Listening::Open(0);
  Environment zero = Of(0, 2, taken.port());
  const absl::Status status = Bootstrap::FromTorchrun(kShort, Getenv(zero)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(status, "listen on port " + std::to_string(taken.port()))) << status;
  EXPECT_TRUE(Contains(status, "set MESHIFT_PORT to use another port")) << status;
}

// The hub listens on a public address only if another host has ranks.
TEST(TorchrunTest, TheHubListensOnlyWhereItsRanksAre) {
  const auto own = InterfaceAddresses("");
  ASSERT_TRUE(own.ok());
  if (own->empty()) GTEST_SKIP() << "this host has loopback alone";
  const int port = FreePort();
  const auto reachable = [&] {
    const auto address = Resolve(own->front(), port);
    return address.ok() && Dial(address->front(), std::chrono::steady_clock::now() + kLong).ok();
  };
  Environment zero = Of(0, 2, port);
  {
    const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));  // MASTER_ADDR is loopback
    ASSERT_TRUE(hub.ok()) << hub.status();
    EXPECT_FALSE(reachable());
  }
  zero["MASTER_ADDR"] = own->front();
  {
    const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
    ASSERT_TRUE(hub.ok()) << hub.status();
    EXPECT_TRUE(reachable());
  }
  zero["LOCAL_WORLD_SIZE"] = "2";
  {
    const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
    ASSERT_TRUE(hub.ok()) << hub.status();
    EXPECT_FALSE(reachable());
  }
  zero["MESHIFT_SOCKET_IFNAME"] = "^lo";
  {
    const auto hub = Bootstrap::FromTorchrun(kShort, Getenv(zero));
    ASSERT_TRUE(hub.ok()) << hub.status();
    EXPECT_TRUE(reachable());
  }
}

TEST(InterfacesTest, AChoiceIsReadAsNcclReadsIt) {
  EXPECT_EQ(ChoiceOf("eth", "eth0"), 0);
  EXPECT_EQ(ChoiceOf("ib,eth", "eth1"), 1);
  EXPECT_EQ(ChoiceOf("=eth", "eth0"), -1);
  EXPECT_EQ(ChoiceOf("=eth0,ib0", "ib0"), 1);
  EXPECT_EQ(ChoiceOf("^docker,lo", "lo"), -1);
  EXPECT_EQ(ChoiceOf("^docker,lo", "eth0"), 0);
  EXPECT_EQ(ChoiceOf("^=eth", "eth0"), 0);
  EXPECT_EQ(ChoiceOf("^=eth0", "eth0"), -1);
  EXPECT_EQ(ChoiceOf(",", "eth0"), -1);
  EXPECT_EQ(InterfaceAddresses("=lo")->front(), "127.0.0.1");
}

TEST(TorchStoreTest, WhoIsNoStoreIsGivenUpInTime) {
  const Listening silent = *Listening::Open(0);
  const auto begin = std::chrono::steady_clock::now();
  const TorchStore store("127.0.0.1", silent.port());
  EXPECT_EQ(store.TryGet("k", begin + kShort).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store.Set("k", "v", begin + 2 * kShort).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(3000));
}

}  // namespace
}  // namespace meshift
