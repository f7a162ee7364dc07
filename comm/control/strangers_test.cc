// Other processes that connect to the hub's port, or that listen where a rank looks for the hub;
// and ranks that break the protocol's rules.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/connect.h"
#include "comm/control/frame.h"
#include "comm/control/handshake.h"
#include "comm/control/hub.h"
#include "comm/control/hub_bootstrap.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "testing/internal/played_peer.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(300);
constexpr milliseconds kLong(20000);

// Another process may answer first: an SSH server, another job, this rank itself. The job's hub may
// start at any moment before the time-out.
TEST(StrangersTest, WhoIsNotTheHubIsNamedAtTheTimeOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the hub has hung up on rank 1"},
      {"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
       "the process that answers rank 1 is not a hub of this version"},
  };
  for (const auto& [said, named] : cases) {
    const Listening stranger = *Listening::Open(0);
    std::atomic<bool> done = false;
    std::thread answers([&, said = said] {
      while (!done) {
        const Socket socket = stranger.Accept();
        if (socket.open()) socket.SendAll(said).IgnoreError();
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    const std::string port = std::to_string(stranger.port());
    const absl::Status status =
        Bootstrap::Connect({.rank = 1, .world_size = 2}, "t@127.0.0.1:" + port, kShort).status();
    done = true;
    answers.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(Contains(status, named)) << status;
  }
}

TEST(StrangersTest, TheHubThatComesBehindOthersIsFound) {
  auto other = *Bootstrap::Listen({.world_size = 2});
  const HubAddress others = *ParseHubAddress(other->address());
  const auto zero = *Bootstrap::Listen({.world_size = 2});
  HubAddress hub = *ParseHubAddress(zero->address());
  // Another job's hub has the port for a while, then the job's own hub.
  std::unique_ptr<Bootstrap> late;
  std::thread comes([&] {
    std::this_thread::sleep_for(milliseconds(300));
    other.reset();
    const JobRank job{.world_size = 2};
    OpenHub open = *OpenHub::Open(job, hub.key, "", others.port);
    late = *open.Enter(job, kLong, "");
  });
  hub.port = others.port;
  const auto one = Bootstrap::Connect({.rank = 1, .world_size = 2}, ToText(hub), kLong);
  comes.join();
  EXPECT_TRUE(one.ok()) << one.status();
}

// The hub refuses a rank with a wrong secret, and a rank refuses a hub with one.
TEST(StrangersTest, BothSidesProveThatTheyKnowTheSecret) {
  const auto zero = *Bootstrap::Listen({.world_size = 2}, 0, kShort);
  HubAddress hub = *ParseHubAddress(zero->address());
  hub.key.secret[0] ^= 1;
  const absl::Status status =
      Bootstrap::Connect({.rank = 1, .world_size = 2}, ToText(hub), kShort).status();
  EXPECT_TRUE(Contains(status, "its job has another secret (MESHIFT_SECRET)")) << status;
  EXPECT_FALSE(Contains(status, hub.key.secret)) << status;
  const absl::Status waits = zero->Exchange("x").status();
  EXPECT_TRUE(Contains(waits, "ranks {1} have sent nothing")) << waits;
  EXPECT_TRUE(Contains(waits, "rank 1 was refused: its job has another secret")) << waits;
  // A hub that knows only the job's name.
  const Listening listening = *Listening::Open(0);
  std::thread plays([&] {
    PlayedHub played(Accepted(listening), {.name = "t", .secret = "guess"});
    EXPECT_FALSE(played.Greet().ok());
  });
  const absl::Status fooled =
      Bootstrap::Connect({.rank = 1, .world_size = 2},
                         "t.secret@127.0.0.1:" + std::to_string(listening.port()), kShort)
          .status();
  plays.join();
  EXPECT_EQ(fooled.code(), absl::StatusCode::kDeadlineExceeded) << fooled;
}

TEST(StrangersTest, EachJobHasASecretOfItsOwn) {
  const auto one = *Bootstrap::Listen({.world_size = 2}, 0, kShort);
  const auto other = *Bootstrap::Listen({.world_size = 2}, 0, kShort);
  const JobKey a = ParseHubAddress(one->address())->key;
  const JobKey b = ParseHubAddress(other->address())->key;
  EXPECT_GE(a.secret.size(), 32U);
  EXPECT_NE(a.secret, b.secret);
  EXPECT_NE(a.name, b.name);
}

TEST(StrangersTest, AHubThatIsStuckIsNamed) {
  const Listening listening = *Listening::Open(0);
  std::thread plays([&] {
    PlayedHub played(Accepted(listening), {.name = "t"});
    ASSERT_TRUE(played.Greet().ok());
    while (played.Next()) {
    }
  });
  {
    const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 2},
                                         "t@127.0.0.1:" + std::to_string(listening.port()), kShort);
    const absl::Status status = one->Exchange("x").status();
    EXPECT_TRUE(Contains(status, "the hub in rank 0's process does not answer within 800 ms"))
        << status;
    const auto root = *one->control()->Join({0, 1}, nullptr);
    EXPECT_TRUE(Contains(root->Await(0, kShort), "the hub in rank 0's process does not answer"));
  }
  plays.join();
}

