// The frames of the hub, their receivers and their order; its limits.
#include "comm/control/hub.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/control/client.h"
#include "comm/control/frame.h"
#include "comm/control/message_router.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "testing/internal/played_peer.h"

namespace meshift {
namespace {

constexpr std::chrono::seconds kLong(20);

const JobKey kKey = {.name = "job", .secret = "secret"};

// Connects rank `rank` to a hub in this process.
PlayedRank Come(Hub* hub, int64_t rank, int64_t world_size) {
  auto [mine, hubs] = *SocketPair();
  hub->Adopt(std::move(hubs));
  PlayedRank played(std::move(mine), {.rank = rank, .world_size = world_size}, kKey);
  EXPECT_TRUE(played.Greet().ok());
  return played;
}

// Rank 0's process may end when it learns of an error; the others must have received it by then.
TEST(HubTest, RankZeroIsToldLast) {
  constexpr int64_t kRanks = 4;
  using Kind = Frame::Kind;
  const auto hub = *Hub::Start(kRanks, kKey, std::nullopt);
  std::vector<PlayedRank> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(Come(hub.get(), rank, kRanks));
    ASSERT_TRUE(ranks[rank].Send({.kind = Kind::kJoin, .root = "0-3#0", .text = "0-3"}).ok());
    // After the answer the hub has handled the join.
    ASSERT_TRUE(ranks[rank].Send({.kind = Kind::kMissing}).ok());
    ASSERT_EQ(ranks[rank].Next()->kind, Kind::kMissing);
  }
  const auto announce = [&](int64_t rank, uint64_t plan) {
    return ranks[rank].Send(
        {.kind = Kind::kAnnounce, .low = plan, .root = "0-3#0", .text = "a plan"});
  };
  ASSERT_TRUE(announce(3, 1).ok());
  ASSERT_TRUE(announce(1, 2).ok());
  EXPECT_EQ(ranks[0].Next()->kind, Kind::kSettled);
  for (int64_t rank = 1; rank < kRanks; ++rank) {
    const std::optional<Frame> frame = ranks[rank].Next(/*waits=*/false);
    ASSERT_TRUE(frame.has_value()) << rank;
    EXPECT_EQ(frame->kind, Kind::kSettled) << rank;
  }
  // The same for a process that is gone.
  ranks[2].HangUp();
  EXPECT_EQ(ranks[0].Next()->kind, Kind::kGone);
  for (const int64_t rank : {1, 3}) {
    const std::optional<Frame> frame = ranks[rank].Next(/*waits=*/false);
    ASSERT_TRUE(frame.has_value()) << rank;
    EXPECT_EQ(frame->kind, Kind::kGone) << rank;
  }
}

TEST(HubTest, ALateRankHearsWhoWentInTheirOrder) {
  const auto hub = *Hub::Start(4, kKey, std::nullopt);
  PlayedRank zero = Come(hub.get(), 0, 4);
  for (const int64_t rank : {3, 1}) {
    Come(hub.get(), rank, 4);  // and disconnects
    EXPECT_EQ(zero.Next()->rank, rank);
  }
  PlayedRank late = Come(hub.get(), 2, 4);
  EXPECT_EQ(late.Next()->rank, 3);
  EXPECT_EQ(late.Next()->rank, 1);
}

// Rank 0's process, and the hub, may end after Fail() returns.
TEST(HubTest, AFailureIsWithThePeersWhenItIsTold) {
  constexpr int kTimes = 50;
  for (int i = 0; i < kTimes; ++i) {
    const auto hub = *Hub::Start(2, kKey, std::nullopt);
    PlayedRank peer = Come(hub.get(), 1, 2);
    auto [own, hubs_own] = *SocketPair();
    hub->Adopt(std::move(hubs_own));
    const auto client = *Client::Start({.rank = 0, .world_size = 2}, std::move(own), kKey,
                                       std::chrono::steady_clock::now() + kLong);
    const auto root = *client->Join({0, 1}, nullptr);
    root->Fail(absl::InternalError("cable"));
    const std::optional<Frame> frame = peer.Next(/*waits=*/false);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, Frame::Kind::kFail);
    EXPECT_EQ(frame->text, "cable");
  }
}

// The rank does not read, and has not closed its connection.
TEST(HubTest, TheHubDoesNotWaitForARankThatTakesNothing) {
  auto hub = *Hub::Start(2, kKey, std::nullopt);
  const PlayedRank one = Come(hub.get(), 1, 2);
  ASSERT_EQ(shutdown(one.socket().fd(), SHUT_RD), 0);
  const auto begin = std::chrono::steady_clock::now();
  hub.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
}

// A rank that does not read is dropped at the limit of queued bytes; the others are not affected.
TEST(HubTest, ARankThatNeverReadsIsDroppedAtTheLimit) {
  const auto hub = *Hub::Start(2, kKey, std::nullopt);
  PlayedRank zero = Come(hub.get(), 0, 2);
  const PlayedRank one = Come(hub.get(), 1, 2);
  // The hub queues an answer to each question.
  std::string questions;
  for (int i = 0; i < 1000; ++i) questions += Encode({.kind = Frame::Kind::kMissing});
  int rounds = 0;
  while (one.socket().SendAll(questions).ok() && rounds < 10000) ++rounds;
  EXPECT_LT(rounds, 10000);
  const std::optional<Frame> told = zero.Next();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->kind, Frame::Kind::kGone);
  EXPECT_EQ(told->rank, 1);
}

