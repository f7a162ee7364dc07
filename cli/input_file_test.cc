#include "cli/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <istream>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

std::string ErrorOf(const std::string& path) { return Message(OpenRegularFile(path).status()); }

// The lines read, with "<skipped>" for skipped ones.
std::vector<std::string> LinesOf(std::istream& in, int64_t limit) {
  std::vector<std::string> lines;
  EXPECT_TRUE(ReadLines(
                  in, limit, [&](const std::string& line) { lines.push_back(line); },
                  [&] { lines.emplace_back("<skipped>"); })
                  .ok());
  return lines;
}

TEST(InputFile, RegularFilesAreRead) {
  const std::string content(300000, 'x');
  auto file = OpenRegularFile(WriteFile("content", content));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*ReadUpTo(**file, 300000), content);
  file = OpenRegularFile(WriteFile("content", content));
  EXPECT_EQ(Message(ReadUpTo(**file, 299999).status()),
            "has more than 299999 bytes, the most that are read");
  file = OpenRegularFile(WriteFile("empty", ""));
  EXPECT_EQ(*ReadUpTo(**file, 0), "");
}

TEST(InputFile, NothingElseIsOpened) {
  const std::string file = WriteFile("file", "x");
  const std::string link = file + ".link";
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  EXPECT_EQ(ErrorOf(link), "cannot be read: it is a symbolic link; name the file itself");
  const std::string fifo = file + ".fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf(fifo), "cannot be read: it is a FIFO; only regular files are read");
  EXPECT_EQ(ErrorOf("/dev/zero"), "cannot be read: it is a device; only regular files are read");
  EXPECT_EQ(ErrorOf("/"), "cannot be read: it is a folder");
  EXPECT_EQ(ErrorOf(file + ".none"), "cannot be read: No such file or directory");
}

TEST(InputFile, LinesComeWithoutTheirEnds) {
  const auto of = [](const std::string& text) {
    std::istringstream in(text);
    return LinesOf(in, 5);
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(of(""), Lines());
  EXPECT_EQ(of("\n"), Lines({""}));
  EXPECT_EQ(of("ab\n\ncd"), Lines({"ab", "", "cd"}));
  EXPECT_EQ(of("abcde\nabcdef\nab\n"), Lines({"abcde", "<skipped>", "ab"}));
  EXPECT_EQ(of("abcdef"), Lines({"<skipped>"}));
  EXPECT_EQ(of(std::string("a\0b\n", 4)), Lines({std::string("a\0b", 3)}));
}

// Lengths around the size of one read.
TEST(InputFile, LongLinesComeWhole) {
  for (const int size : {65533, 65534, 65535, 65536, 65537, 131069, 131070, 131072, 200000}) {
    for (const char* const end : {"", "\n", "\nx"}) {
      const std::string line(size, 'x');
      std::istringstream in(line + end);
      const std::vector<std::string> lines = LinesOf(in, 200000);
      ASSERT_EQ(lines.size(), end[0] != '\0' && end[1] != '\0' ? 2 : 1) << size << end;
      EXPECT_EQ(lines[0], line) << size << end;
      std::istringstream longer(line + end);
      EXPECT_EQ(LinesOf(longer, size - 1)[0], "<skipped>") << size << end;
    }
  }
}

TEST(InputFile, WhatCannotBeReadIsAnError) {
  class Broken : public std::streambuf {
    int_type underflow() override { throw std::ios_base::failure("broken"); }
  };
  Broken broken;
  std::istream in(&broken);
  EXPECT_EQ(Message(ReadUpTo(in, 10).status()), "cannot be read: an error while reading");
  in.clear();
  EXPECT_EQ(Message(ReadLines(
                in, 10, [](const std::string&) {}, [] {})),
            "cannot be read: an error while reading");
}

}  // namespace
}  // namespace meshift::cli
