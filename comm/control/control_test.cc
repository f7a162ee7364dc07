// The control channel and Exchange(). Each test runs with ranks connected in one process and by
// TCP.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
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
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "testing/internal/played_peer.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort(300);
constexpr milliseconds kLong(20000);

using Ranks = std::vector<std::unique_ptr<Bootstrap>>;

Ranks Connected(int64_t world_size, bool tcp, milliseconds timeout = kLong) {
  if (!tcp) return *Bootstrap::InProcess(world_size, timeout);
  Ranks ranks;
  ranks.push_back(*Bootstrap::Listen({.world_size = world_size}, 0, timeout));
  for (int64_t rank = 1; rank < world_size; ++rank) {
    ranks.push_back(*Bootstrap::Connect({.rank = rank, .world_size = world_size},
                                        ranks[0]->address(), timeout));
  }
  return ranks;
}

void OnThreads(int64_t n, const std::function<void(int64_t)>& run) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < n; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

class ControlTest : public testing::TestWithParam<bool> {
 protected:
  // Connects `n` ranks, and all join a root over all ranks.
  void Join(int64_t n, milliseconds timeout = kLong) {
    ranks_ = Connected(n, GetParam(), timeout);
    std::vector<int64_t> all(n);
    for (int64_t r = 0; r < n; ++r) all[r] = r;
    failures_ = std::vector<Failures>(n);
    for (int64_t r = 0; r < n; ++r) {
      roots_.push_back(*ranks_[r]->control()->Join(all, failures_[r].Listener()));
    }
    // After the exchange the hub has handled all joins.
    OnThreads(n, [&](int64_t r) { ASSERT_TRUE(ranks_[r]->Exchange("").ok()); });
  }

  const std::string plan_a_ = "plan aa: P -> R";
  const std::string plan_b_ = "plan bb: P -> S(0)";
  Ranks ranks_;
  std::vector<Failures> failures_;
  std::vector<std::unique_ptr<ControlRoot>> roots_;
};

INSTANTIATE_TEST_SUITE_P(Links, ControlTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tcp" : "InProcess"; });

TEST_P(ControlTest, ExchangeGivesEveryRanksBytesByRank) {
  const Ranks ranks = Connected(5, GetParam());
  OnThreads(5, [&](int64_t r) {
    for (int round = 0; round < 50; ++round) {
      const auto all =
          ranks[r]->Exchange(std::string(r * 1000, static_cast<char>('a' + round % 26)));
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ(all->size(), 5);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ((*all)[i], std::string(i * 1000, static_cast<char>('a' + round % 26)));
      }
    }
  });
}

TEST_P(ControlTest, ExchangeNamesWhoIsMissing) {
  const Ranks ranks = Connected(4, GetParam(), kShort);
  OnThreads(2, [&](int64_t r) {
    const auto all = ranks[r]->Exchange("x");
    EXPECT_EQ(all.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(Contains(all.status(), "ranks {2,3} have sent nothing within 300 ms"))
        << all.status();
  });
}

TEST_P(ControlTest, ExchangeEndsAtOnceWhenARankThatIsMissingLeaves) {
  Ranks ranks = Connected(3, GetParam());
  std::thread leaves([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ranks[2].reset();
  });
  OnThreads(2, [&](int64_t r) {
    const auto all = ranks[r]->Exchange("x");
    EXPECT_EQ(all.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Contains(all.status(), "rank 2 has left the job")) << all.status();
  });
  leaves.join();
}

TEST_P(ControlTest, ARankMayLeaveOnceItHasGivenItsBytes) {
  Ranks ranks = Connected(3, GetParam());
  std::thread first([&] { EXPECT_TRUE(ranks[1]->Exchange("b").ok()); });
  std::thread leaves([&] {
    const auto all = ranks[2]->Exchange("c");
    EXPECT_TRUE(all.ok()) << all.status();
    ranks[2].reset();
  });
  std::this_thread::sleep_for(milliseconds(50));
  const auto all = ranks[0]->Exchange("a");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, (std::vector<std::string>{"a", "b", "c"}));
  first.join();
  leaves.join();
}

