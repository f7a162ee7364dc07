// docs/testing_your_framework.md shows the test of this folder as it is. The test passes for the
// right layer and fails, as shown, for the wrong one.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

const char kFolder[] = "examples/your_framework/";

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The code blocks of `language` in the page.
std::vector<std::string> Blocks(const std::string& language) {
  const std::string page = Read("docs/testing_your_framework.md");
  const std::string start = "\n```" + language + "\n";
  std::vector<std::string> blocks;
  for (size_t at = page.find(start); at != std::string::npos; at = page.find(start, at + 1)) {
    const size_t begin = at + start.size();
    blocks.push_back(page.substr(begin, page.find("```\n", begin) - begin));
  }
  return blocks;
}

struct Outcome {
  int exit_code = -1;
  std::string output;
};

// Runs a program without this test's environment, which names files that the child would also
// write.
Outcome RunProgram(const std::string& name) {
  Outcome outcome;
  const std::string command = "env -i " + std::string(kFolder) + name + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Page, ShowsTheFiles) {
  const std::vector<std::string> blocks = Blocks("cpp");
  ASSERT_EQ(blocks.size(), 1);
  EXPECT_EQ(blocks[0], Read(std::string(kFolder) + "column_parallel_test.cc"));

  const std::vector<std::string> build = Blocks("python");
  ASSERT_EQ(build.size(), 1);
  EXPECT_NE(build[0], "");
  EXPECT_TRUE(Read(std::string(kFolder) + "BUILD").starts_with(build[0]));
}

TEST(Page, ItsTestPassesForTheRightLayer) {
  const Outcome outcome = RunProgram("column_parallel_test");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ] 6 tests."), std::string::npos) << outcome.output;
}

TEST(Page, ItsTestFailsForTheWrongLayerAsShown) {
  const Outcome outcome = RunProgram("column_parallel_wrong_test");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  // Two of the layer's three tests fail; those of Meshift's own plans pass.
  EXPECT_NE(outcome.output.find("[  PASSED  ] 4 tests."), std::string::npos) << outcome.output;

  const std::vector<std::string> shown = Blocks("text");
  ASSERT_EQ(shown.size(), 1);
  std::istringstream lines(shown[0]);
  int failures = 0;
  size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(": Failure")) ++failures;
    const size_t found = outcome.output.find("\n" + line + "\n", at);
    EXPECT_NE(found, std::string::npos) << line << "\nis not in order in\n" << outcome.output;
    if (found != std::string::npos) at = found;
  }
  EXPECT_EQ(failures, 2);
}

}  // namespace
