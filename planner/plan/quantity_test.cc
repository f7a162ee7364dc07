#include "planner/plan/quantity.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace meshift {
namespace {

TEST(Quantity, WhatPrintsParses) {
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1536}, int64_t{8178893},
        int64_t{3} << 30, (int64_t{1} << 60) + 1, INT64_MAX}) {
    EXPECT_EQ(ParseBytes(ExactBytesText(bytes)).value(), bytes) << ExactBytesText(bytes);
  }
}

TEST(Quantity, BytesWithAndWithoutUnits) {
  EXPECT_EQ(ParseBytes("4096").value(), 4096);
  EXPECT_EQ(ParseBytes("4096B").value(), 4096);
  EXPECT_EQ(ParseBytes("1.5GiB").value(), int64_t{3} << 29);
  EXPECT_EQ(ParseBytes("0.25 KiB").value(), 256);
  EXPECT_EQ(ParseBytes("7 EiB").value(), int64_t{7} << 60);
}

TEST(Quantity, WhatIsNoNumberOfBytes) {
  for (const char* text :
       {"", " ", "-1", "1.5", "1.5 B", "1 KB", "1k", "KiB", "1  KiB", "1 KiB ", " 1", "1,0", "0x10",
        "8 EiB", "9223372036854775808", "1..5 KiB", "1 ms", "1 KiB, 2", "1e3"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseBytes(text).status())) << text;
  }
}

TEST(Quantity, IsTakenOffTheBeginning) {
  std::string_view text = "-3 ns, 7.5 KiB";
  EXPECT_EQ(TakeQuantity(kTimes, &text), -3);
  EXPECT_EQ(text, ", 7.5 KiB");
  EXPECT_EQ(TakeQuantity(kBytes, &text), std::nullopt);
  text.remove_prefix(2);
  EXPECT_EQ(TakeQuantity(kBytes, &text), 7680);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace meshift
