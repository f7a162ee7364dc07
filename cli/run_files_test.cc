// `run --load` and `run --save`: sources and targets as .npy files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/npy.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

using Args = std::vector<std::string>;

Args RunArgs(const std::string& mesh, const std::string& tensor, const std::string& from,
             const std::string& to, const Args& more = {}) {
  Args args = {"run", "--mesh", mesh, "--tensor", tensor, "--from", from, "--to", to};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The path of a folder that does not exist yet.
std::string NewFolder() {
  static int count = 0;
  return WriteFile("folder", "") + std::to_string(getpid()) + "_" + std::to_string(count++);
}

std::string NameOf(const std::string& stem, int64_t rank) {
  const std::string digits = std::to_string(rank);
  return "/" + stem + ".rank" + std::string(5 - digits.size(), '0') + digits + ".npy";
}

// A folder with the sources of all ranks, made by `run --save`.
std::string Saved(const Args& args) {
  const std::string folder = NewFolder();
  Args save = args;
  save.insert(save.end(), {"--save", folder});
  const Outcome outcome = Meshift(save);
  EXPECT_EQ(outcome.code, 0) << outcome;
  return folder;
}

TEST(RunFiles, WhatIsSavedIsLoaded) {
  const struct {
    Args args;
    std::vector<int64_t> ranks;
  } cases[] = {
      {RunArgs("a=2,b=3", "f32[7,5]", "P,S(0)", "S(1),R"), {0, 1, 2, 3, 4, 5}},
      {RunArgs("a=2,b=2@7,5,3,1", "bf16[5,3]", "P(avg),S(0)", "R,R"), {7, 5, 3, 1}},
      {RunArgs("a=4", "i64[2,3]", "S(0)", "R"), {0, 1, 2, 3}},        // empty shards
      {RunArgs("a=2", "f16[0,5]", "S(0)", "S(1)"), {0, 1}},           // nothing at all
      {RunArgs("a=3", "u8[]", "P(max)", "R"), {0, 1, 2}},             // rank 0
      {RunArgs("a=2,b=2", "c64[3]", "R,S(0)", "R,R"), {0, 1, 2, 3}},  // replicas on entry
      {RunArgs("a=2", "bool[9]", "P(xor)", "S(0)"), {0, 1}},          //
      {RunArgs("a=2", "f8e4m3[4,3]", "S(0)", "S(1)"), {0, 1}},        //
      {RunArgs("a=2", "i32[4]", "R", "P"), {0, 1}},                   // a partial target
      {RunArgs("a=2,b=2", "f64[6]", "P,P", "R,P"), {0, 1, 2, 3}},     // one that stays partial
      {RunArgs("a=2,b=2", "f32[6]", "P(product),R", "R,R"), {0, 1, 2, 3}},
      {RunArgs("a=2,b=2", "f32[6]", "P,S(0)", "S(0),R", {"--to-dtype", "bf16"}), {0, 1, 2, 3}},
      {RunArgs("a=2", "bf16[6]", "P", "R", {"--to-dtype", "f32", "--reduce-dtype", "f32"}), {0, 1}},
      {RunArgs("a=3", "i32[7]", "S(0)", "R", {"--to-dtype", "f64"}), {0, 1, 2}},
      {RunArgs("a=2", "f4e2m1[4,4]", "S(0)", "S(1)"), {0, 1}},
  };
  for (const auto& [args, ranks] : cases) {
    const std::string first = Saved(args);
    const std::string second = NewFolder();
    Args load = args;
    load.insert(load.end(), {"--load", first, "--save", second, "--repeat", "2"});
    const Outcome outcome = Meshift(load);
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("repeat 2, sources of " + first + "\n"), std::string::npos);
    for (const int64_t rank : ranks) {
      for (const char* stem : {"source", "target"}) {
        const std::string name = NameOf(stem, rank);
        EXPECT_EQ(ReadAll(second + name), ReadAll(first + name)) << name << "\n" << outcome;
      }
    }
  }
}

