#include "comm/nccl/nccl_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int kMaxInFlight = 16;  // the limit of NcclOptions::max_in_flight
// More thread blocks than this seldom make a collective faster.
constexpr unsigned kEnoughCtas = 32;
// NCCL's own limit of a communicator's channels.
constexpr int kMostCtas = 64;
// A name lists at most this many ranks one by one.
constexpr size_t kListedRanks = 8;

int MaxCtasOf(const NcclOptions& options, int num_sms) {
  if (options.max_ctas > 0) return options.max_ctas;
  const auto quarter = static_cast<unsigned>(std::max(num_sms / 4, 1));
  const auto ctas = static_cast<int>(std::min(std::bit_floor(quarter), kEnoughCtas));
  // NCCL refuses a minimum above the maximum, and compares them before it sets defaults.
  return std::max(ctas, options.min_ctas);
}

// The variable's number of thread blocks, in any base that strtoll knows, as NCCL reads it. For a
// text without a number, as after a file that is not read, the largest number that NCCL allows.
int CtasOf(const Environment& environment, const char* name) {
  const std::string text = environment.Get(name).value_or("");
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 0);
  const bool is_unknown = end == text.c_str() && !text.empty();
  return is_unknown ? kMostCtas : static_cast<int>(std::clamp<int64_t>(number, 0, kMostCtas));
}

}  // namespace

absl::Status CheckOptions(const NcclOptions& options) {
  MESHIFT_RETURN_IF_ERROR(
      CheckTimeouts({.setup = options.setup_timeout, .running = options.timeout}));
  if (!(options.cta_share >= 0 && options.cta_share <= 1)) {
    return InvalidArgument("cta_share {} is not between 0 and 1", options.cta_share);
  }
  if (options.min_ctas == 0 || options.max_ctas == 0) {
    return InvalidArgument("min_ctas {}, max_ctas {}: neither may be 0", options.min_ctas,
                           options.max_ctas);
  }
  if (options.min_ctas > 0 && options.max_ctas > 0 && options.min_ctas > options.max_ctas) {
    return InvalidArgument("min_ctas {} is more than max_ctas {}", options.min_ctas,
                           options.max_ctas);
  }
  if (options.max_in_flight < 0 || options.max_in_flight > kMaxInFlight) {
    return InvalidArgument("max_in_flight {} is not between 0 and {}", options.max_in_flight,
                           kMaxInFlight);
  }
  return absl::OkStatus();
}

ncclConfig_t ConfigOf(const NcclOptions& options, int num_sms) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const auto set = [](int value, int* field) {
    if (value >= 0) *field = value;
  };
  config.blocking = 0;
  config.splitShare = options.split_share ? 1 : 0;
  set(options.min_ctas, &config.minCTAs);
  config.maxCTAs = MaxCtasOf(options, num_sms);
  set(options.cga_cluster_size, &config.cgaClusterSize);
  set(options.cta_policy, &config.CTAPolicy);
  set(options.traffic_class, &config.trafficClass);
  if (!options.net_name.empty()) config.netName = options.net_name.c_str();
  return config;
}

int MaxInFlight(const NcclOptions& options, int num_sms, const Environment& environment) {
  int ctas = MaxCtasOf(options, num_sms);
  for (const char* name :
       {"NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"}) {
    ctas = std::max(ctas, CtasOf(environment, name));
  }
  const int fit = std::clamp(static_cast<int>(options.cta_share * num_sms / ctas), 1, kMaxInFlight);
  return options.max_in_flight > 0 ? std::min(fit, options.max_in_flight) : fit;
}

std::string CommNameOf(const std::string& name, absl::Span<const int64_t> ranks) {
  const std::string group = name.empty() ? "meshift" : "meshift:" + name;
  const auto n = static_cast<int64_t>(ranks.size());
  if (n > 1 && ranks.back() - ranks.front() == n - 1) {
    return fmt::format("{}[{}-{}]", group, ranks.front(), ranks.back());
  }
  if (ranks.size() <= kListedRanks) return fmt::format("{}[{}]", group, fmt::join(ranks, ","));
  return fmt::format("{}[{},...,{}]", group, fmt::join(ranks.subspan(0, kListedRanks - 1), ","),
                     ranks.back());
}

}  // namespace meshift
