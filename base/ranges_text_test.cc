#include "base/ranges_text.h"

#include <gtest/gtest.h>

namespace meshift {
namespace {

TEST(RangesTextTest, RunsAreRanges) {
  EXPECT_EQ(RangesText({}), "");
  EXPECT_EQ(RangesText({3}), "3");
  EXPECT_EQ(RangesText({0, 1, 2, 7, 9, 10}), "0-2,7,9-10");
  EXPECT_EQ(RangesText({2, 1, 0, 1}), "2,1,0-1");
}

}  // namespace
}  // namespace meshift
