#include "cli/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace meshift::cli {
namespace {

TEST(Text, BytesAreExactOrHaveOneDecimal) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(1048575), "1.0 MiB");
  EXPECT_EQ(BytesText(int64_t{4} << 20), "4 MiB");
  EXPECT_EQ(BytesText(8178893), "7.8 MiB");
  EXPECT_EQ(BytesText(INT64_MAX), "8.0 EiB");
}

TEST(Text, TimesChangeUnitAtAThousand) {
  EXPECT_EQ(TimeText(0), "0 ns");
  EXPECT_EQ(TimeText(999), "999 ns");
  EXPECT_EQ(TimeText(12345), "12.3 us");
  EXPECT_EQ(TimeText(999'949), "999.9 us");
  EXPECT_EQ(TimeText(999'950), "1.0 ms");
  EXPECT_EQ(TimeText(2'500'000'000), "2.5 s");
}

TEST(Text, CountsHaveAPlural) {
  EXPECT_EQ(CountText(0, "rank"), "0 ranks");
  EXPECT_EQ(CountText(1, "rank"), "1 rank");
}

TEST(Text, RanksAreShownAsRuns) {
  EXPECT_EQ(RanksText({}), "");
  EXPECT_EQ(RanksText(std::vector<int64_t>{3}), "3");
  EXPECT_EQ(RanksText(std::vector<int64_t>{0, 1, 2, 7, 9, 10}), "0-2,7,9-10");
}

}  // namespace
}  // namespace meshift::cli
