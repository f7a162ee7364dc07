// Runs the `meshift` command in-process, for tests.
//
//   EXPECT_EQ(Meshift({"plan", "--mesh", "a=2", ...}), (Outcome{0, "...", ""}));
#ifndef MESHIFT_TESTING_INTERNAL_COMMAND_H_
#define MESHIFT_TESTING_INTERNAL_COMMAND_H_

#include <cstdlib>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/io.h"

namespace meshift::cli {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend std::ostream& operator<<(std::ostream& os, const Outcome& outcome) {
    return os << "exit code " << outcome.code << "\n--- stdout\n"
              << outcome.out << "--- stderr\n"
              << outcome.err << "---";
  }
};

// Runs `meshift ARGS` with `in` on stdin.
inline Outcome Meshift(std::vector<std::string> args, const std::string& in = "") {
  std::istringstream input(in);
  std::ostringstream out;
  std::ostringstream err;
  Io io{input, out, err};
  const int code = RunMeshift(std::move(args), io);
  return {code, out.str(), err.str()};
}

// Writes a file of this test with `content`; returns its absolute path.
inline std::string WriteFile(const std::string& name, const std::string& content) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Resolves links: a test's data files are links, which the command does not read.
inline std::string RealPath(const std::string& path) {
  char* const found = realpath(path.c_str(), nullptr);
  std::string real = found == nullptr ? path : found;
  std::free(found);
  return real;
}

}  // namespace meshift::cli

#endif  // MESHIFT_TESTING_INTERNAL_COMMAND_H_
