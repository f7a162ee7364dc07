#include "comm/control/frame.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/frame_rules.h"

namespace meshift {
namespace {

Frame Example() {
  return {.kind = Frame::Kind::kAnnounce,
          .rank = -1,
          .number = INT64_MAX,
          .id = INT64_MIN,
          .code = 7,
          .high = UINT64_MAX,
          .low = 1,
          .root = "0,1#0",
          .text = std::string("a\0b", 3)};
}

TEST(FrameTest, WhatIsEncodedIsReadByteByByte) {
  FrameReader reader;
  const std::string bytes = Encode(Example()) + Encode({});
  std::vector<Frame> frames;
  for (const char byte : bytes) {
    reader.Add({&byte, 1});
    auto frame = reader.Next();
    ASSERT_TRUE(frame.ok());
    if (frame->has_value()) frames.push_back(**frame);
  }
  EXPECT_EQ(frames, (std::vector<Frame>{Example(), Frame{}}));
}

TEST(FrameTest, ListsKeepEmptyTexts) {
  const std::vector<std::string> texts = {"", "x", "", std::string(1000, 'y')};
  EXPECT_EQ(*DecodeList(EncodeList(texts)), texts);
  EXPECT_FALSE(DecodeList(EncodeList(texts).substr(0, 20)).ok());
}

TEST(FrameTest, RanksAreWrittenByTheirRuns) {
  const std::pair<std::vector<int64_t>, const char*> cases[] = {{{}, ""},
                                                                {{7}, "7"},
                                                                {{0, 1}, "0,1"},
                                                                {{0, 1, 2}, "0-2"},
                                                                {{0, 5, 12}, "0,5,12"},
                                                                {{0, 2, 3, 4, 5, 9}, "0,2-5,9"}};
  for (const auto& [ranks, text] : cases) {
    EXPECT_EQ(EncodeRanks(ranks), text);
    EXPECT_EQ(*DecodeRanks(text, 13), ranks);
  }
  // A run is at most as long as the world.
  for (const char* const bad :
       {"13", "0-13", "0-9223372036854775807", "0-18446744073709551616", "-1", "0,", ",0", "0,,1",
        "1,0", "0-3,2", "3-1", "x", "0-", "-", "0 ", "0-1-2"}) {
    EXPECT_FALSE(DecodeRanks(bad, 13).ok()) << bad;
  }
}

// Length and kind come first, so an invalid frame is refused before its other bytes are collected.
TEST(FrameTest, ALongFrameIsRefusedAsSoonAsItBegins) {
  const std::string bytes = Encode({.kind = Frame::Kind::kLeave, .text = std::string(5000, 'x')});
  FrameReader reader(MemberLimits(Side::kRank, 4));
  reader.Add(bytes.substr(0, 4));
  EXPECT_TRUE(reader.Next().ok());
  reader.Add(bytes.substr(4, 1));
  EXPECT_FALSE(reader.Next().ok());
  FrameReader handshake(HandshakeLimits());
  handshake.Add(Encode({.kind = Frame::Kind::kExchange}).substr(0, 5));
  EXPECT_FALSE(handshake.Next().ok());
}

// For each kind and side, each field out of its range.
TEST(FrameTest, EveryFieldOfEveryKindIsCheckedAgainstItsRange) {
  constexpr int64_t kWorld = 200;
  const std::string long_text(kMaxRanksText + 22, 'x');
  constexpr int64_t kNumbers[] = {INT64_MIN, -5, -2, -1,     0,         1,
                                  16,        17, 99, kWorld, kMaxRanks, INT64_MAX};
  int checked = 0;
  for (const Side side : {Side::kRank, Side::kHub}) {
    for (int kind = 0; kind <= static_cast<int>(Frame::kLast); ++kind) {
      // Some frame of a kind that this side sends is valid.
      Frame right{.kind = static_cast<Frame::Kind>(kind)};
      if (!CheckFrame(right, side, kWorld).ok()) right.number = right.code = 1;
      if (!CheckFrame(right, side, kWorld).ok()) right.number = 0;
      const bool sent = CheckFrame(right, side, kWorld).ok();
      const bool hello = right.kind == Frame::Kind::kHello;
      for (int64_t Frame::*field : {&Frame::rank, &Frame::number, &Frame::id, &Frame::code}) {
        for (const int64_t value : kNumbers) {
          Frame frame = right;
          frame.*field = value;
          ++checked;
          if (!CheckFrame(frame, side, kWorld).ok()) continue;
          // A field that passes is safe as an index.
          EXPECT_TRUE(sent);
          EXPECT_GE(value, field == &Frame::rank && side == Side::kHub ? -1 : 0);
          if (field == &Frame::rank && !hello) {
            EXPECT_LT(value, kWorld);
          }
          if (field == &Frame::code) {
            EXPECT_LE(value, 16);
          }
          EXPECT_LE(value, kMaxNumber);
        }
      }
      for (std::string Frame::*field : {&Frame::root, &Frame::text}) {
        Frame frame = right;
        frame.*field = long_text;
        if (side == Side::kHub && frame.kind == Frame::Kind::kExchange) continue;  // up to 128 MiB
        EXPECT_FALSE(CheckFrame(frame, side, kWorld).ok()) << kind;
      }
      Frame frame = right;
      frame.low = 1;
      const bool plan = frame.kind == Frame::Kind::kAnnounce || frame.kind == Frame::Kind::kAnswer;
      EXPECT_EQ(CheckFrame(frame, side, kWorld).ok(), sent && plan) << kind;
    }
  }
  EXPECT_GT(checked, 1000);
  EXPECT_FALSE(CheckFrame({.kind = static_cast<Frame::Kind>(99)}, Side::kRank, kWorld).ok());
}

TEST(FrameTest, DamagedBytesAreRefusedOrReadButNeverOverrun) {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = Encode(Example());
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    FrameReader reader;
    reader.Add(bytes);
    refused += reader.Next().ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace meshift
