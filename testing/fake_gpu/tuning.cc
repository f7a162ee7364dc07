#include "testing/fake_gpu/tuning.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace meshift::fake {
namespace {

constexpr std::array kFunctions = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                   "AllReduce"};
constexpr std::array kKinds = {OpKind::kBroadcast, OpKind::kReduce, OpKind::kAllGather,
                               OpKind::kReduceScatter, OpKind::kAllReduce};
enum Algorithm { kTree, kRing, kCollNetDirect, kCollNetChain, kNvls, kNvlsTree, kPat };
constexpr std::array kAlgorithms = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                    "NVLSTree", "PAT"};
enum Protocol { kLl, kLl128, kSimple };
constexpr std::array kProtocols = {"LL", "LL128", "Simple"};

// Parses a number like NCCL_PARAM: in any base, ignoring text after it.
int Param(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  errno = 0;
  const long long value = std::strtoll(text, nullptr, 0);
  return errno != 0 ? otherwise : static_cast<int>(value);
}

constexpr int kUnset = -2;  // NCCL's value for "not set" here

int MinChannels() {
  int channels = 0;
  if (const int rings = Param("NCCL_MIN_NRINGS", kUnset); rings != kUnset) channels = rings;
  if (const int set = Param("NCCL_MIN_NCHANNELS", kUnset); set != kUnset) channels = set;
  return std::clamp(channels, 0, kMaxChannels);
}

int MaxChannels() {
  int channels = kMaxChannels;
  if (const int rings = Param("NCCL_MAX_NRINGS", kUnset); rings != kUnset) channels = rings;
  if (const int set = Param("NCCL_MAX_NCHANNELS", kUnset); set != kUnset) channels = set;
  return std::clamp(channels, 1, kMaxChannels);
}

// The environment overrides the configuration, also upwards.
int Ctas(const char* name, int configured, int otherwise) {
  int ctas = configured == NCCL_CONFIG_UNDEF_INT ? otherwise : configured;
  if (const int set = Param(name, NCCL_CONFIG_UNDEF_INT); set > 0) ctas = set;
  return std::min(ctas, kMaxChannels);
}

bool NvlsEnabled() { return Param("NCCL_NVLS_ENABLE", 2) != 0; }

int Channels(const ncclConfig_t& config) {
  int min_ctas = Ctas("NCCL_MIN_CTAS", config.minCTAs, 1);
  const int max_ctas = Ctas("NCCL_MAX_CTAS", config.maxCTAs, kMaxChannels);
  min_ctas = std::min(min_ctas, max_ctas);
  int channels = std::min({MaxChannels(), kSearchedChannels, max_ctas});
  // Channels are duplicated until there are enough.
  channels = std::max({channels, MinChannels(), min_ctas});
  return NvlsEnabled() ? std::max(channels, kNvlsChannels) : channels;
}

std::vector<std::string> Tokens(const std::string& text, const char* by) {
  std::vector<std::string> tokens;
  for (size_t at = text.find_first_not_of(by); at != std::string::npos;) {
    const size_t end = text.find_first_of(by, at);
    tokens.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(by, end);
  }
  return tokens;
}

template <size_t kElements>
using Table = std::array<std::array<bool, kElements>, kFunctions.size()>;

// Parses "ring,tree;allreduce:^ring": the entries of a variable, by function.
template <size_t kElements>
Table<kElements> ReadList(const char* variable, const std::array<const char*, kElements>& names,
                          std::string* refused) {
  Table<kElements> table;
  for (auto& row : table) row.fill(true);
  const char* text = std::getenv(variable);
  if (text == nullptr) return table;
  bool first = *text != ';';
  for (const std::string& entry : Tokens(text, ";")) {
    const std::vector<std::string> parts = Tokens(entry, ":");
    if (parts.empty() || (parts.size() == 1 && !first)) {
      *refused = fmt::format("All entries except the first must have a prefix: \"{}\"", text);
      return table;
    }
    first = false;
    const std::string prefix = parts.size() == 1 ? "" : parts[0];
    std::string list = parts.size() == 1 ? parts[0] : parts[1];
    const bool excludes = list[0] == '^';
    if (excludes) list.erase(0, 1);
    bool found = false;
    for (size_t f = 0; f < kFunctions.size(); ++f) {
      if (!prefix.empty() && strcasecmp(prefix.c_str(), kFunctions[f]) != 0) continue;
      found = true;
      table[f].fill(excludes);
      for (const std::string& token : Tokens(list, ",")) {
        const auto name = std::find_if(names.begin(), names.end(), [&](const char* known) {
          return strcasecmp(token.c_str(), known) == 0;
        });
        if (name == names.end()) {
          *refused =
              fmt::format("Unrecognized element token \"{}\" when parsing \"{}\"", token, text);
          return table;
        }
        table[f][static_cast<size_t>(name - names.begin())] = !excludes;
      }
    }
    if (!found) {
      *refused = fmt::format("Unrecognized prefix token \"{}\" when parsing \"{}\"", prefix, text);
      return table;
    }
  }
  return table;
}

// Whether a function has the algorithm at all, on one host without a network that can add.
bool Supports(OpKind kind, size_t algorithm) {
  const bool gathers = kind == OpKind::kAllGather || kind == OpKind::kReduceScatter;
  switch (algorithm) {
    case kRing:
      return true;
    case kTree:
      return kind == OpKind::kAllReduce;
    case kNvls:
      return NvlsEnabled() && (gathers || kind == OpKind::kAllReduce);
    case kPat:
      return gathers && Param("NCCL_PAT_ENABLE", 2) == 1;
    default:
      return false;  // between hosts only
  }
}

bool Works(size_t algorithm, size_t protocol) {
  return protocol == kSimple || algorithm == kRing || algorithm == kTree;
}

}  // namespace

Tuning TuneByEnvironment(const ncclConfig_t& config) {
  Tuning tuning;
  tuning.channels = Channels(config);
  const auto algorithms = ReadList("NCCL_ALGO", kAlgorithms, &tuning.refused);
  const auto protocols = ReadList("NCCL_PROTO", kProtocols, &tuning.refused);
  for (size_t f = 0; f < kFunctions.size(); ++f) {
    bool any = false;
    for (size_t a = 0; a < kAlgorithms.size(); ++a) {
      for (size_t p = 0; p < kProtocols.size(); ++p) {
        any |= algorithms[f][a] && protocols[f][p] && Supports(kKinds[f], a) && Works(a, p);
      }
    }
    if (kKinds[f] == OpKind::kAllReduce && any) {
      const auto& left = algorithms[f];
      const bool nvls = left[kNvls] && NvlsEnabled();
      if (left[kTree] && !left[kRing] && !nvls) tuning.trees = tuning.channels;
    }
    if (!any) tuning.without |= 1U << static_cast<uint32_t>(kKinds[f]);
  }
  return tuning;
}

std::string NoAlgorithm(OpKind kind) {
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  std::string text = fmt::format("no algorithm/protocol available for function {}.",
                                 kFunctions[static_cast<size_t>(found - kKinds.begin())]);
  for (const char* const name : {"NCCL_ALGO", "NCCL_PROTO"}) {
    if (const char* value = std::getenv(name))
      text += fmt::format(" {} was set to {}.", name, value);
  }
  return text;
}

}  // namespace meshift::fake