TEST(RunFiles, APlanThatWasReadIsRunOnFiles) {
  const Args args = RunArgs("a=2,b=2", "i32[4,4]", "P,S(0)", "R,R");
  const std::string folder = Saved(args);
  Args plan = args;
  plan[0] = "plan";
  plan.insert(plan.end(), {"--format", "json"});
  const std::string saved = NewFolder();
  const Outcome outcome =
      Meshift({"run", "--plan", "-", "--load", folder, "--save", saved}, Meshift(plan).out);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(ReadAll(saved + NameOf("target", 3)), ReadAll(folder + NameOf("target", 3)));
}

// A folder with the contributions 1 and 2 of one element.
std::string OneAndTwo() {
  const std::string folder = NewFolder();
  EXPECT_EQ(mkdir(folder.c_str(), 0777), 0);
  for (int64_t rank = 0; rank < 2; ++rank) {
    std::ofstream(folder + NameOf("source", rank), std::ios::binary)
        << NpyHeaderBytes(DType::kI32, {1}) << std::string(1, static_cast<char>(rank + 1))
        << std::string(3, '\0');
  }
  return folder;
}

// A rank has a source file if it is in the first mesh, and a target file if it is in the second.
TEST(RunFiles, FromOneMeshToAnother) {
  const Args args = RunArgs("a=2", "i32[4,3]", "S(0)", "S(1)", {"--to-mesh", "b=3@1,4,2"});
  const std::string first = Saved(args);
  const std::string second = NewFolder();
  Args load = args;
  load.insert(load.end(), {"--load", first, "--save", second});
  const Outcome outcome = Meshift(load);
  EXPECT_EQ(outcome.code, 0) << outcome;
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(ReadAll(second + NameOf("source", rank)), ReadAll(first + NameOf("source", rank)));
  }
  for (const int64_t rank : {1, 2, 4}) {
    EXPECT_EQ(ReadAll(second + NameOf("target", rank)), ReadAll(first + NameOf("target", rank)));
  }
  EXPECT_FALSE(std::ifstream(first + NameOf("source", 2)).is_open());
  EXPECT_FALSE(std::ifstream(first + NameOf("target", 0)).is_open());
}

TEST(RunFiles, TargetsAreMadeOfWhatWasLoaded) {
  const std::string saved = NewFolder();
  const Outcome outcome =
      Meshift(RunArgs("a=2", "i32[1]", "P", "R", {"--load", OneAndTwo(), "--save", saved}));
  EXPECT_EQ(outcome.code, 0) << outcome;
  for (int64_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ReadAll(saved + NameOf("target", rank)),
              NpyHeaderBytes(DType::kI32, {1}) + std::string("\x03\0\0\0", 4));
  }
}

// Expects that `run --load` of these files prints only this line, and saves nothing.
void ExpectRefused(const Args& args, const std::string& folder, const std::string& message) {
  const std::string saved = NewFolder();
  Args load = args;
  load.insert(load.end(), {"--load", folder, "--save", saved});
  EXPECT_EQ(Meshift(load), (Outcome{3, "", "meshift: " + folder + message + "\n"}));
  EXPECT_NE(access(saved.c_str(), F_OK), 0) << saved << " was made";
}