TEST_P(ControlTest, AwaitIsOkWhereAllRanksAnnounceOnePlan) {
  Join(4);
  OnThreads(4, [&](int64_t r) {
    for (int64_t call = 0; call < 2000; ++call) {
      const uint64_t low = static_cast<uint64_t>(call);
      roots_[r]->Post({.call = call, .high = 1, .low = low, .what = &plan_a_}, call % 7 == 0);
      if (call % 7 == 0) {
        ASSERT_EQ(roots_[r]->Await(call, kLong), absl::OkStatus());
      }
    }
    EXPECT_EQ(roots_[r]->Health(), absl::OkStatus());
  });
}

TEST_P(ControlTest, AwaitNamesBothPlansWhereRanksDisagree) {
  Join(3);
  OnThreads(3, [&](int64_t r) {
    const bool other = r == 1;
    roots_[r]->Post({.call = 0, .high = other ? 2U : 1U, .what = other ? &plan_b_ : &plan_a_},
                    true);
    const absl::Status status = roots_[r]->Await(0, kLong);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Contains(status, "the ranks disagree about call 0")) << status;
    EXPECT_TRUE(Contains(status, "rank 1 has plan bb: P -> S(0)")) << status;
    EXPECT_TRUE(Contains(status, "plan aa: P -> R")) << status;
  });
}

TEST_P(ControlTest, AwaitNamesWhoHasNotMadeTheCall) {
  Join(3);
  roots_[0]->Post({.call = 0, .what = &plan_a_}, true);
  roots_[2]->Post({.call = 0, .what = &plan_a_}, true);
  const absl::Status status = roots_[0]->Await(0, kShort);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Contains(status, "rank 1 has not made call 0")) << status;
  EXPECT_FALSE(Contains(status, "rank 2")) << status;
}

TEST_P(ControlTest, ExplainComparesPostsThatNobodyAnnounced) {
  Join(4);
  const absl::Status late = absl::DeadlineExceededError("all_reduce of group 0-3");
  for (int64_t call = 0; call < 8; ++call) {
    for (int64_t r = 0; r < 4; ++r) {
      if (r == 3 && call >= 6) continue;
      const bool other = r == 2 && call == 7;
      roots_[r]->Post({.call = call, .high = other ? 2U : 1U, .what = other ? &plan_b_ : &plan_a_},
                      false);
    }
  }
  absl::Status status = roots_[0]->Explain(6, late);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(status),
            "all_reduce of group 0-3; rank 3 has not made call 6; it has made only 6 calls");
  status = roots_[0]->Explain(7, late);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(status, "rank 0 has plan aa: P -> R, but rank 2 has plan bb: P -> S(0)"))
      << status;
  EXPECT_EQ(roots_[0]->Explain(5, late), late);
}

