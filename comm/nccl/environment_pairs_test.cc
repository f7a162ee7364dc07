// Compares CheckNcclEnvironment with the stand-in's behaviour, for all pairs of the variables that
// it checks: each unset, harmless or harmful. If the check passes, a communicator that requests one
// channel has one, every collective finds an algorithm, and all elements of a sum have equal bits.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/nccl/environment.h"
#include "testing/fake_gpu/fake_report.h"
#include "testing/fake_gpu/test_rank.h"
#include "testing/internal/nccl/fake_environment.h"

namespace meshift {
namespace {

struct Variable {
  std::string name;
  std::string harmless;
  std::vector<std::string> harmful;
  bool needed = false;  // unset is harmful too
};

const std::vector<Variable>& Judged() {
  static const std::vector<Variable>& variables = *new std::vector<Variable>{
      {"NCCL_ALGO",
       "allreduce:tree",
       {"Tree", "ring", "^nvls", "ring;allreduce:tree;reduce:tree", "tre"},
       true},
      {"NCCL_PROTO", "Simple", {"LL", "Simple;allgather:^LL,LL128,Simple"}, true},
      {"NCCL_NVLS_ENABLE", "0", {"1"}, true},
      {"NCCL_COLLNET_ENABLE", "0", {"1"}},
      {"NCCL_MIN_NCHANNELS", "1", {"4"}},
      {"NCCL_MIN_NRINGS", "0", {"4"}},
      {"NCCL_MIN_CTAS", "1", {"8"}},
      {"NCCL_MAX_CTAS", "1", {"16", "0x10"}},
      {"NCCL_MAX_NCHANNELS", "1", {}},
      {"NCCL_MAX_NRINGS", "32", {}},
      {"NCCL_SYM_KERNEL", "", {"AllReduce_RSxLD_AGxST"}},
      {"NCCL_SYM_NOWIN_ENABLE", "0", {"1"}},
      {"NCCL_TUNER_PLUGIN", "none", {"example"}},
      {"NCCL_ENV_PLUGIN", "none", {"libnccl-env-example.so"}},
  };
  return variables;
}

// A variable and its value; nullopt: it is not set.
struct Setting {
  const Variable* variable = nullptr;
  std::optional<std::string> value;
  bool harmful = false;
};

std::vector<Setting> SettingsOf(const Variable& variable) {
  std::vector<Setting> settings = {{&variable, std::nullopt, variable.needed},
                                   {&variable, variable.harmless, false}};
  for (const std::string& value : variable.harmful) settings.push_back({&variable, value, true});
  return settings;
}

// Variables that the profile needs, then `settings`.
FakeEnvironment::Variables With(const std::vector<Setting>& settings) {
  FakeEnvironment::Variables variables;
  for (const Variable& variable : Judged()) {
    if (variable.needed) variables[variable.name] = variable.harmless;
  }
  for (const Setting& setting : settings) {
    variables.erase(setting.variable->name);
    if (setting.value) variables[setting.variable->name] = *setting.value;
  }
  return variables;
}

struct Seen {
  bool made = true;      // all ranks have made their communicators
  bool complete = true;  // every collective had an algorithm
  int64_t channels = 0;  // maximum over communicators that request one channel
  bool alike = true;     // elements of equal contributions have equal sums
};

// The sum of these depends on the order of addition.
constexpr int kRanks = 3;
constexpr std::array<float, kRanks> kContributions = {1e8F, 3, -1e8F};
constexpr size_t kCount = 48;

// Runs the ranks in a process with this environment.
Seen Look(const FakeEnvironment::Variables& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  Seen seen;
  Mutex mutex;
  const ncclUniqueId id = NewId();
  RunRanks(kRanks, [&](TestRank& r) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 1;
    config.maxCTAs = 1;
    if (ncclCommInitRankConfig(&r.comm, r.ranks, id, r.rank, &config) != ncclSuccess) {
      MutexLock lock(mutex);
      seen.made = false;
      return;
    }
    const CUdeviceptr given =
        r.Upload(std::vector<float>(kCount, kContributions[static_cast<size_t>(r.rank)]));
    const CUdeviceptr sums = r.Buffer(kCount * sizeof(float));
    void* const in = TestRank::At(given);
    void* const out = TestRank::At(r.Buffer(kCount * sizeof(float)));
    const auto run = [&](ncclResult_t result) {
      MutexLock lock(mutex);
      if (result != ncclSuccess) seen.complete = false;
    };
    run(ncclAllReduce(in, TestRank::At(sums), kCount, ncclFloat32, ncclSum, r.comm, r.stream));
    run(ncclAllGather(in, out, 4, ncclFloat32, r.comm, r.stream));
    run(ncclReduceScatter(in, out, 4, ncclFloat32, ncclSum, r.comm, r.stream));
    run(ncclBroadcast(in, out, 4, ncclFloat32, 0, r.comm, r.stream));
    run(ncclReduce(in, out, 4, ncclFloat32, ncclSum, 0, r.comm, r.stream));
    const std::vector<float> all = r.Download<float>(sums, kCount);
    MutexLock lock(mutex);
    seen.alike = seen.alike && all == std::vector<float>(kCount, all[0]);
    seen.channels = std::max(seen.channels, fake_report()->channels(r.comm));
  });
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return seen;
}

std::string Text(const FakeEnvironment::Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += name + "='" + value + "' ";
  return text;
}

TEST(EnvironmentPairsTest, TheJudgePassesWhatKeepsThePromise) {
  fake_report()->reset();
  int passed = 0;
  int broken = 0;
  const auto check = [&](const std::vector<Setting>& settings) {
    const FakeEnvironment::Variables variables = With(settings);
    const std::string why = WhatBreaks(CheckNcclEnvironment(
        NcclProfile::kBatchInvariant, NcclVersion{2, 28, 9}, FakeEnvironment(variables)));
    bool harmful = false;
    for (const Setting& setting : settings) harmful |= setting.harmful;
    EXPECT_EQ(!why.empty(), harmful) << Text(variables) << why;
    const Seen seen = Look(variables);
    const bool kept = seen.made && seen.complete && seen.channels == 1 && seen.alike;
    EXPECT_TRUE(kept || !why.empty())
        << Text(variables) << "made " << seen.made << ", complete " << seen.complete
        << ", channels " << seen.channels << ", alike " << seen.alike;
    passed += why.empty() ? 1 : 0;
    broken += kept ? 0 : 1;
  };
  const std::vector<Variable>& judged = Judged();
  for (size_t a = 0; a < judged.size(); ++a) {
    for (const Setting& first : SettingsOf(judged[a])) {
      check({first});
      for (size_t b = a + 1; b < judged.size(); ++b) {
        for (const Setting& second : SettingsOf(judged[b])) check({first, second});
      }
    }
  }
  // Both outcomes occur often enough.
  EXPECT_GT(passed, 250);
  EXPECT_GT(broken, 250);
  EXPECT_EQ(Violations(), "");
  RecordProperty("passed", passed);
  RecordProperty("broken", broken);
}

// Harmful values one at a time: the stand-in reproduces the harm.
TEST(EnvironmentPairsTest, TheStandInShowsTheHarm) {
  const auto alone = [](const std::string& name, const std::string& value) {
    FakeEnvironment::Variables variables = With({});
    variables[name] = value;
    return Look(variables);
  };
  EXPECT_EQ(Look(With({})).channels, 1);
  EXPECT_TRUE(Look(With({})).alike);
  EXPECT_EQ(alone("NCCL_MAX_CTAS", "16").channels, 16);
  EXPECT_FALSE(alone("NCCL_MAX_CTAS", "16").alike);
  EXPECT_FALSE(alone("NCCL_ALGO", "ring").alike);
  EXPECT_EQ(alone("NCCL_MIN_NRINGS", "4").channels, 4);
  EXPECT_EQ(alone("NCCL_MIN_NCHANNELS", "4").channels, 4);
  EXPECT_EQ(alone("NCCL_NVLS_ENABLE", "2").channels, 16);
  EXPECT_FALSE(alone("NCCL_ALGO", "Tree").complete);
  EXPECT_FALSE(alone("NCCL_PROTO", "Simple;broadcast:^LL,LL128,Simple").complete);
  EXPECT_FALSE(alone("NCCL_ALGO", "tre").made);
}

}  // namespace
}  // namespace meshift