TEST(RunFiles, AFileThatIsNotTheRanksPartIsNamed) {
  const Args args = RunArgs("a=2", "f32[5,3]", "S(0)", "R");
  const std::string folder = Saved(args);
  const std::string name = NameOf("source", 1);
  const std::string good = ReadAll(folder + name);
  const auto refuse = [&](const std::string& bytes, const std::string& message) {
    std::ofstream(folder + name, std::ios::binary) << bytes;
    ExpectRefused(args, folder, name + ": " + message);
  };
  refuse("", "not a .npy file: it begins with \"\" instead of \\x93NUMPY");
  refuse(good.substr(0, good.size() - 1), "cut short: 23 of its 24 bytes of data are there");
  refuse(good.substr(0, 128), "cut short: 0 of its 24 bytes of data are there");
  refuse(good + '\0', "has more than its 24 bytes of data");
  refuse(good + std::string(100000, 'x'), "has more than its 24 bytes of data");
  refuse(NpyHeaderBytes(DType::kF32, {3, 3}) + std::string(36, '\0'),
         "holds <f4[3,3]; a tensor f32[2,3] needs <f4[2,3]");
  refuse(NpyHeaderBytes(DType::kI32, {2, 3}) + std::string(24, '\0'),
         "holds <i4[2,3]; a tensor f32[2,3] needs <f4[2,3]");
  ASSERT_EQ(std::remove((folder + name).c_str()), 0);
  ExpectRefused(args, folder, name + ": cannot be read: No such file or directory");
  ASSERT_EQ(mkdir((folder + name).c_str(), 0777), 0);
  ExpectRefused(args, folder, name + ": cannot be read: it is a folder");
  ExpectRefused(args, folder + "/gone",
                NameOf("source", 0) + ": cannot be read: No such file or directory");
}

TEST(RunFiles, ABigFileIsReadToItsEnd) {
  const Args args = RunArgs("a=2", "f64[40000]", "S(0)", "R");
  const std::string folder = Saved(args);
  const std::string name = NameOf("source", 0);
  const std::string good = ReadAll(folder + name);
  std::ofstream(folder + name, std::ios::binary) << good.substr(0, good.size() - 7);
  ExpectRefused(args, folder, name + ": cut short: 159993 of its 160000 bytes of data are there");
  std::ofstream(folder + name, std::ios::binary) << good + "1234567";
  ExpectRefused(args, folder, name + ": has more than its 160000 bytes of data");
}

TEST(RunFiles, ReplicasOfTheSourceMustBeEqual) {
  const std::string folder = OneAndTwo();
  ExpectRefused(RunArgs("a=2", "i32[1]", "R", "S(0)"), folder,
                ": 1 element is not equal on the source's replicas: ranks 0 and 1 differ at [0]: 1 "
                "and 2");
}

TEST(RunFiles, OptionsThatExcludeEachOther) {
  const auto error = [](const std::string& message) {
    return Outcome{2, "", "meshift: " + message + "\n"};
  };
  EXPECT_EQ(Meshift(RunArgs("a=2", "i32[1]", "R", "R", {"--load", "x", "--seed", "3"})),
            error("--seed and --load exclude each other"));
  for (const char* option : {"--load", "--save"}) {
    EXPECT_EQ(Meshift({"run", "--model", "m.json", option, "x"}),
              error(std::string(option) + " and --model exclude each other"));
  }
}

TEST(RunFiles, AFolderThatCannotBeWrittenIsNamed) {
  const auto failed = [](const std::string& folder, const std::string& message) {
    EXPECT_EQ(Meshift(RunArgs("a=2", "i32[1]", "S(0)", "R", {"--save", folder})),
              (Outcome{1, "", "meshift: --save: " + folder + message + "\n"}));
  };
  const std::string file = WriteFile("file", "x");
  failed(file, ": cannot be made: File exists");
  failed(file + "/x", ": cannot be made: Not a directory");
  failed(file + "gone/x", ": cannot be made: No such file or directory");
  const std::string folder = NewFolder();
  ASSERT_EQ(mkdir(folder.c_str(), 0777), 0);
  ASSERT_EQ(mkdir((folder + NameOf("target", 1)).c_str(), 0777), 0);
  // One of the set cannot be written: the files saved before stay, sources too.
  const std::string source = folder + NameOf("source", 0);
  std::ofstream(source) << "before";
  failed(folder, NameOf("target", 1) + ": cannot be written: a folder is there");
  std::ifstream kept(source);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
}

}  // namespace
}  // namespace meshift::cli