// The hub's process is out of descriptors: accepted ranks continue; new ranks, and ranks that wait
// for them, get the reason; once a descriptor is free, the new ranks are accepted.
TEST(StrangersTest, WithoutDescriptorsTheHubGoesOnAndSaysSo) {
  std::array<int, 2> to = {};
  std::array<int, 2> from = {};
  ASSERT_EQ(pipe(to.data()), 0);
  ASSERT_EQ(pipe(from.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Rank 2, in a process with its own descriptors. It writes each status as a line.
    std::array<char, 4096> text;
    const ssize_t size = read(to[0], text.data(), text.size());
    const std::string address(text.data(), std::max<ssize_t>(size, 0));
    absl::Status status = absl::UnknownError("");
    for (int i = 0; i < 40 && !status.ok(); ++i) {
      const auto two = Bootstrap::Connect({.rank = 2, .world_size = 3}, address, milliseconds(250));
      status = two.status();
      const std::string line = status.ToString() + "\n";
      if (write(from[1], line.data(), line.size()) < 0) std::_Exit(1);
      if (status.ok()) status = (*two)->Exchange("2").status();
    }
    std::_Exit(status.ok() ? 0 : 1);
  }
  std::FILE* const lines = fdopen(from[0], "r");
  std::array<char, 4096> line = {};
  const auto next = [&] { return std::string(fgets(line.data(), line.size(), lines)); };
  {
    const auto zero = *Bootstrap::Listen({.world_size = 3}, 0, milliseconds(1000));
    const std::string address = zero->address();
    const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 3}, address, kLong);
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(Socket(dup(0)).fd());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    ASSERT_GT(write(to[1], address.data(), address.size()), 0);
    const std::string why = "the hub in rank 0's process can take no more connections";
    std::string told = next();
    EXPECT_NE(told.find(why), std::string::npos) << told;
    EXPECT_NE(told.find("the limit of descriptors is " + std::to_string(none.rlim_cur) + " (soft)"),
              std::string::npos)
        << told;
    const absl::Status waits = zero->Exchange("0").status();
    EXPECT_TRUE(Contains(waits, "ranks {1,2} have sent nothing")) << waits;
    EXPECT_TRUE(Contains(waits, why)) << waits;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (told.substr(0, 2) != "OK") told = next();
    EXPECT_EQ(one->Exchange("1").status(), absl::OkStatus());
  }
  int code = 0;
  waitpid(child, &code, 0);
  EXPECT_EQ(code, 0);
  std::fclose(lines);
  for (const int fd : {to[0], to[1], from[1]}) close(fd);
}