TEST_P(ControlTest, ExplainKnowsTheLastThousandCalls) {
  Join(2);
  const absl::Status late = absl::DeadlineExceededError("late");
  for (int64_t call = 0; call < 3000; ++call) {
    roots_[0]->Post({.call = call, .high = 1, .what = &plan_a_}, false);
    roots_[1]->Post({.call = call, .high = call == 2500 ? 2U : 1U, .what = &plan_b_}, false);
  }
  EXPECT_EQ(roots_[0]->Explain(2500, late).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(roots_[0]->Explain(2501, late), late);
  EXPECT_EQ(roots_[0]->Explain(10, late), late);
}

TEST_P(ControlTest, AFailureReachesTheRootsOfPeersOnce) {
  Join(3);
  roots_[1]->Fail(absl::InternalError("cable"));
  roots_[1]->Fail(absl::InternalError("again"));
  for (const int64_t r : {0, 2}) {
    const std::vector<absl::Status> told = failures_[r].Await();
    ASSERT_EQ(told.size(), 1);
    EXPECT_EQ(told[0], absl::InternalError("rank 1 has failed: cable"));
    EXPECT_EQ(roots_[r]->Health(), told[0]);
    EXPECT_EQ(roots_[r]->Await(0, kLong), told[0]);
  }
  EXPECT_EQ(roots_[1]->Health(), absl::OkStatus());
}

// A rank that fails because of another rank passes that failure on; the text has it once.
TEST_P(ControlTest, AFailureThatIsPassedOnStaysWithWhoHadIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"rank 2 has failed: cable", "rank 2 has failed: cable"},
      {"pool 7: rank 12 has failed: cable; rank 0 has not made call 3",
       "rank 12 has failed: cable; rank 0 has not made call 3"},
      {"rank 2 is gone: its process has ended", "rank 2 is gone: its process has ended"},
      // The other rank's failure is not the reason, only additional information.
      {"late; rank 2 is gone: it has ended",
       "rank 1 has failed: late; rank 2 is gone: it has ended"},
      {"rank 1: call 3 has failed: late", "rank 1 has failed: call 3 has failed: late"},
      {"rank 2", "rank 1 has failed: rank 2"},
  };
  for (const auto& [said, told] : cases) {
    const Ranks ranks = Connected(3, GetParam());
    Failures failures;
    const auto zero = *ranks[0]->control()->Join({0, 1}, failures.Listener());
    const auto one = *ranks[1]->control()->Join({0, 1}, nullptr);
    one->Fail(absl::InternalError(said));
    EXPECT_EQ(failures.Await()[0], absl::InternalError(told));
  }
}

TEST_P(ControlTest, AFailureConcernsItsRootOnly) {
  const Ranks ranks = Connected(3, GetParam());
  Failures told;
  Failures none;
  const auto pair0 = *ranks[0]->control()->Join({0, 1}, told.Listener());
  const auto pair1 = *ranks[1]->control()->Join({0, 1}, nullptr);
  const auto other0 = *ranks[0]->control()->Join({0, 2}, none.Listener());
  const auto again0 = *ranks[0]->control()->Join({0, 1}, none.Listener());
  pair1->Fail(absl::InternalError("x"));
  EXPECT_EQ(told.Await().size(), 1);
  EXPECT_EQ(other0->Health(), absl::OkStatus());
  EXPECT_EQ(again0->Health(), absl::OkStatus());
}

