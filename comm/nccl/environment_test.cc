#include "comm/nccl/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "testing/internal/nccl/fake_environment.h"

namespace meshift {
namespace {

using Outcome = NcclChange::Outcome;
using Variables = FakeEnvironment::Variables;

const NcclVersion k228{2, 28, 9};
const NcclVersion k231{2, 31, 2};

const Variables kBatchInvariant = {{"NCCL_ALGO", "allreduce:tree"},
                                   {"NCCL_PROTO", "Simple"},
                                   {"NCCL_NVLS_ENABLE", "0"},
                                   {"NCCL_COLLNET_ENABLE", "0"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Outcome OutcomeOf(const AppliedProfile& applied, const std::string& name) {
  for (const NcclChange& change : applied.changes()) {
    if (change.name == name) return change.outcome;
  }
  ADD_FAILURE() << name;
  return Outcome::kSet;
}

std::string Write(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(NcclEnvironmentTest, FilesCountWhereVariablesSayNothing) {
  Write(".nccl.conf", "# NCCL_ALGO=ring\nNCCL_PROTO=LL\nNCCL_MIN_CTAS=4\nnothing\n");
  const std::string system = Write("system.conf", "NCCL_MIN_CTAS=8\nNCCL_COLLNET_ENABLE=1\n");
  const std::string named = Write("named.conf", "NCCL_PROTO=LL128\n");
  FakeEnvironment process(kBatchInvariant);
  process.variables.erase("NCCL_COLLNET_ENABLE");
  const NcclEnvironment found(process, testing::TempDir(), system);
  EXPECT_EQ(found.Get("NCCL_ALGO"), "allreduce:tree");
  EXPECT_EQ(found.Get("NCCL_PROTO"), "Simple");
  EXPECT_EQ(found.Get("NCCL_MIN_CTAS"), "4");
  EXPECT_EQ(found.Get("nothing"), std::nullopt);
  const auto why = [](const Environment& environment) {
    return WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant, k228, environment));
  };
  EXPECT_EQ(why(process), "");
  EXPECT_THAT(why(found), testing::HasSubstr("NCCL_COLLNET_ENABLE is '1'"));
  // A named file replaces the one in the home; its lines precede the system's.
  process.variables = {{"NCCL_CONF_FILE", named}};
  const NcclEnvironment other(process, testing::TempDir(), system);
  EXPECT_EQ(other.Get("NCCL_PROTO"), "LL128");
  EXPECT_EQ(other.Get("NCCL_MIN_CTAS"), "8");
  const NcclEnvironment none(process, "", "/nonexistent/nccl.conf");
  EXPECT_EQ(none.Get("NCCL_MIN_CTAS"), std::nullopt);
}

// A FIFO is not read, so the test does not wait for its writer.
TEST(NcclEnvironmentTest, OnlyRegularFilesAreRead) {
  const std::string fifo = testing::TempDir() + "fifo.conf";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string large = Write("large.conf", std::string(size_t{2} << 20, '#'));
  FakeEnvironment process(kBatchInvariant);
  for (const std::string& path : {fifo, std::string("/dev/zero"), large}) {
    process.variables["NCCL_CONF_FILE"] = path;
    const NcclEnvironment found(process, "", "/nonexistent/nccl.conf");
    EXPECT_EQ(found.Get("NCCL_PROTO"), "Simple");
    EXPECT_THAT(*found.Get("NCCL_TUNER_PLUGIN_X"), testing::StartsWith("unknown: " + path));
    EXPECT_THAT(WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant, k228, found)),
                testing::HasSubstr("unknown: "));
  }
}

TEST(NcclEnvironmentTest, TheNullDeviceIsAnEmptyFile) {
  FakeEnvironment process(kBatchInvariant);
  process.variables["NCCL_CONF_FILE"] = "/dev/null";
  const NcclEnvironment found(process, "", "/dev/null");
  EXPECT_EQ(found.Get("NCCL_TUNER_PLUGIN_X"), std::nullopt);
  EXPECT_EQ(WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant, k228, found)), "");
}

struct ApplyCase {
  const char* name;
  Variables before;
  bool overwrite;
  Outcome algo;  // of NCCL_ALGO
  Variables after;
};