// A rank that asks about an invalid call, or breaks another rule, is dropped alone.
TEST(StrangersTest, ARankThatBreaksTheRulesIsDroppedAndToldWhy) {
  using Kind = Frame::Kind;
  const std::vector<std::pair<Frame, const char*>> cases = {
      {{.kind = Kind::kAsk, .number = -1, .root = "0-2#0"}, "has number -1; expected 0 to"},
      {{.kind = Kind::kAsk, .id = -7, .root = "0-2#0"}, "has id -7"},
      {{.kind = Kind::kAnswer, .rank = 3}, "has rank 3; expected 0 to 2"},
      {{.kind = Kind::kFail, .code = 17, .root = "0-2#0"}, "has code 17; expected 1 to 16"},
      {{.kind = Kind::kLeave}, "has code 0"},
      {{.kind = Kind::kJoin, .root = "0-3#0", .text = "0-3"}, "list of ascending ranks below 3"},
      {{.kind = Kind::kJoin, .root = "0,1#0", .text = "0,1"}, "of which it is not a member"},
      {{.kind = Kind::kJoin, .root = "x", .text = "0-2"}, "does not match its ranks"},
      {{.kind = Kind::kAnnounce, .root = "0,1#0"}, "of which it is not a member"},
      {{.kind = Kind::kExchange, .number = 64}, "exchange 64 is not open; only 0 to 63 are"},
      {{.kind = Kind::kGone, .rank = 1}, "unexpected frame of kind"},
      {{.kind = Kind::kHello}, "unexpected frame of kind"},
  };
  for (const auto& [frame, why] : cases) {
    const auto zero = *Bootstrap::Listen({.world_size = 3});
    const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 3}, zero->address());
    Failures none;
    const auto pair0 = *zero->control()->Join({0, 1}, none.Listener());
    const auto pair1 = *one->control()->Join({0, 1}, none.Listener());
    const auto all = *zero->control()->Join({0, 1, 2}, nullptr);
    const HubAddress hub = *ParseHubAddress(zero->address());
    PlayedRank two(DialPort(hub.port), {.rank = 2, .world_size = 3}, hub.key);
    ASSERT_TRUE(two.Greet().ok());
    // Now the hub has the pair's root.
    ASSERT_TRUE(
        Contains(pair0->Explain(0, absl::InternalError("e")), "rank 1 has not made call 0"));
    ASSERT_TRUE(two.Send(frame).ok());
    const std::optional<Frame> told = two.Next();
    ASSERT_TRUE(told.has_value()) << why;
    EXPECT_EQ(told->kind, Kind::kDropped);
    EXPECT_NE(told->text.find(why), std::string::npos) << told->text;
    EXPECT_FALSE(two.Next().has_value());
    pair0->Post({.call = 0, .what = &told->text}, true);
    pair1->Post({.call = 0, .what = &told->text}, true);
    EXPECT_EQ(pair0->Await(0, kLong), absl::OkStatus());
    EXPECT_TRUE(Contains(all->Await(0, kLong), "rank 2 is gone"));
  }
}

// A rank gives up a hub that sends an invalid frame.
TEST(StrangersTest, ARankChecksWhatTheHubSays) {
  using Kind = Frame::Kind;
  const std::vector<Frame> cases = {
      {.kind = Kind::kAsk, .rank = 0, .number = -1, .root = "0,1#0"},
      {.kind = Kind::kAsk, .rank = 2, .root = "0,1#0"},
      {.kind = Kind::kAnswer, .rank = -2},
      {.kind = Kind::kSettled, .number = 1, .code = -1, .root = "0,1#0"},
      {.kind = Kind::kGone, .rank = 2},
      {.kind = Kind::kBye, .rank = -2},
      {.kind = Kind::kHello},
  };
  for (const Frame& frame : cases) {
    const Listening listening = *Listening::Open(0);
    std::thread plays([&] {
      PlayedHub played(Accepted(listening), {.name = "t"});
      ASSERT_TRUE(played.Greet().ok());
      ASSERT_EQ(played.Next()->kind, Kind::kJoin);
      ASSERT_TRUE(played.Send(frame).ok());
      while (played.Next()) {
      }
    });
    {
      const auto one = *Bootstrap::Connect(
          {.rank = 1, .world_size = 2}, "t@127.0.0.1:" + std::to_string(listening.port()), kLong);
      Failures told;
      const auto root = *one->control()->Join({0, 1}, told.Listener());
      EXPECT_EQ(told.Await()[0].code(), absl::StatusCode::kInvalidArgument) << told.Await()[0];
    }
    plays.join();
  }
}