// The rank that leaves may have made all calls that its peers need.
TEST_P(ControlTest, ARankThatLeavesFailsOnlyWhoMakesMoreCalls) {
  Join(3);
  for (const auto& root : roots_) root->Post({.call = 0, .what = &plan_a_}, false);
  roots_[0]->Post({.call = 1, .what = &plan_a_}, false);
  roots_[2].reset();
  ranks_[2].reset();
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (roots_[0]->Health().ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const absl::Status left = absl::UnavailableError("rank 2 has left the job, after 1 call");
  EXPECT_EQ(roots_[0]->Health(), left);
  EXPECT_EQ(roots_[1]->Explain(0, absl::OkStatus()), absl::OkStatus());  // it has received the kBye
  EXPECT_EQ(roots_[1]->Health(), absl::OkStatus());
  roots_[1]->Post({.call = 1, .what = &plan_a_}, false);
  EXPECT_EQ(roots_[1]->Health(), left);
  EXPECT_EQ(roots_[1]->Await(1, kLong), left);
}

// When a rank leaves with an error, every wait of the others ends at once with that reason.
TEST_P(ControlTest, TheReasonOfARankThatLeavesEndsEveryWaitOfTheOthers) {
  const absl::Status reason = absl::ResourceExhaustedError("no 8 GiB for the target");
  const absl::Status told = absl::ResourceExhaustedError("rank 2: no 8 GiB for the target");
  Join(4);
  const auto begin = std::chrono::steady_clock::now();
  std::thread leaves([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ranks_[2]->Leave(reason);
    ranks_[2]->Leave(absl::InternalError("the first counts"));
    EXPECT_EQ(ranks_[2]->Exchange("x").status(), reason);
    roots_[2].reset();
    ranks_[2].reset();
  });
  OnThreads(4, [&](int64_t r) {
    if (r == 0) {
      EXPECT_EQ(ranks_[0]->Exchange("x").status(), told);
    } else if (r == 1) {
      roots_[1]->Post({.call = 0, .what = &plan_a_}, true);
      EXPECT_EQ(roots_[1]->Await(0, kLong), told);
    } else if (r == 3) {
      EXPECT_EQ(failures_[3].Await(), std::vector<absl::Status>{told});
    }
  });
  leaves.join();
  for (const int64_t r : {0, 1, 3}) {
    EXPECT_EQ(failures_[r].Await().front(), told);
    EXPECT_EQ(roots_[r]->Health(), told);
    EXPECT_EQ(roots_[r]->Await(1, kLong), told);
    EXPECT_EQ(roots_[r]->Explain(1, absl::DeadlineExceededError("late")), told);
    EXPECT_EQ(ranks_[r]->Exchange("x").status(), told);
    EXPECT_EQ(ranks_[r]->control()->Join({0, 1, 2, 3}, nullptr).status(), told);
  }
  EXPECT_TRUE(ranks_[0]->control()->Join({0, 1}, nullptr).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

TEST_P(ControlTest, ARankThatLeavesBeforeItsFirstCallIsHeard) {
  for (const int64_t left : {2, 0}) {
    Ranks ranks = Connected(3, GetParam());
    Failures failures;
    const auto root = *ranks[1]->control()->Join({0, 1, 2}, failures.Listener());
    ranks[left]->Leave(absl::InvalidArgumentError("option"));
    ranks[left].reset();
    const absl::Status told =
        absl::InvalidArgumentError("rank " + std::to_string(left) + ": option");
    EXPECT_EQ(ranks[1]->Exchange("x").status(), told);
    EXPECT_EQ(failures.Await(), std::vector<absl::Status>{told});
    EXPECT_EQ(root->Await(0, kLong), told);
  }
}

TEST_P(ControlTest, ExplainEndsAtOnceWhenAPeerLeavesWithAReason) {
  Join(3);
  // Waiting for an answer of the rank that left would take half a second.
  std::thread leaves([&] { ranks_[1]->Leave(absl::DataLossError("rank 1: file")); });
  const absl::Status told = absl::DataLossError("rank 1: file");
  EXPECT_EQ(failures_[0].Await(), std::vector<absl::Status>{told});
  EXPECT_EQ(roots_[0]->Explain(3, absl::InternalError("x")), told);
  leaves.join();
}

// Joins after this rank has learned that `left` has left.
absl::StatusOr<std::unique_ptr<ControlRoot>> JoinWithout(ControlChannel* channel, int64_t left,
                                                         const std::vector<int64_t>& ranks) {
  const auto end = std::chrono::steady_clock::now() + kLong;
  // `left` never joins a root over this set.
  while (channel->Join({std::min<int64_t>(left, 1), std::max<int64_t>(left, 1)}, nullptr).ok()) {
    if (std::chrono::steady_clock::now() > end) return absl::DeadlineExceededError("is still here");
    std::this_thread::sleep_for(milliseconds(1));
  }
  return channel->Join(ranks, nullptr);
}

// The rank that left may have finished with the root.
TEST_P(ControlTest, ARankMayLeaveOnceItHasJoinedThoughOthersHaveNot) {
  for (const int64_t left : {2, 0}) {
    Ranks ranks = Connected(3, GetParam());
    ASSERT_TRUE(ranks[left]->control()->Join({0, 1, 2}, nullptr).ok());
    ranks[left].reset();
    const auto joined = JoinWithout(ranks[1]->control(), left, {0, 1, 2});
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE((*joined)->Health().ok());
    // It has not joined this one.
    EXPECT_EQ(ranks[1]->control()->Join({0, 1, 2}, nullptr).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

TEST_P(ControlTest, JoinRefusesOtherRanks) {
  const Ranks ranks = Connected(3, GetParam());
  for (const std::vector<int64_t>& bad :
       {std::vector<int64_t>{1, 2}, {1, 0}, {0, 0}, {0, 3}, {-1, 0}, {}}) {
    EXPECT_EQ(ranks[0]->control()->Join(bad, nullptr).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A rank whose process dies sends no kBye.
TEST(TcpControlTest, AProcessThatDiesFailsTheRootsItIsIn) {
  const auto zero = *Bootstrap::Listen({.world_size = 3});
  const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 3}, zero->address());
  Failures told;
  Failures told_one;
  const auto root0 = *zero->control()->Join({0, 1, 2}, told.Listener());
  const auto root1 = *one->control()->Join({0, 1, 2}, told_one.Listener());
  const auto pair = *zero->control()->Join({0, 1}, nullptr);
  {
    const HubAddress hub = *ParseHubAddress(zero->address());
    PlayedRank two(DialPort(hub.port), {.rank = 2, .world_size = 3}, hub.key);
    ASSERT_TRUE(two.Greet().ok());
  }
  for (Failures* failures : {&told, &told_one}) {
    const std::vector<absl::Status> statuses = failures->Await();
    ASSERT_EQ(statuses.size(), 1);
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Contains(statuses[0], "rank 2 is gone")) << statuses[0];
  }
  EXPECT_EQ(pair->Health(), absl::OkStatus());
  EXPECT_EQ(zero->control()->Join({0, 2}, nullptr).status().code(), absl::StatusCode::kUnavailable);
  const auto exchanged = one->Exchange("x");
  EXPECT_TRUE(Contains(exchanged.status(), "rank 2 is gone")) << exchanged.status();
}

TEST(TcpControlTest, ALateRankHearsWhyOneHasLeft) {
  const auto zero = *Bootstrap::Listen({.world_size = 3});
  const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 3}, zero->address());
  one->Leave(absl::InternalError("early"));
  const auto two = *Bootstrap::Connect({.rank = 2, .world_size = 3}, zero->address());
  EXPECT_EQ(two->Exchange("x").status(), absl::InternalError("rank 1: early"));
  EXPECT_EQ(two->control()->Join({1, 2}, nullptr).status(), absl::InternalError("rank 1: early"));
}

TEST(TcpControlTest, AHubThatLeavesIsMissedByWhoeverStillNeedsIt) {
  auto zero = *Bootstrap::Listen({.world_size = 2}, 0, kShort);
  const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 2}, zero->address(), kShort);
  const auto root = *one->control()->Join({0, 1}, nullptr);
  zero.reset();
  const auto exchanged = one->Exchange("x");
  EXPECT_EQ(exchanged.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(exchanged.status(), "rank 0 has left the job")) << exchanged.status();
  EXPECT_EQ(root->Health(), absl::OkStatus());
  // At once, since no hub can settle the call.
  EXPECT_EQ(root->Await(0, kLong), exchanged.status());
  EXPECT_EQ(one->control()->Join({0, 1}, nullptr).status().code(), absl::StatusCode::kUnavailable);
}

TEST(TcpControlTest, AHubThatDiesFailsAllRoots) {
  const Listening hub = *Listening::Open(0);
  std::thread dies([&] {
    PlayedHub played(Accepted(hub), {.name = "t"});
    ASSERT_TRUE(played.Greet().ok());
    std::this_thread::sleep_for(milliseconds(200));
  });
  const auto one = *Bootstrap::Connect({.rank = 1, .world_size = 2},
                                       "t@127.0.0.1:" + std::to_string(hub.port()), kLong);
  Failures told;
  const auto root = *one->control()->Join({0, 1}, told.Listener());
  EXPECT_TRUE(Contains(told.Await()[0], "the hub in rank 0's process is gone"));
  EXPECT_EQ(root->Health().code(), absl::StatusCode::kUnavailable);
  dies.join();
}

// Ranks that learn of a dead rank may end. Rank 0, with the hub, may be one of them, in order or
// not.
TEST(TcpControlTest, AHubThatEndsBehindARankNamesTheFirstThatWasGone) {
  for (const bool leaves : {false, true}) {
    const Listening hub = *Listening::Open(0);
    std::thread ends([&] {
      PlayedHub played(Accepted(hub), {.name = "t"});
      ASSERT_TRUE(played.Greet().ok());
      ASSERT_TRUE(played.Send({.kind = Frame::Kind::kBye, .rank = 1}).ok());
      ASSERT_TRUE(played.Send({.kind = Frame::Kind::kGone, .rank = 4}).ok());
      ASSERT_TRUE(played.Send({.kind = Frame::Kind::kGone, .rank = 2}).ok());
      if (!leaves) return;
      ASSERT_TRUE(played.Send({.kind = Frame::Kind::kBye, .rank = -1}).ok());
    });
    const auto three = *Bootstrap::Connect({.rank = 3, .world_size = 5},
                                           "t@127.0.0.1:" + std::to_string(hub.port()), kLong);
    EXPECT_EQ(
        Message(three->Exchange("x").status()),
        std::string(leaves ? "rank 0 has left the job" : "the hub in rank 0's process is gone") +
            ", after this: rank 4 is gone: its process has ended or its connection is lost");
    ends.join();
  }
}

TEST(TcpControlTest, ARootWhoseHubDiesBehindARankHearsOfTheRank) {
  const Listening hub = *Listening::Open(0);
  std::atomic<bool> joined = false;
  std::thread dies([&] {
    PlayedHub played(Accepted(hub), {.name = "t"});
    ASSERT_TRUE(played.Greet().ok());
    while (!joined) std::this_thread::yield();
    ASSERT_TRUE(played.Send({.kind = Frame::Kind::kGone, .rank = 4}).ok());
  });
  const auto three = *Bootstrap::Connect({.rank = 3, .world_size = 5},
                                         "t@127.0.0.1:" + std::to_string(hub.port()), kLong);
  Failures told;
  const auto root = *three->control()->Join({0, 3}, told.Listener());
  joined = true;
  EXPECT_TRUE(Contains(told.Await()[0], "rank 0's process is gone, after this: rank 4 is gone"));
  dies.join();
}

TEST(TcpControlTest, ASilentHubIsGivenUpInTimeWhateverSignalsCome) {
  std::optional<Listening> hub = *Listening::Open(0);
  const std::string port = std::to_string(hub->port());
  struct sigaction ignored = {};
  ignored.sa_handler = [](int) {};
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGUSR1, &ignored, &before), 0);
  std::atomic<bool> given_up = false;
  const pthread_t waits = pthread_self();
  std::thread interrupts([&] {
    // Ends waits that have no time-out.
    const auto end = std::chrono::steady_clock::now() + 10 * kShort;
    while (!given_up && std::chrono::steady_clock::now() < end) {
      pthread_kill(waits, SIGUSR1);
      std::this_thread::sleep_for(milliseconds(5));
    }
    hub.reset();
  });
  const absl::Status status =
      Bootstrap::Connect({.rank = 1, .world_size = 2}, "t@127.0.0.1:" + port, kShort).status();
  given_up = true;
  interrupts.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(status.ToString(), "DEADLINE_EXCEEDED: no hub accepted this rank: port " + port +
                                   " of 127.0.0.1: the hub does not answer rank 1");
}

}  // namespace
}  // namespace meshift
