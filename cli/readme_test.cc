// The README shows what the commands print today: every block of it that begins with "$ meshift"
// must be the output of its first line.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/test_util.h"

namespace meshift::cli {
namespace {

// Words as a shell splits them, with single quotes.
std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

TEST(Readme, ShowsWhatTheCommandsPrint) {
  std::ifstream file("README.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string start = "```\n$ meshift ";
  int blocks = 0;
  for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
    const size_t args = at + start.size();
    const size_t body = text.find('\n', args) + 1;
    const std::string line = text.substr(args, body - 1 - args);
    const std::string shown = text.substr(body, text.find("```", body) - body);
    EXPECT_EQ(shown, Meshift(Split(line)).out) << "meshift " << line;
    ++blocks;
  }
  EXPECT_EQ(blocks, 2);
}

}  // namespace
}  // namespace meshift::cli
