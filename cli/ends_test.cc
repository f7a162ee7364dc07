// The command ends with a message and an exit code other than 0 if its streams cannot be used.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

struct Ending {
  int code = -1;
  std::string err;
};

// Runs `meshift ARGS` in a shell with these redirections.
Ending EndOf(const std::string& args) {
  const std::string err = WriteFile("err.txt", "");
  const int status = std::system(("cli/meshift " + args + " 2> " + err).c_str());
  std::ifstream file(err);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}};
}

TEST(Ends, OutputThatCannotBeWrittenIsSaid) {
  for (const char* const args : {"--help > /dev/full", "plan --help > /dev/full", "--help >&-",
                                 "plan --mesh a=2 --tensor 'f32[4]' --from R --to R > /dev/full",
                                 "plan --mesh a=2 --tensor 'f32[4]' --from R --to R >&-",
                                 "env --profile batch-invariant --nccl-version 2.28 > /dev/full",
                                 "shards --mesh a=2 --tensor 'f32[4]' --from R > /dev/full"}) {
    const Ending ending = EndOf(args);
    EXPECT_EQ(ending.code, 1) << args;
    EXPECT_EQ(ending.err, "meshift: the output cannot be written\n") << args;
  }
  EXPECT_EQ(EndOf("--help > /dev/null").code, 0);
}

TEST(Ends, AnInputThatCannotBeReadIsABadFile) {
  for (const char* const verb : {"check -", "check --batch -", "plan --batch -", "run --plan -",
                                 "plan --model - --mesh a=2 --from R --to R"}) {
    for (const char* const from : {" <&-", " < /tmp"}) {
      const Ending ending = EndOf(verb + std::string(from) + " > /dev/null");
      EXPECT_EQ(ending.code, 3) << verb << from;
      EXPECT_EQ(ending.err, "meshift: stdin: cannot be read: an error while reading\n")
          << verb << from;
    }
  }
}

// A file that is opened does not take the number of a closed stream.
TEST(Ends, AClosedStreamStaysClosed) {
  const std::string folder = WriteFile("folder", "") + ".d";
  const std::string run = "run --mesh a=2 --tensor 'f32[4]' --from 'S(0)' --to R --save " + folder;
  EXPECT_EQ(EndOf(run + " >&- <&-").code, 1);
  for (const char* const name : {"/source.rank00000.npy", "/target.rank00001.npy"}) {
    std::ifstream file(folder + name, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
    EXPECT_EQ(content.substr(1, 5), "NUMPY") << name;
    EXPECT_EQ(content.find("# meshift"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace meshift::cli
