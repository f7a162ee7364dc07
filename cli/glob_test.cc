#include "cli/glob.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace meshift::cli {
namespace {

TEST(Glob, MatchesAsFnmatchDoes) {
  // Random patterns over few letters reach all cases; seeds are fixed.
  std::mt19937 random(1);
  const std::string letters = "ab*?[]!-\\:";
  const std::string names = "ab[]-!";
  const auto pick = [&](const std::string& from, size_t longest) {
    std::string text;
    for (size_t left = random() % (longest + 1); left > 0; --left) {
      text += from[random() % from.size()];
    }
    return text;
  };
  int matched = 0;
  for (int i = 0; i < 200000; ++i) {
    const std::string glob = pick(letters, 8);
    const std::string name = pick(names, 6);
    // fnmatch has rules of its own for brackets in brackets, and for `:` in them.
    if (glob.find('[') != glob.rfind('[') || glob.find(':') != std::string::npos) continue;
    const bool expected = fnmatch(glob.c_str(), name.c_str(), 0) == 0;
    matched += expected ? 1 : 0;
    ASSERT_EQ(GlobMatches(glob, name), expected) << "'" << glob << "' '" << name << "'";
  }
  EXPECT_GT(matched, 1000);
}

TEST(Glob, KnowsClasses) {
  EXPECT_TRUE(GlobMatches("layers.[[:digit:]]", "layers.7"));
  EXPECT_TRUE(GlobMatches("layers.[[:digit:]_]", "layers._"));
  EXPECT_FALSE(GlobMatches("layers.[![:digit:]]", "layers.7"));
  EXPECT_TRUE(GlobMatches("[[:alpha:]-]", "-"));
}

TEST(Glob, ANulIsAByte) {
  using std::string_literals::operator""s;
  EXPECT_FALSE(GlobMatches("a\0b"s, "a"));
  EXPECT_TRUE(GlobMatches("a\0b"s, "a\0b"s));
  EXPECT_FALSE(GlobMatches("a", "a\0b"s));
}

// fnmatch takes 2^n steps for this pattern.
TEST(Glob, ManyStarsTakeNoLonger) {
  std::string glob;
  for (int i = 0; i < 50; ++i) glob += "a*";
  int64_t steps = 0;
  EXPECT_FALSE(GlobMatches(glob + "b", std::string(2000, 'a'), &steps));
  EXPECT_LT(steps, 101 * 2001);
}

}  // namespace
}  // namespace meshift::cli