TEST(NcclEnvironmentTest, ApplyingSetsReportsOverwritesAndUndoes) {
  const std::vector<ApplyCase> cases = {
      {"unset", {{"HOME", "x"}}, false, Outcome::kSet, With(kBatchInvariant, "HOME", "x")},
      {"equal", kBatchInvariant, false, Outcome::kEqual, kBatchInvariant},
      {"conflicting",
       {{"NCCL_ALGO", "Ring"}},
       false,
       Outcome::kConflict,
       With(kBatchInvariant, "NCCL_ALGO", "Ring")},
      {"overwritten", {{"NCCL_ALGO", "Ring"}}, true, Outcome::kOverwritten, kBatchInvariant},
      {"empty is set",
       {{"NCCL_ALGO", ""}},
       false,
       Outcome::kConflict,
       With(kBatchInvariant, "NCCL_ALGO", "")},
  };
  for (const ApplyCase& c : cases) {
    FakeEnvironment environment(c.before);
    auto applied = ApplyNcclProfile(NcclProfile::kBatchInvariant, k228, {.overwrite = c.overwrite},
                                    environment);
    ASSERT_TRUE(applied.ok()) << c.name;
    EXPECT_EQ(OutcomeOf(*applied, "NCCL_ALGO"), c.algo) << c.name;
    EXPECT_EQ(environment.variables, c.after) << c.name;
    EXPECT_EQ(applied->complete(), c.algo != Outcome::kConflict) << c.name;
    for (const NcclChange& change : applied->changes()) {
      const auto it = c.before.find(change.name);
      EXPECT_EQ(change.previous,
                it == c.before.end() ? std::nullopt : std::optional<std::string>(it->second));
    }
    applied->Undo();
    EXPECT_EQ(environment.variables, c.before) << c.name;
    applied->Undo();
    EXPECT_EQ(environment.variables, c.before) << c.name;
  }
}

TEST(NcclEnvironmentTest, UndoLeavesWhatOthersHaveChangedSince) {
  FakeEnvironment environment(Variables{});
  auto applied = ApplyNcclProfile(NcclProfile::kBatchInvariant, k228, {}, environment);
  environment.variables["NCCL_PROTO"] = "LL";
  applied->Undo();
  EXPECT_EQ(environment.variables, (Variables{{"NCCL_PROTO", "LL"}}));
}

TEST(NcclEnvironmentTest, AProfileIsTooLateOnceThereAreCommunicators) {
  FakeEnvironment environment(Variables{});
  const auto applied = ApplyNcclProfile(NcclProfile::kTorchtitanVllm, k228,
                                        {.overwrite = true, .communicators = 2}, environment);
  EXPECT_EQ(applied.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(applied.status()),
            "profile torchtitan-vllm comes too late: this process has made 2 communicators, and "
            "NCCL reads its environment before the first");
  EXPECT_TRUE(environment.variables.empty());
}

TEST(NcclEnvironmentTest, ChangesSayWhatTheyDid) {
  FakeEnvironment environment(Variables{{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}});
  auto applied = ApplyNcclProfile(NcclProfile::kBatchInvariant, k228, {}, environment);
  std::vector<std::string> lines;
  for (const NcclChange& change : applied->changes()) lines.push_back(change.ToString());
  EXPECT_EQ(lines, (std::vector<std::string>{"NCCL_ALGO is 'Ring', not 'allreduce:tree'",
                                             "NCCL_PROTO is 'Simple' already",
                                             "NCCL_NVLS_ENABLE was not set, is now '0'",
                                             "NCCL_COLLNET_ENABLE was not set, is now '0'"}));
  FakeEnvironment other(Variables{{"NCCL_ALGO", "Ring"}});
  applied = ApplyNcclProfile(NcclProfile::kBatchInvariant, k231, {.overwrite = true}, other);
  EXPECT_EQ(applied->changes()[0].ToString(),
            "NCCL_ALGO was 'Ring', is now 'ring,tree;allreduce:tree'");
}

TEST(NcclEnvironmentTest, TheProcessesOwnEnvironment) {
  Environment& environment = Environment::Process();
  environment.Set("MESHIFT_TEST_VARIABLE", "a");
  EXPECT_STREQ(std::getenv("MESHIFT_TEST_VARIABLE"), "a");
  EXPECT_EQ(environment.Get("MESHIFT_TEST_VARIABLE"), "a");
  environment.Set("MESHIFT_TEST_VARIABLE", std::nullopt);
  EXPECT_EQ(environment.Get("MESHIFT_TEST_VARIABLE"), std::nullopt);
}

