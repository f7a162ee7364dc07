// Implements CheckNcclEnvironment of environment.h: predicts NCCL's choices from the variables,
// after the source of NCCL 2.28.9 (src/init.cc, src/graph/connect.cc, src/graph/tuning.cc,
// src/plugin/). Does not call NCCL. A value that it cannot judge breaks the promise.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/nccl/environment.h"
#include "comm/nccl/tuning_list.h"

namespace meshift {
namespace {

// From this version on NCCL chooses among ring, tree and symmetric kernels in one step. Whether its
// bits then depend on the size is not measured.
constexpr NcclVersion kOneChoice{2, 31, 0};

class Judge {
 public:
  Judge(const NcclVersion& version, const Environment& environment)
      : version_(version), environment_(environment) {}

  std::vector<NcclFinding> BatchInvariant() {
    Version();
    Algorithm();
    Protocol();
    Number("NCCL_NVLS_ENABLE", 2, 0, "no sums in NVSwitch",
           "sums in NVSwitch (NVLS), whose order is not fixed");
    Number("NCCL_COLLNET_ENABLE", 0, 0, "no sums in the network",
           "sums in network switches (CollNet), whose order is not fixed");
    // NCCL lets these override a communicator's configuration, even to more channels.
    for (const char* const name :
         {"NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
      Number(name, 0, 1, "leaves the number of channels to the communicator",
             "overrides the one channel that communicators under this promise request");
    }
    for (const char* const name : {"NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"}) {
      Add(name, false, "leaves a communicator of one channel as it is");
    }
    OtherKernels();
    Plugins();
    return std::move(findings_);
  }

  // Compares the profile's variables by value; judges the others by their effect.
  std::vector<NcclFinding> ByValue(const std::vector<NcclSetting>& settings) {
    for (const NcclSetting& setting : settings) {
      const bool equal = environment_.Get(setting.name) == setting.value;
      Add(setting.name, !equal && setting.bits,
          equal ? setting.effect
                : fmt::format("should be '{}': {}", setting.value, setting.effect));
    }
    Number("NCCL_MIN_CTAS", 0, 1, "leaves the one channel", "overrides the one channel");
    OtherKernels();
    Plugins();
    return std::move(findings_);
  }

 private:
  // NCCL treats an empty variable as unset, and so does this.
  std::string Get(const std::string& name) const { return environment_.Get(name).value_or(""); }

  void Add(const std::string& name, bool breaks, std::string why) {
    findings_.push_back({name, environment_.Get(name), breaks, std::move(why)});
  }

  void OtherKernels() {
    const bool forced = !Get("NCCL_SYM_KERNEL").empty();
    Add("NCCL_SYM_KERNEL", forced,
        forced ? "forces a symmetric kernel, which adds in an order of its own"
               : "forces no symmetric kernel");
    Number("NCCL_SYM_NOWIN_ENABLE", 0, 0, "no symmetric kernels without windows",
           "symmetric kernels, which add in an order of their own, for all memory");
  }

  void Plugins() {
    Tuner();
    EnvironmentPlugin();
  }

  void Version() {
    const std::string why = WhyUnfit(NcclProfile::kBatchInvariant, version_);
    if (why.empty()) return;
    findings_.push_back({"the version of NCCL", version_.ToString(), true, why});
  }

  void Algorithm() {
    const std::string name = "NCCL_ALGO";
    const std::string value = Get(name);
    if (value.empty()) return Add(name, true, "NCCL picks the algorithm by size");
    const auto list = TuningList::Algorithms(value);
    if (!list.ok()) {
      return Add(name, true, fmt::format("NCCL refuses it: {}", Message(list.status())));
    }
    if (!list->AllowsOnly(NcclFunction::kAllReduce, "tree")) {
      return Add(name, true,
                 fmt::format("all-reduce may take '{}': only the tree adds an element's "
                             "contributions in an order that no size changes",
                             list->ToString(NcclFunction::kAllReduce)));
    }
    // Ring is the only algorithm that NCCL has for every other collective on any topology.
    const std::string without =
        Without([&](NcclFunction function) { return list->Allows(function, "ring"); });
    if (!without.empty()) {
      return Add(name, true,
                 fmt::format("excludes ring for {}: such calls fail with 'no algorithm'", without));
    }
    Add(name, false, "all-reduce by tree");
  }

  void Protocol() {
    const std::string name = "NCCL_PROTO";
    const std::string value = Get(name);
    if (value.empty()) return Add(name, true, "NCCL picks the protocol by size");
    const auto list = TuningList::Protocols(value);
    if (!list.ok()) {
      return Add(name, true, fmt::format("NCCL refuses it: {}", Message(list.status())));
    }
    if (!list->AllowsOnly(NcclFunction::kAllReduce, "simple")) {
      return Add(name, true,
                 fmt::format("all-reduce may take '{}': only Simple is one protocol for every size",
                             list->ToString(NcclFunction::kAllReduce)));
    }
    const std::string without =
        Without([&](NcclFunction function) { return list->AllowsAny(function); });
    if (!without.empty()) {
      return Add(name, true,
                 fmt::format("excludes every protocol for {}: such calls fail with 'no algorithm'",
                             without));
    }
    Add(name, false, "one protocol");
  }

  // The collectives other than all-reduce for which `has` is false.
  template <typename Has>
  static std::string Without(const Has& has) {
    std::vector<std::string_view> without;
    for (int f = 0; f < kNumNcclFunctions; ++f) {
      const auto function = static_cast<NcclFunction>(f);
      if (function != NcclFunction::kAllReduce && !has(function)) without.push_back(Name(function));
    }
    return fmt::format("{}", fmt::join(without, ", "));
  }

  // Adds a finding. It breaks the promise if the variable's number (`otherwise` if it is not set)
  // is more than `most`, or is negative and `most` is 0. Bases are as for strtoll. NCCL ignores
  // text after the number; here such a value breaks the promise.
  void Number(const std::string& name, int64_t otherwise, int64_t most, const char* kept,
              const char* broken) {
    const std::string value = Get(name);
    std::optional<int64_t> number = otherwise;
    if (!value.empty()) {
      char* end = nullptr;
      errno = 0;
      number = std::strtoll(value.c_str(), &end, 0);
      // NCCL keeps 32 bits.
      if (errno != 0 || *end != '\0' || *number < INT_MIN || *number > INT_MAX) number.reset();
    }
    const bool switches = most == 0;  // a switch: any number other than 0, also negative, is on
    const bool breaks = !number || (switches ? *number != 0 : *number > most);
    Add(name, breaks, breaks ? broken : kept);
  }

  // A tuner may choose algorithm, protocol and channels of every call.
  void Tuner() {
    const std::string name = "NCCL_TUNER_PLUGIN";
    const std::string value = Get(name);
    if (IsNone(value)) return Add(name, false, "no tuner");
    if (!value.empty()) {
      return Add(
          name, true,
          "a tuner may choose algorithm and channels by size; set NCCL_TUNER_PLUGIN to 'none'");
    }
    std::string file = "libnccl-tuner.so";
    std::optional<std::string> found = environment_.FindLibrary(file, {});
    // NCCL then looks for a tuner in the network plugins.
    for (const std::string& net : NetworkPlugins()) {
      if (found) break;
      file = net;
      found = environment_.FindLibrary(net, kTunerSymbols);
    }
    if (!found) return Add(name, false, "no tuner can be loaded");
    Add(name, true,
        fmt::format("NCCL loads {} ({}), a tuner that may choose algorithm and channels by size; "
                    "set NCCL_TUNER_PLUGIN to 'none'",
                    file, *found));
  }

  void EnvironmentPlugin() {
    const std::string name = "NCCL_ENV_PLUGIN";
    const std::string value = Get(name);
    if (IsNone(value)) return Add(name, false, "no plugin sets variables");
    if (!value.empty()) {
      return Add(
          name, true,
          "a plugin may set variables that this check cannot see; set NCCL_ENV_PLUGIN to 'none'");
    }
    const std::string file = "libnccl-env.so";
    const std::optional<std::string> found = environment_.FindLibrary(file, {});
    if (!found) return Add(name, false, "no plugin that sets variables can be loaded");
    Add(name, true,
        fmt::format("NCCL loads {} ({}), which may set variables that this check cannot see; set "
                    "NCCL_ENV_PLUGIN to 'none'",
                    file, *found));
  }

  static bool IsNone(std::string_view value) {
    constexpr std::string_view kNone = "none";
    return std::equal(value.begin(), value.end(), kNone.begin(), kNone.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  }

  // The files that NCCL tries as network plugins.
  std::vector<std::string> NetworkPlugins() const {
    const std::string list = Get("NCCL_NET_PLUGIN");
    if (IsNone(list)) return {};
    if (list.empty()) return {"libnccl-net.so"};
    std::vector<std::string> files;
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string item = list.substr(begin, end - begin);
      begin = end + 1;
      if (item.empty()) continue;
      files.push_back(item);
      const bool is_file =
          item.find('/') != std::string::npos || (item.starts_with("lib") && item.ends_with(".so"));
      if (!is_file) files.push_back(fmt::format("libnccl-net-{}.so", item));
    }
    return files;
  }

  static const std::vector<std::string> kTunerSymbols;

  const NcclVersion version_;
  const Environment& environment_;
  std::vector<NcclFinding> findings_;
};

// The versions of the tuner interface that NCCL has had, and some later ones.
const std::vector<std::string> Judge::kTunerSymbols = {
    "ncclTunerPlugin_v2", "ncclTunerPlugin_v3", "ncclTunerPlugin_v4", "ncclTunerPlugin_v5",
    "ncclTunerPlugin_v6", "ncclTunerPlugin_v7", "ncclTunerPlugin_v8"};

}  // namespace

std::string WhyUnfit(NcclProfile profile, const NcclVersion& version) {
  if (profile != NcclProfile::kBatchInvariant || version < kOneChoice) return "";
  return fmt::format(
      "since {}.{} NCCL chooses among ring, tree and symmetric kernels in one step; its bits have "
      "not been measured",
      kOneChoice.major, kOneChoice.minor);
}

std::vector<NcclFinding> CheckNcclEnvironment(NcclProfile profile, const NcclVersion& version,
                                              const Environment& environment) {
  Judge judge(version, environment);
  return profile == NcclProfile::kBatchInvariant
             ? judge.BatchInvariant()
             : judge.ByValue(NcclProfileSettings(profile, version));
}

std::string WhatBreaks(const std::vector<NcclFinding>& findings) {
  const auto first = std::find_if(findings.begin(), findings.end(),
                                  [](const NcclFinding& finding) { return finding.breaks; });
  if (first == findings.end()) return "";
  return fmt::format("{} is {}: {}", first->name,
                     first->value ? fmt::format("'{}'", *first->value) : "not set", first->why);
}

}  // namespace meshift