TEST(StrangersTest, TheHubRefusesStrangers) {
  const auto zero = *Bootstrap::Listen({.world_size = 2}, 0, kShort);
  const std::string& address = zero->address();
  const auto error = [&](const JobRank& job, const std::string& to) {
    return Bootstrap::Connect(job, to, kShort).status();
  };
  EXPECT_TRUE(Contains(error({.rank = 1, .world_size = 2}, "x" + address), "another job"));
  EXPECT_EQ(error({.rank = 1, .world_size = 3}, address).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(error({.rank = 1, .world_size = 3}, address), "has 2 ranks, not 3"));
  EXPECT_TRUE(
      Contains(error({.rank = 0, .world_size = 2}, address), "has already joined this job"));
  EXPECT_EQ(error({.rank = 2, .world_size = 2}, address).code(),
            absl::StatusCode::kInvalidArgument);
  for (const char* const bad : {"", "host:1", "t@host", "t@host:0", "t@host:x", "t@host:65536"}) {
    EXPECT_EQ(error({.rank = 1, .world_size = 2}, bad).code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
  // The port is taken.
  const Listening closed = *Listening::Open(0);
  EXPECT_EQ(Bootstrap::Listen({.world_size = 2}, closed.port()).status().code(),
            absl::StatusCode::kUnavailable);
}

// The time in ms until the hub closes the connection; -1: not within 8 s.
int64_t TimeInside(const Socket& socket) {
  const auto begin = std::chrono::steady_clock::now();
  if (!socket.Await(POLLIN, begin + std::chrono::seconds(8))) return -1;
  std::array<char, 1024> bytes;
  while (recv(socket.fd(), bytes.data(), bytes.size(), 0) > 0) {
  }
  return (std::chrono::steady_clock::now() - begin) / milliseconds(1);
}

TEST(StrangersTest, AConnectionHasLittleTimeAndFewBytesBeforeItIsLetIn) {
  const auto zero = *Bootstrap::Listen({.world_size = 2});
  const HubAddress hub = *ParseHubAddress(zero->address());
  const std::string hello = Encode({.kind = Frame::Kind::kHello,
                                    .rank = 1,
                                    .number = 2,
                                    .root = hub.key.name,
                                    .text = std::string(32, 'n')});
  const std::string magic(kMagic);
  const std::pair<std::string, bool> cases[] = {
      {"", false},
      {magic, false},
      {magic.substr(0, 3), false},
      {magic + hello.substr(0, 30), false},
      {"GET / HTTP/1.1\r\n\r\n", true},
      {magic + std::string(5000, 'x'), true},
      {magic + "\xff\xff\xff\x7f" + std::string(1, 0), true},
      {magic + std::string("\x00\x10\x00\x00\x00", 5) + std::string(4096, 'x'), true},
  };
  std::vector<std::thread> threads;
  for (const auto& [said, at_once] : cases) {
    threads.emplace_back([&hub, said = said, at_once = at_once] {
      const Socket socket = DialPort(hub.port);
      socket.SendAll(said).IgnoreError();
      const int64_t time = TimeInside(socket);
      EXPECT_GE(time, at_once ? 0 : 3000) << said.size();
      EXPECT_LT(time, at_once ? 3000 : 8000) << said.size();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StrangersTest, IdleConnectionsDoNotKeepARankOut) {
  const auto zero = *Bootstrap::Listen({.world_size = 2});
  const HubAddress hub = *ParseHubAddress(zero->address());
  std::vector<Socket> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(DialPort(hub.port));
  const auto one = Bootstrap::Connect({.rank = 1, .world_size = 2}, zero->address(), kLong);
  EXPECT_TRUE(one.ok()) << one.status();
}

// Above the limit, the hub closes idle connections for newer ones long before their time is up.
TEST(StrangersTest, TheHubKeepsSoManyIdleConnections) {
  constexpr size_t kMore = 20;
  const auto zero = *Bootstrap::Listen({.world_size = 2});
  const HubAddress hub = *ParseHubAddress(zero->address());
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Socket> idle;
  while (idle.size() < Hub::kMaxStrangers + kMore) idle.push_back(DialPort(hub.port));
  size_t closed = 0;
  while (closed < kMore && std::chrono::steady_clock::now() - begin < Hub::kHandshakeTime / 2) {
    std::this_thread::sleep_for(milliseconds(20));
    closed = std::count_if(idle.begin(), idle.end(), [](const Socket& socket) {
      char byte = 0;
      return recv(socket.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    });
  }
  // Perhaps one more, to make room for the next connection.
  EXPECT_GE(closed, kMore);
  EXPECT_LE(closed, kMore + 1);
}

}  // namespace
}  // namespace meshift
