#include "base/clipped.h"

#include <gtest/gtest.h>

namespace meshift {
namespace {

TEST(Clipped, ACutIsBetweenCharacters) {
  EXPECT_EQ(Clipped("abc", 3), "abc");
  EXPECT_EQ(Clipped("abcd", 3), "abc...");
  EXPECT_EQ(Clipped("ab\xc3\xa9", 3), "ab...");
  EXPECT_EQ(Clipped("ab\xc3\xa9", 4), "ab\xc3\xa9");
}

}  // namespace
}  // namespace meshift
