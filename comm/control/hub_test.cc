// What the hub says to whom, and when.
#include "comm/control/hub.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/control/client.h"
#include "comm/control/frame.h"
#include "comm/control/job_rank.h"
#include "comm/control/socket.h"

namespace meshift {
namespace {

constexpr std::chrono::seconds kLong(20);

// Rank 0's process may end as soon as it knows of an error; by then the others' sockets have it.
TEST(HubTest, RankZeroIsToldLast) {
  constexpr int64_t kRanks = 4;
  using Kind = Frame::Kind;
  const auto hub = *Hub::Start(kRanks, "token", std::nullopt);
  std::vector<Socket> sockets;
  std::vector<FrameReader> readers(kRanks);
  // The next frame of a rank; waits for it or not.
  const auto next = [&](int64_t rank, bool waits) -> std::optional<Frame> {
    while (true) {
      std::optional<Frame> frame = *readers[rank].Next();
      if (frame) return frame;
      std::array<char, 1024> bytes;
      const ssize_t size =
          recv(sockets[rank].fd(), bytes.data(), bytes.size(), waits ? 0 : MSG_DONTWAIT);
      if (size <= 0) return std::nullopt;
      readers[rank].Add({bytes.data(), static_cast<size_t>(size)});
    }
  };
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    auto [mine, hubs] = *SocketPair();
    sockets.push_back(std::move(mine));
    hub->Adopt(std::move(hubs));
    for (const Frame& frame :
         {Frame{.kind = Kind::kHello, .rank = rank, .number = kRanks, .text = "token"},
          Frame{.kind = Kind::kJoin, .root = "all", .text = "0,1,2,3"}}) {
      ASSERT_TRUE(sockets[rank].SendAll(Encode(frame)).ok());
    }
    ASSERT_EQ(next(rank, /*waits=*/true)->kind, Kind::kWelcome);
  }
  const auto announce = [&](int64_t rank, uint64_t plan) {
    const Frame frame{.kind = Kind::kAnnounce, .low = plan, .root = "all", .text = "a plan"};
    return sockets[rank].SendAll(Encode(frame));
  };
  ASSERT_TRUE(announce(3, 1).ok());
  ASSERT_TRUE(announce(1, 2).ok());
  EXPECT_EQ(next(0, /*waits=*/true)->kind, Kind::kSettled);
  for (int64_t rank = 1; rank < kRanks; ++rank) {
    const std::optional<Frame> frame = next(rank, /*waits=*/false);
    ASSERT_TRUE(frame.has_value()) << rank;
    EXPECT_EQ(frame->kind, Kind::kSettled) << rank;
  }
  // A process that is gone, too.
  sockets[2] = Socket();
  EXPECT_EQ(next(0, /*waits=*/true)->kind, Kind::kGone);
  for (const int64_t rank : {1, 3}) {
    const std::optional<Frame> frame = next(rank, /*waits=*/false);
    ASSERT_TRUE(frame.has_value()) << rank;
    EXPECT_EQ(frame->kind, Kind::kGone) << rank;
  }
}

TEST(HubTest, ALateRankHearsWhoWentInTheirOrder) {
  const auto hub = *Hub::Start(4, "token", std::nullopt);
  struct Rank {
    Socket socket;
    FrameReader reader = {};
    Frame Next() {
      std::array<char, 1024> bytes;
      while (true) {
        if (std::optional<Frame> frame = *reader.Next()) return *frame;
        const ssize_t size = recv(socket.fd(), bytes.data(), bytes.size(), 0);
        if (size <= 0) return {};
        reader.Add({bytes.data(), static_cast<size_t>(size)});
      }
    }
  };
  const auto come = [&](int64_t number) {
    auto [mine, hubs] = *SocketPair();
    hub->Adopt(std::move(hubs));
    Rank rank{.socket = std::move(mine)};
    const Frame hello{.kind = Frame::Kind::kHello, .rank = number, .number = 4, .text = "token"};
    EXPECT_TRUE(rank.socket.SendAll(Encode(hello)).ok());
    EXPECT_EQ(rank.Next().kind, Frame::Kind::kWelcome);
    return rank;
  };
  Rank zero = come(0);
  for (const int64_t rank : {3, 1}) {
    come(rank);  // and goes
    EXPECT_EQ(zero.Next().rank, rank);
  }
  Rank late = come(2);
  EXPECT_EQ(late.Next().rank, 3);
  EXPECT_EQ(late.Next().rank, 1);
}

// Its process may end then, and the hub with it.
TEST(HubTest, AFailureIsWithThePeersWhenItIsTold) {
  constexpr int kTimes = 50;
  for (int i = 0; i < kTimes; ++i) {
    const auto hub = *Hub::Start(2, "token", std::nullopt);
    auto [peer, hubs_peer] = *SocketPair();
    hub->Adopt(std::move(hubs_peer));
    ASSERT_TRUE(
        peer.SendAll(Encode({.kind = Frame::Kind::kHello, .rank = 1, .number = 2, .text = "token"}))
            .ok());
    std::array<char, 1024> bytes;
    ASSERT_GT(recv(peer.fd(), bytes.data(), bytes.size(), 0), 0);  // the welcome
    auto [own, hubs_own] = *SocketPair();
    hub->Adopt(std::move(hubs_own));
    const auto client = *Client::Start({.rank = 0, .world_size = 2}, std::move(own), "token",
                                       std::chrono::steady_clock::now() + kLong);
    const auto root = *client->Join({0, 1}, nullptr);
    root->Fail(absl::InternalError("cable"));
    const ssize_t size = recv(peer.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    ASSERT_GT(size, 0);
    FrameReader reader;
    reader.Add({bytes.data(), static_cast<size_t>(size)});
    const std::optional<Frame> frame = *reader.Next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, Frame::Kind::kFail);
    EXPECT_EQ(frame->text, "cable");
  }
}

// Rank 0 leaves, and the hub with it: what it had said before, the others must still learn.
TEST(HubTest, WhatWasSaidBeforeTheHubLeavesIsPassedOn) {
  constexpr int kTimes = 500;
  for (int i = 0; i < kTimes; ++i) {
    auto hub = *Hub::Start(2, "token", std::nullopt);
    std::array<char, 1024> bytes;
    std::vector<Socket> sockets;
    for (int64_t rank = 0; rank < 2; ++rank) {
      auto [mine, hubs] = *SocketPair();
      hub->Adopt(std::move(hubs));
      const Frame hello{.kind = Frame::Kind::kHello, .rank = rank, .number = 2, .text = "token"};
      ASSERT_TRUE(mine.SendAll(Encode(hello)).ok());
      ASSERT_GT(recv(mine.fd(), bytes.data(), bytes.size(), 0), 0);  // the welcome
      sockets.push_back(std::move(mine));
    }
    ASSERT_TRUE(
        sockets[0].SendAll(Encode({.kind = Frame::Kind::kBye, .rank = 0, .text = "joins"})).ok());
    hub.reset();
    const ssize_t size = recv(sockets[1].fd(), bytes.data(), bytes.size(), 0);
    ASSERT_GT(size, 0);
    FrameReader reader;
    reader.Add({bytes.data(), static_cast<size_t>(size)});
    const std::optional<Frame> frame = *reader.Next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, Frame::Kind::kBye);
    ASSERT_EQ(frame->rank, 0) << "time " << i;
    EXPECT_EQ(frame->text, "joins");
  }
}

}  // namespace
}  // namespace meshift
