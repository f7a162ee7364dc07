// Ranks as processes.
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

extern char** environ;  // NOLINT: POSIX

namespace meshift {
namespace {

using ::testing::Each;

// Runs `ranks` processes; returns their exit codes.
std::vector<int> RunProcesses(int ranks, const std::string& mode) {
  std::string folder = ::testing::TempDir() + "/process_test_XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    std::string arguments[] = {"testing/fake_gpu/process_worker", std::to_string(rank),
                               std::to_string(ranks), folder, mode};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    pids.push_back(pid);
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  }
  return codes;
}

TEST(ProcessTest, RanksCommunicate) {
  EXPECT_THAT(RunProcesses(4, "communicate"), Each(0));
  EXPECT_THAT(RunProcesses(3, "communicate"), Each(0));
}

TEST(ProcessTest, ADeadProcessIsARemoteErrorToTheOthers) {
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(RunProcesses(4, "die"), ::testing::ElementsAre(0, 0, 0, 9));
  }
}

TEST(ProcessTest, ProcessesShareADeviceUnderNamesOfTheirOwn) {
  EXPECT_THAT(RunProcesses(3, "share"), Each(0));
}

// No test asks such a process for its violations: its exit code reports them.
TEST(ProcessTest, AProcessThatBreaksARuleFails) {
  EXPECT_THAT(RunProcesses(3, "race"), ::testing::ElementsAre(99, 0, 0));
  EXPECT_THAT(RunProcesses(3, "differ"), Each(99));
  ASSERT_EQ(setenv("MESHIFT_FAKE_EXIT_CODE", "17", 1), 0);
  EXPECT_THAT(RunProcesses(2, "race"), ::testing::ElementsAre(17, 0));
  ASSERT_EQ(setenv("MESHIFT_FAKE_EXIT_CODE", "0", 1), 0);
  EXPECT_THAT(RunProcesses(2, "race"), Each(0));
  unsetenv("MESHIFT_FAKE_EXIT_CODE");
}

}  // namespace
}  // namespace meshift