// The names of the variables that break the promise.
std::vector<std::string> Breaks(NcclProfile profile, const NcclVersion& version,
                                const Variables& variables) {
  std::vector<std::string> names;
  for (const NcclFinding& finding :
       CheckNcclEnvironment(profile, version, FakeEnvironment(variables))) {
    EXPECT_FALSE(finding.why.empty());
    if (finding.breaks) names.push_back(finding.name);
  }
  return names;
}

TEST(NcclEnvironmentTest, CheckGoesByMeaningForBatchInvariance) {
  using Names = std::vector<std::string>;
  const NcclProfile profile = NcclProfile::kBatchInvariant;
  EXPECT_EQ(Breaks(profile, k228, {}), (Names{"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE"}));
  EXPECT_EQ(Breaks(profile, k228, kBatchInvariant), Names{});
  const auto algo = [&](const NcclVersion& version, const std::string& value) {
    return Breaks(profile, version, With(kBatchInvariant, "NCCL_ALGO", value)).empty();
  };
  for (const char* const right : {"allreduce:tree", "AllReduce:TREE", "ring,tree;allreduce:tree",
                                  "allreduce:tree;broadcast:ring",
                                  "ring;allreduce:^ring,nvls,nvlstree,collnetdirect,"
                                  "collnetchain,pat"}) {
    EXPECT_TRUE(algo(k228, right)) << right;
  }
  for (const char* const wrong :
       {"", "ring", "tree,ring", "allreduce:tree,nvls", "^nvls", "broadcast:tree", "tre",
        "all_reduce:tree", "allreduce:tree;ring",
        // No other collective has a tree.
        "Tree", "tree;broadcast:ring", "allreduce:tree;allgather:nvls", "^ring;allreduce:tree"}) {
    EXPECT_FALSE(algo(k228, wrong)) << wrong;
  }
  for (const auto& [name, value] : Variables{{"NCCL_PROTO", "LL"},
                                             {"NCCL_NVLS_ENABLE", "1"},
                                             {"NCCL_COLLNET_ENABLE", "1"},
                                             {"NCCL_MIN_NCHANNELS", "4"},
                                             {"NCCL_MIN_NRINGS", "4"},
                                             {"NCCL_MIN_CTAS", "x"},
                                             {"NCCL_MAX_CTAS", "16"},
                                             {"NCCL_SYM_KERNEL", "AllReduce_AGxLL_R"},
                                             {"NCCL_SYM_NOWIN_ENABLE", "1"},
                                             {"NCCL_TUNER_PLUGIN", "ofi"},
                                             {"NCCL_ENV_PLUGIN", "STATIC_PLUGIN"}}) {
    EXPECT_EQ(Breaks(profile, k228, With(kBatchInvariant, name, value)), Names{name});
  }
  // One channel for all communicators is more than the promise needs, and passes.
  EXPECT_EQ(Breaks(profile, k228, With(kBatchInvariant, "NCCL_MIN_NCHANNELS", "1")), Names{});
}

TEST(NcclEnvironmentTest, NumbersAreReadAsNcclReadsThem) {
  const auto fits = [](const std::string& name, const std::string& value) {
    return Breaks(NcclProfile::kBatchInvariant, k228, With(kBatchInvariant, name, value)).empty();
  };
  for (const char* const one : {"", "1", "0x1", "01", "0", "-3"}) {
    EXPECT_TRUE(fits("NCCL_MAX_CTAS", one)) << one;
  }
  // NCCL reads the last three as 2, since it keeps 32 bits, or as values that no user intends.
  for (const char* const more :
       {"2", "0x10", "010", "4x", "4294967298", "-4294967294", "99999999999999999999"}) {
    EXPECT_FALSE(fits("NCCL_MAX_CTAS", more)) << more;
  }
  EXPECT_TRUE(fits("NCCL_NVLS_ENABLE", "0x0"));
  EXPECT_FALSE(fits("NCCL_NVLS_ENABLE", ""));  // on by default
  EXPECT_FALSE(fits("NCCL_NVLS_ENABLE", "-1"));
  EXPECT_TRUE(fits("NCCL_COLLNET_ENABLE", ""));
  for (const char* const name : {"NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"}) {
    for (const char* const value : {"1", "32", "-1", "x"}) EXPECT_TRUE(fits(name, value)) << value;
  }
}

