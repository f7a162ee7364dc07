#include "tests/gpu/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

ProcessSpec Shell(const std::string& script, const std::string& log = "log",
                  std::vector<std::string> environment = {}) {
  return {{"/bin/sh", "-c", script}, std::move(environment), testing::TempDir() + "/" + log};
}

std::string Read(const std::string& log) {
  std::ifstream file(testing::TempDir() + "/" + log);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Processes, HaveLogsAndEnvironmentsOfTheirOwn) {
  setenv("MESHIFT_TEST_VARIABLE", "old", 1);
  auto processes = Processes::Start(
      {Shell("echo out $MESHIFT_TEST_VARIABLE; echo err >&2", "a", {"MESHIFT_TEST_VARIABLE=new"}),
       Shell("echo $MESHIFT_TEST_VARIABLE; exit 7", "b")});
  ASSERT_TRUE(processes.ok()) << processes.status();
  const auto ends = processes->Wait(milliseconds(20000), milliseconds(20000));
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_TRUE(ends[0].ok());
  EXPECT_EQ(ends[1].ToString(), "exit code 7");
  EXPECT_EQ(Read("a"), "out new\nerr\n");
  EXPECT_EQ(Read("b"), "old\n");
}

// Whether the starter ends before or after they have asked for a signal.
TEST(Processes, EndWithTheOneThatStartedThem) {
  setenv("MESHIFT_STARTER", std::to_string(getppid()).c_str(), 1);
  EndWithStarter();
  const int before = getppid();
  EXPECT_EXIT(
      {
        setenv("MESHIFT_STARTER", std::to_string(before).c_str(), 1);  // not this child's parent
        EndWithStarter();
        _exit(0);
      },
      testing::ExitedWithCode(1), "");
  unsetenv("MESHIFT_STARTER");
}

TEST(Processes, AreKilledAfterTheLimit) {
  auto processes = Processes::Start({Shell("exec sleep 600"), Shell("exit 0")});
  ASSERT_TRUE(processes.ok());
  const auto ends = processes->Wait(milliseconds(100), milliseconds(20000));
  EXPECT_EQ(ends[0].ToString(), "signal 9 (killed after the time limit)");
  EXPECT_TRUE(ends[1].ok());
}

TEST(Processes, AreKilledAfterAnotherFailed) {
  auto processes = Processes::Start({Shell("exec sleep 600"), Shell("exit 3")});
  ASSERT_TRUE(processes.ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto ends = processes->Wait(milliseconds(500000), milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(ends[0].signal, 9);
  EXPECT_EQ(ends[1].code, 3);
}

TEST(Processes, NamesWhatDoesNotStart) {
  const auto processes = Processes::Start({{{"/nowhere/program"}, {}, testing::TempDir() + "/x"}});
  EXPECT_EQ(Message(processes.status()),
            "cannot start /nowhere/program: No such file or directory");
}

}  // namespace
}  // namespace meshift
