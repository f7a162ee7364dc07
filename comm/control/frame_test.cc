#include "comm/control/frame.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

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
  EXPECT_EQ(DecodeRanks(EncodeRanks({0, 12, 5})), (std::vector<int64_t>{0, 12, 5}));
  EXPECT_EQ(DecodeRanks(""), std::vector<int64_t>());
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
