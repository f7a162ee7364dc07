#include "cli/file_set.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "base/status.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A new empty folder.
std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      WriteFile("folder", "") + std::to_string(getpid()) + "_" + std::to_string(count++);
  EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
  return folder;
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  DIR* const dir = opendir(folder.c_str());
  while (const dirent* const entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  }
  closedir(dir);
  return names;
}

absl::Status Add(FileSet& files, const std::string& path, const std::string& text) {
  const absl::Span<const std::byte> parts[] = {
      {reinterpret_cast<const std::byte*>(text.data()), text.size()}, {}};
  return files.Add(path, parts);
}

using Names = std::set<std::string>;

TEST(FileSet, ReplacesAllAtOnce) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/a") << "old";
  {
    FileSet files;
    EXPECT_TRUE(Add(files, folder + "/a", "new").ok());
    EXPECT_TRUE(Add(files, folder + "/b", "also").ok());
    EXPECT_EQ(ReadAll(folder + "/a"), "old");
    const absl::Status status = files.Commit();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(ReadAll(folder + "/a"), "new");
  EXPECT_EQ(ReadAll(folder + "/b"), "also");
  EXPECT_EQ(NamesIn(folder), Names({"a", "b"}));
}

TEST(FileSet, LeavesNothingWhereItIsGivenUp) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/a") << "old";
  {
    FileSet files;
    EXPECT_TRUE(Add(files, folder + "/a", "new").ok());
    EXPECT_EQ(Message(Add(files, folder + "/none/b", "x")),
              folder + "/none/b: cannot be written: No such file or directory");
  }
  EXPECT_EQ(ReadAll(folder + "/a"), "old");
  EXPECT_EQ(NamesIn(folder), Names({"a"}));
}

// If one file cannot be moved, those moved before it are restored.
TEST(FileSet, AFailureInTheMiddleTakesAllBack) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/a") << "old";
  {
    FileSet files;
    EXPECT_TRUE(Add(files, folder + "/a", "new").ok());
    EXPECT_TRUE(Add(files, folder + "/b", "also").ok());
    EXPECT_TRUE(Add(files, folder + "/c", "and").ok());
    // Make the move of the third file fail.
    EXPECT_EQ(unlink((folder + "/c." + std::to_string(getpid()) + ".part").c_str()), 0);
    EXPECT_EQ(Message(files.Commit()), folder + "/c: cannot be written: No such file or directory");
  }
  EXPECT_EQ(ReadAll(folder + "/a"), "old");
  EXPECT_EQ(NamesIn(folder), Names({"a"}));
}

TEST(FileSet, AFileThatAppearsMeanwhileIsPutBack) {
  const std::string folder = NewFolder();
  {
    FileSet files;
    EXPECT_TRUE(Add(files, folder + "/a", "new").ok());
    EXPECT_TRUE(Add(files, folder + "/b", "also").ok());
    std::ofstream(folder + "/a") << "theirs";
    EXPECT_EQ(unlink((folder + "/b." + std::to_string(getpid()) + ".part").c_str()), 0);
    EXPECT_FALSE(files.Commit().ok());
  }
  EXPECT_EQ(ReadAll(folder + "/a"), "theirs");
  EXPECT_EQ(NamesIn(folder), Names({"a"}));
}

TEST(FileSet, AFullDiskLeavesTheOldSet) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/a") << "old";
  // Simulate a full disk by a limit on the size of files.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    FileSet files;
    EXPECT_TRUE(Add(files, folder + "/a", "new").ok());
    EXPECT_EQ(Message(Add(files, folder + "/b", std::string(100000, 'x'))),
              folder + "/b: cannot be written: File too large");
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(ReadAll(folder + "/a"), "old");
  EXPECT_EQ(NamesIn(folder), Names({"a"}));
}

TEST(FileSet, LinksAreNeitherFollowedNorReplaced) {
  const std::string folder = NewFolder();
  const std::string victim = WriteFile("victim", "untouched");
  ASSERT_EQ(symlink(victim.c_str(), (folder + "/a").c_str()), 0);
  const std::string part = folder + "/b." + std::to_string(getpid()) + ".part";
  ASSERT_EQ(symlink(victim.c_str(), part.c_str()), 0);
  ASSERT_EQ(mkfifo((folder + "/c").c_str(), 0600), 0);
  FileSet files;
  EXPECT_EQ(Message(Add(files, folder + "/a", "new")),
            folder + "/a: cannot be written: a symbolic link is there");
  EXPECT_EQ(Message(Add(files, folder + "/c", "new")),
            folder + "/c: cannot be written: another kind of file is there");
  EXPECT_TRUE(Add(files, folder + "/b", "new").ok());
  EXPECT_TRUE(files.Commit().ok());
  EXPECT_EQ(ReadAll(folder + "/b"), "new");
  EXPECT_EQ(ReadAll(victim), "untouched");
}

}  // namespace
}  // namespace meshift::cli