// A rank that sends more than the hub handles per turn does not delay the answers to others.
TEST(HubTest, ARankThatStreamsIsServedInTurns) {
  constexpr int kQuestions = 40 * Hub::kTurnFrames;
  const auto hub = *Hub::Start(2, kKey, std::nullopt);
  PlayedRank streams = Come(hub.get(), 0, 2);
  PlayedRank asks = Come(hub.get(), 1, 2);
  const Frame question{.kind = Frame::Kind::kMissing};
  std::string questions;
  for (int i = 0; i < kQuestions; ++i) questions += Encode(question);
  // The number of answers to the flood while the other rank waits, as the median of several rounds:
  // on a busy machine the hub may handle more frames before the other rank's question arrives.
  std::vector<int> meanwhile;
  for (int round = 0; round < 31; ++round) {
    ASSERT_TRUE(streams.socket().SendAll(questions).ok());
    int answered = 0;
    while (streams.Next(/*waits=*/false)) ++answered;
    const int before = answered;
    ASSERT_TRUE(asks.Send(question).ok());
    ASSERT_TRUE(asks.Next().has_value());
    while (streams.Next(/*waits=*/false)) ++answered;
    meanwhile.push_back(answered - before);
    for (; answered < kQuestions; ++answered) ASSERT_TRUE(streams.Next().has_value());
  }
  std::nth_element(meanwhile.begin(), meanwhile.begin() + 15, meanwhile.end());
  EXPECT_LT(meanwhile[15], 8 * Hub::kTurnFrames);
}

// Nor does a rank whose stream has no end: the hub reads a limited number of bytes, then turns to
// the others.
TEST(HubTest, AStreamWithoutEndDoesNotKeepOthersFromTheirAnswers) {
  const auto hub = *Hub::Start(2, kKey, std::nullopt);
  PlayedRank streams = Come(hub.get(), 0, 2);
  PlayedRank asks = Come(hub.get(), 1, 2);
  const Frame question{.kind = Frame::Kind::kMissing};
  std::string questions;
  while (questions.size() < Hub::kTurnBytes) questions += Encode(question);
  std::atomic<bool> stop = false;
  std::thread writes([&] {
    while (!stop) ASSERT_TRUE(streams.socket().SendAll(questions).ok());
    shutdown(streams.socket().fd(), SHUT_WR);
  });
  std::thread reads([&] {
    while (streams.Next()) {
    }
  });
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(asks.Send(question).ok());
    ASSERT_TRUE(asks.Next().has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  stop = true;
  writes.join();
  reads.join();
}

// The numbers of roots and calls that a rank may leave open are limited.
TEST(HubTest, RootsAndCallsThatAreLeftOpenHaveALimit) {
  using Kind = Frame::Kind;
  const auto told_why = [](PlayedRank* rank) {
    const std::optional<Frame> told = rank->Next();
    if (!told) return std::string("nothing");
    EXPECT_EQ(told->kind, Kind::kDropped);
    return told->text;
  };
  {
    const auto hub = *Hub::Start(2, kKey, std::nullopt);
    PlayedRank one = Come(hub.get(), 1, 2);
    for (int64_t i = 0; i <= MessageRouter::kMaxRoots; ++i) {
      const std::string name = "0,1#" + std::to_string(i);
      ASSERT_TRUE(one.Send({.kind = Kind::kJoin, .root = name, .text = "0,1"}).ok());
    }
    EXPECT_EQ(told_why(&one), "it has opened 16384 roots; that is the limit");
  }
  const auto hub = *Hub::Start(2, kKey, std::nullopt);
  PlayedRank one = Come(hub.get(), 1, 2);
  ASSERT_TRUE(one.Send({.kind = Kind::kJoin, .root = "0,1#0", .text = "0,1"}).ok());
  for (int64_t call = 0; call <= static_cast<int64_t>(MessageRouter::kMaxCalls); ++call) {
    ASSERT_TRUE(one.Send({.kind = Kind::kAnnounce, .number = call, .root = "0,1#0"}).ok());
  }
  EXPECT_EQ(told_why(&one),
            "one root has 4096 calls on which its ranks have not agreed; that is the limit");
}

// When rank 0 leaves, the hub ends; the other ranks still receive rank 0's earlier frames.
TEST(HubTest, WhatWasSaidBeforeTheHubLeavesIsPassedOn) {
  constexpr int kTimes = 500;
  for (int i = 0; i < kTimes; ++i) {
    auto hub = *Hub::Start(2, kKey, std::nullopt);
    PlayedRank zero = Come(hub.get(), 0, 2);
    PlayedRank one = Come(hub.get(), 1, 2);
    ASSERT_TRUE(zero.Send({.kind = Frame::Kind::kBye, .text = "joins"}).ok());
    hub.reset();
    const std::optional<Frame> frame = one.Next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, Frame::Kind::kBye);
    ASSERT_EQ(frame->rank, 0) << "time " << i;
    EXPECT_EQ(frame->text, "joins");
  }
}

}  // namespace
}  // namespace meshift