TEST(NcclEnvironmentTest, EveryCollectiveNeedsAProtocol) {
  const auto why = [](const std::string& value) {
    return WhatBreaks(
        CheckNcclEnvironment(NcclProfile::kBatchInvariant, k228,
                             FakeEnvironment(With(kBatchInvariant, "NCCL_PROTO", value))));
  };
  EXPECT_EQ(why("Simple"), "");
  EXPECT_EQ(why("LL;allreduce:simple"), "");
  EXPECT_EQ(why("LL,Simple"),
            "NCCL_PROTO is 'LL,Simple': all-reduce may take 'll,simple': only Simple is one "
            "protocol for every size");
  EXPECT_EQ(why("Simple;reduce:^LL,LL128,Simple;broadcast:^LL,LL128,Simple"),
            "NCCL_PROTO is 'Simple;reduce:^LL,LL128,Simple;broadcast:^LL,LL128,Simple': excludes "
            "every protocol for broadcast, reduce: such calls fail with 'no algorithm'");
  EXPECT_EQ(why("simpel"),
            "NCCL_PROTO is 'simpel': NCCL refuses it: unknown protocol 'simpel'; NCCL knows ll "
            "ll128 simple");
}

TEST(NcclEnvironmentTest, PluginsThatNcclLoadsByItselfCount) {
  const auto why = [](const FakeEnvironment& environment) {
    return WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant, k228, environment));
  };
  FakeEnvironment tuned(kBatchInvariant);
  tuned.libraries["libnccl-tuner.so"] = {};
  EXPECT_EQ(
      why(tuned),
      "NCCL_TUNER_PLUGIN is not set: NCCL loads libnccl-tuner.so (/fake/libnccl-tuner.so), a "
      "tuner that may choose algorithm and channels by size; set NCCL_TUNER_PLUGIN to 'none'");
  tuned.variables["NCCL_TUNER_PLUGIN"] = "";
  EXPECT_NE(why(tuned), "");
  tuned.variables["NCCL_TUNER_PLUGIN"] = "None";
  EXPECT_EQ(why(tuned), "");

  FakeEnvironment set(kBatchInvariant);
  set.libraries["libnccl-env.so"] = {};
  EXPECT_EQ(why(set),
            "NCCL_ENV_PLUGIN is not set: NCCL loads libnccl-env.so (/fake/libnccl-env.so), which "
            "may set variables that this check cannot see; set NCCL_ENV_PLUGIN to 'none'");
  set.variables["NCCL_ENV_PLUGIN"] = "none";
  EXPECT_EQ(why(set), "");

  // A network plugin may also be a tuner.
  FakeEnvironment net(kBatchInvariant);
  net.libraries["libnccl-net.so"] = {"ncclNetPlugin_v11"};
  net.libraries["libnccl-net-fast.so"] = {"ncclNetPlugin_v11", "ncclTunerPlugin_v5"};
  EXPECT_EQ(why(net), "");
  net.variables["NCCL_NET_PLUGIN"] = "slow,fast";
  EXPECT_NE(why(net).find("NCCL loads libnccl-net-fast.so (/fake/libnccl-net-fast.so)"),
            std::string::npos)
      << why(net);
  net.variables["NCCL_NET_PLUGIN"] = "none";
  EXPECT_EQ(why(net), "");
}

TEST(NcclEnvironmentTest, AVersionThatNobodyHasMeasuredIsUnfit) {
  const auto why = [](const NcclVersion& version) {
    return WhatBreaks(CheckNcclEnvironment(
        NcclProfile::kBatchInvariant, version,
        FakeEnvironment(With(kBatchInvariant, "NCCL_ALGO", "ring,tree;allreduce:tree"))));
  };
  EXPECT_EQ(why({2, 30, 7}), "");
  EXPECT_EQ(why(k231),
            "the version of NCCL is '2.31.2': since 2.31 NCCL chooses among ring, tree and "
            "symmetric kernels in one step; its bits have not been measured");
}

