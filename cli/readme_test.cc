// README.md and docs/command_line.md show the current output of the commands: every block that
// begins with "$ meshift" must be the output of its first line. README's C++ is that of an example.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

// Splits a line into words like a shell, with single quotes.
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

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The page's blocks between ```, without the opening line, whose opening line or first line begins
// with `start`.
std::vector<std::string> Blocks(const std::string& page, const std::string& start) {
  std::vector<std::string> blocks;
  const std::string text = Read(page);
  for (size_t at = text.find("\n```" + start); at != std::string::npos;
       at = text.find("\n```" + start, at + 1)) {
    const size_t begin = text.find('\n', at + 1) + 1;
    blocks.push_back(text.substr(begin, text.find("```", begin) - begin));
  }
  return blocks;
}

// Expects that each block that begins with "$ meshift" is the command's output.
void ExpectPrinted(const std::string& page, size_t count) {
  const std::string start = "$ meshift ";
  const std::vector<std::string> blocks = Blocks(page, "\n" + start);
  EXPECT_EQ(blocks.size(), count) << page;
  for (const std::string& block : blocks) {
    const size_t body = block.find('\n') + 1;
    const std::string line = block.substr(start.size(), body - 1 - start.size());
    EXPECT_EQ(block.substr(body), Meshift(Split(line)).out) << "meshift " << line;
  }
}

TEST(Readme, ShowsWhatTheCommandsPrint) {
  ExpectPrinted("README.md", 2);
  ExpectPrinted("docs/command_line.md", 1);
}

TEST(Readme, ShowsCodeThatIsCompiledAndRun) {
  const std::vector<std::string> blocks = Blocks("README.md", "cpp");
  ASSERT_EQ(blocks.size(), 1);
  EXPECT_NE(Read("examples/redistribute.cc").find("\n" + blocks[0]), std::string::npos);
}

}  // namespace
}  // namespace meshift::cli