TEST(NcclEnvironmentTest, TheProcessesLibraries) {
  const Environment& environment = Environment::Process();
  const auto found = environment.FindLibrary("libm.so.6", {});
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("/libm.so.6"), std::string::npos) << *found;
  EXPECT_TRUE(environment.FindLibrary("libm.so.6", std::vector<std::string>{"nothing", "cos"}));
  EXPECT_FALSE(environment.FindLibrary("libm.so.6", std::vector<std::string>{"nothing"}));
  EXPECT_FALSE(environment.FindLibrary("libnothing-like-it.so", {}));
}

TEST(NcclEnvironmentTest, CheckGoesByValueForBitsThatEqualAPeers) {
  using Names = std::vector<std::string>;
  const NcclProfile profile = NcclProfile::kTorchtitanVllm;
  Variables variables;
  for (const NcclSetting& setting : NcclProfileSettings(profile, k228)) {
    variables[setting.name] = setting.value;
  }
  EXPECT_EQ(Breaks(profile, k228, variables), Names{});
  EXPECT_EQ(Breaks(profile, k228, With(variables, "NCCL_MAX_NCHANNELS", "2")),
            Names{"NCCL_MAX_NCHANNELS"});
  // No effect on results: reported, but does not break the promise.
  EXPECT_EQ(Breaks(profile, k228, With(variables, "NCCL_NTHREADS", "512")), Names{});
  EXPECT_EQ(Breaks(profile, k228, With(variables, "NCCL_SOCKET_NTHREADS", "4")), Names{});
  EXPECT_EQ(Breaks(profile, k231, variables), Names{"NCCL_ALGO"});
  // Variables that the profile does not name can break the promise too.
  for (const auto& [name, value] : Variables{{"NCCL_MIN_CTAS", "4"},
                                             {"NCCL_SYM_KERNEL", "AllReduce_AGxLL_R"},
                                             {"NCCL_SYM_NOWIN_ENABLE", "1"},
                                             {"NCCL_TUNER_PLUGIN", "ofi"},
                                             {"NCCL_ENV_PLUGIN", "site"}}) {
    EXPECT_EQ(Breaks(profile, k228, With(variables, name, value)), Names{name});
  }
  EXPECT_EQ(Breaks(profile, k228, With(variables, "NCCL_MAX_CTAS", "16")), Names{});
}

TEST(NcclEnvironmentTest, TheTorchtitanProfileIsTheSetOfItsPullRequest) {
  Variables variables;
  for (const NcclSetting& setting : NcclProfileSettings(NcclProfile::kTorchtitanVllm, k228)) {
    variables[setting.name] = setting.value;
  }
  EXPECT_EQ(variables, (Variables{{"NCCL_LAUNCH_MODE", "GROUP"},
                                  {"NCCL_COLLNET_ENABLE", "0"},
                                  {"NCCL_NVLS_ENABLE", "0"},
                                  {"NCCL_P2P_NET_DISABLE", "1"},
                                  {"NCCL_MIN_NCHANNELS", "1"},
                                  {"NCCL_MAX_NCHANNELS", "1"},
                                  {"NCCL_PROTO", "Simple"},
                                  {"NCCL_ALGO", "allreduce:tree"},
                                  {"NCCL_NTHREADS", "1"},
                                  {"NCCL_SOCKET_NTHREADS", "1"}}));
}

TEST(NcclEnvironmentTest, VersionsAreReadAndCompared) {
  EXPECT_EQ(NcclVersion::FromCode(22809), k228);
  EXPECT_EQ(NcclVersion::FromCode(2708), (NcclVersion{2, 7, 8}));
  EXPECT_EQ(*NcclVersion::Parse("2.31"), (NcclVersion{2, 31, 0}));
  EXPECT_EQ(NcclVersion::Parse("2.28.9")->ToString(), "2.28.9");
  EXPECT_LT(k228, k231);
  for (const char* const bad : {"", "2", "2.", "2.x", "2.28.9.1", "2.-1", "2.100"}) {
    EXPECT_EQ(NcclVersion::Parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(NcclEnvironmentTest, ProfilesHaveNames) {
  EXPECT_EQ(*ParseNcclProfile("batch-invariant"), NcclProfile::kBatchInvariant);
  EXPECT_EQ(*ParseNcclProfile("torchtitan-vllm"), NcclProfile::kTorchtitanVllm);
  EXPECT_EQ(Message(ParseNcclProfile("ring").status()),
            "unknown profile 'ring'; expected batch-invariant or torchtitan-vllm");
}

}  // namespace
}  // namespace meshift
