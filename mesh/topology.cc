#include "mesh/topology.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/parse_json.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "fmt/format.h"
#include "mesh/name.h"
#include "nlohmann/json.hpp"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

struct Link {
  int64_t bandwidth_bytes_per_us;
  int64_t latency_ns;
};

// Bandwidths are what NCCL's topology search finds for one GPU of a full domain, in 1 GB/s = 1000
// bytes/us. Latencies per hop are between those of NCCL's LL and LL128 protocols
// (src/graph/tuning.cc): NVLink ring 0.6 and 1.9 us, network tree 5.0 and 8.5 us.
constexpr Link kNvlink3 = {240000, 1000};  // 12 links of 20.0 GB/s
constexpr Link kNvlink4 = {360000, 1000};  // 12 channels of 30 GB/s, the measured bus bandwidth
constexpr Link kNvlink5 = {720000, 1000};  // 18 links of 40.1 GB/s
constexpr Link kHdr200 = {24000, 5000};    // one 200 Gb/s NIC per GPU
constexpr Link kNdr400 = {48000, 5000};    // one 400 Gb/s NIC per GPU

// Local memory: nine tenths of the data sheet's bandwidth, which a copy uses twice per byte.
constexpr int64_t kA100Copy = 900000;    // 2.0 TB/s, 80 GB SXM
constexpr int64_t kH100Copy = 1500000;   // 3.35 TB/s, SXM
constexpr int64_t kH200Copy = 2150000;   // 4.8 TB/s, SXM
constexpr int64_t kGb200Copy = 3600000;  // 8.0 TB/s
static_assert(kH100Copy == TopologyConstants{}.copy_bandwidth_bytes_per_us);

// NVLink domains with a network beyond.
struct Preset {
  std::string_view name;
  int64_t domain_size;
  Link nvlink;
  Link net;
  int64_t copy_bandwidth_bytes_per_us;
};
constexpr Preset kPresets[] = {
    {"a100", 8, kNvlink3, kHdr200, kA100Copy},
    {"h100", 8, kNvlink4, kNdr400, kH100Copy},
    {"h200", 8, kNvlink4, kNdr400, kH200Copy},
    {"gb200", 72, kNvlink5, kNdr400, kGb200Copy},
};
constexpr std::string_view kFlatName = "flat";
constexpr std::string_view kNvlinkName = "nvlink";
constexpr std::string_view kNetName = "net";

TopologyLevel MakeLevel(std::string_view name, int64_t domain_size, const Link& link) {
  return {std::string(name), domain_size, link.bandwidth_bytes_per_us, link.latency_ns};
}

// Whether the level is what MakeLevel() makes of these.
bool IsLevel(const TopologyLevel& level, std::string_view name, int64_t domain_size,
             const Link& link) {
  return level.name == name && level.domain_size == domain_size &&
         level.bandwidth_bytes_per_us == link.bandwidth_bytes_per_us &&
         level.latency_ns == link.latency_ns;
}

TopologyConstants ConstantsOf(const Preset& preset) {
  TopologyConstants constants;
  constants.copy_bandwidth_bytes_per_us = preset.copy_bandwidth_bytes_per_us;
  return constants;
}

// The kinds of links that "name=size" stands for, all of an H100 machine: "nvlink" is NVLink,
// "rail" and "net" are the network, and any other name is NVLink where it is innermost, else the
// network.
Link LinkNamed(std::string_view name, bool innermost) {
  const bool network = name == "rail" || name == kNetName;
  return name == kNvlinkName || (innermost && !network) ? kNvlink4 : kNdr400;
}

absl::Status CheckAtLeast(int64_t least, int64_t value, std::string_view what) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("{} is {}; it must be {} or more", what, value, least);
}

// Of a number of ns. The largest are such that 2^31 messages, and more terms than a step has, add
// up to less than 2^63.
constexpr int64_t kMaxLatencyNs = 1'000'000'000;
constexpr int64_t kMaxSetupNs = 1'000'000'000'000;
absl::Status CheckNs(int64_t value, int64_t most, std::string_view what) {
  MESHIFT_RETURN_IF_ERROR(CheckAtLeast(0, value, what));
  if (value <= most) return absl::OkStatus();
  return InvalidArgument("{} is {}; it must be {} or less", what, value, most);
}

absl::Status CheckConstants(const TopologyConstants& c) {
  MESHIFT_RETURN_IF_ERROR(CheckNs(c.collective_latency_ns, kMaxLatencyNs, "collective_latency_ns"));
  MESHIFT_RETURN_IF_ERROR(CheckNs(c.message_latency_ns, kMaxLatencyNs, "message_latency_ns"));
  MESHIFT_RETURN_IF_ERROR(CheckNs(c.copy_latency_ns, kMaxLatencyNs, "copy_latency_ns"));
  MESHIFT_RETURN_IF_ERROR(
      CheckAtLeast(1, c.copy_bandwidth_bytes_per_us, "copy_bandwidth_bytes_per_us"));
  return CheckNs(c.group_setup_ns, kMaxSetupNs, "group_setup_ns");
}

// The text form, "nvlink=8,rail=64".
absl::StatusOr<std::vector<TopologyLevel>> ParseLevels(std::string_view text) {
  std::vector<TopologyLevel> levels;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals == part.npos) {
      std::string presets(kFlatName);
      for (const Preset& preset : kPresets) presets += fmt::format(", {}", preset.name);
      return InvalidArgument("'{}' is neither a preset ({}) nor name=size", part, presets);
    }
    const std::string_view name = part.substr(0, equals);
    const std::string_view digits = part.substr(equals + 1);
    int64_t size = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, size);
    if (error != std::errc() || stop != end) {
      return InvalidArgument("domain size '{}' of level '{}' is not a 64-bit number", digits, name);
    }
    levels.push_back(MakeLevel(name, size, LinkNamed(name, levels.empty())));
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  levels.push_back(MakeLevel(kNetName, 0, kNdr400));
  return levels;
}

std::string Quote(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The members of a JSON object, each taken at most once; Finish() refuses those that nobody took.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string_view what) : json_(json), what_(what) {}

  absl::Status CheckIsObject() const {
    if (json_.is_object()) return absl::OkStatus();
    return InvalidArgument("{} is {}; it must be an object", what_, Quote(json_));
  }

  const Json* Take(std::string_view key) {
    known_.insert(key);
    const auto it = json_.find(std::string(key));
    return it == json_.end() ? nullptr : &*it;
  }

  absl::StatusOr<const Json*> Require(std::string_view key) {
    if (const Json* value = Take(key)) return value;
    return InvalidArgument("{} has no '{}'", what_, key);
  }

  absl::Status RequireInt(std::string_view key, int64_t* out) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Require(key));
    return ReadInt(key, *value, out);
  }

  // Leaves *out alone where the key is absent.
  absl::Status OptionalInt(std::string_view key, int64_t* out) {
    const Json* value = Take(key);
    return value == nullptr ? absl::OkStatus() : ReadInt(key, *value, out);
  }

  absl::Status RequireString(std::string_view key, std::string* out) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Require(key));
    const auto* text = value->get_ptr<const std::string*>();
    if (text == nullptr) {
      return InvalidArgument("'{}' of {} is {}; it must be a string", key, what_, Quote(*value));
    }
    *out = *text;
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    for (const auto& item : json_.items()) {
      if (!known_.contains(item.key())) {
        return InvalidArgument("{} has an unknown key '{}'", what_, item.key());
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadInt(std::string_view key, const Json& value, int64_t* out) const {
    const auto* number = value.get_ptr<const int64_t*>();
    if (number == nullptr || (value.is_number_unsigned() && *number < 0)) {
      return InvalidArgument("'{}' of {} is {}; it must be a 64-bit integer", key, what_,
                             Quote(value));
    }
    *out = *number;
    return absl::OkStatus();
  }

  const Json& json_;
  const std::string_view what_;
  std::set<std::string_view> known_;
};

absl::StatusOr<TopologyLevel> ReadLevel(const Json& json) {
  TopologyLevel level;
  ObjectReader reader(json, "level");
  MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
  MESHIFT_RETURN_IF_ERROR(reader.RequireString("name", &level.name));
  MESHIFT_RETURN_IF_ERROR(reader.RequireInt("domain_size", &level.domain_size));
  MESHIFT_RETURN_IF_ERROR(
      reader.RequireInt("bandwidth_bytes_per_us", &level.bandwidth_bytes_per_us));
  MESHIFT_RETURN_IF_ERROR(reader.RequireInt("latency_ns", &level.latency_ns));
  MESHIFT_RETURN_IF_ERROR(reader.Finish());
  return level;
}

absl::StatusOr<TopologyConstants> ReadConstants(const Json& json) {
  TopologyConstants c;
  ObjectReader reader(json, "'constants'");
  MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("collective_latency_ns", &c.collective_latency_ns));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("message_latency_ns", &c.message_latency_ns));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("copy_latency_ns", &c.copy_latency_ns));
  MESHIFT_RETURN_IF_ERROR(
      reader.OptionalInt("copy_bandwidth_bytes_per_us", &c.copy_bandwidth_bytes_per_us));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("group_setup_ns", &c.group_setup_ns));
  MESHIFT_RETURN_IF_ERROR(reader.Finish());
  return c;
}

Json LevelsToJson(absl::Span<const TopologyLevel> levels) {
  Json json = Json::array();
  for (const TopologyLevel& level : levels) {
    json.push_back({{"name", level.name},
                    {"domain_size", level.domain_size},
                    {"bandwidth_bytes_per_us", level.bandwidth_bytes_per_us},
                    {"latency_ns", level.latency_ns}});
  }
  return json;
}

Json ConstantsToJson(const TopologyConstants& c) {
  return {{"collective_latency_ns", c.collective_latency_ns},
          {"message_latency_ns", c.message_latency_ns},
          {"copy_latency_ns", c.copy_latency_ns},
          {"copy_bandwidth_bytes_per_us", c.copy_bandwidth_bytes_per_us},
          {"group_setup_ns", c.group_setup_ns}};
}

}  // namespace

Topology Topology::Flat() {
  Topology topology;
  topology.levels_ = {MakeLevel(kFlatName, 0, kNvlink4)};
  return topology;
}

absl::StatusOr<Topology> Topology::Create(std::vector<TopologyLevel> levels,
                                          TopologyConstants constants) {
  if (levels.empty()) return InvalidArgument("a topology needs at least one level");
  std::set<std::string_view> names;
  for (size_t i = 0; i < levels.size(); ++i) {
    const auto& [name, size, bandwidth, latency] = levels[i];
    MESHIFT_RETURN_IF_ERROR(CheckName("level name", name));
    if (!names.insert(name).second) return InvalidArgument("level '{}' is named twice", name);
    if (i + 1 == levels.size()) {
      if (size != 0) {
        return InvalidArgument("the last level '{}' has domain size {}; it holds all ranks, size 0",
                               name, size);
      }
    } else if (size < 1) {
      return InvalidArgument("level '{}' has domain size {}; all but the last have 1 or more", name,
                             size);
    } else if (i > 0) {
      const TopologyLevel& inner = levels[i - 1];
      if (size % inner.domain_size != 0 || size == inner.domain_size) {
        return InvalidArgument(
            "domain size {} of level '{}' is not a multiple (2 or more) of {}, that of '{}'", size,
            name, inner.domain_size, inner.name);
      }
    }
    MESHIFT_RETURN_IF_ERROR(
        CheckAtLeast(1, bandwidth, fmt::format("bandwidth_bytes_per_us of level '{}'", name)));
    MESHIFT_RETURN_IF_ERROR(
        CheckNs(latency, kMaxLatencyNs, fmt::format("latency_ns of level '{}'", name)));
  }
  MESHIFT_RETURN_IF_ERROR(CheckConstants(constants));
  Topology topology;
  topology.levels_.assign(std::make_move_iterator(levels.begin()),
                          std::make_move_iterator(levels.end()));
  topology.constants_ = constants;
  return topology;
}

absl::StatusOr<Topology> Topology::Parse(std::string_view text) {
  if (text == kFlatName) return Flat();
  for (const Preset& preset : kPresets) {
    if (text != preset.name) continue;
    return Create({MakeLevel(kNvlinkName, preset.domain_size, preset.nvlink),
                   MakeLevel(kNetName, 0, preset.net)},
                  ConstantsOf(preset));
  }
  if (text.substr(0, 1) == "{") return FromJson(text);
  const auto parse = [text]() -> absl::StatusOr<Topology> {
    MESHIFT_ASSIGN_OR_RETURN(std::vector<TopologyLevel> levels, ParseLevels(text));
    return Create(std::move(levels));
  };
  absl::StatusOr<Topology> topology = parse();
  if (!topology.ok()) return Annotate(topology.status(), fmt::format("topology '{}'", text));
  return topology;
}

absl::StatusOr<Topology> Topology::FromJson(std::string_view text) {
  const auto parse = [text]() -> absl::StatusOr<Topology> {
    MESHIFT_ASSIGN_OR_RETURN(const Json json, ParseJsonText(text));
    if (json.is_discarded()) return InvalidArgument("the text is not one JSON value");
    ObjectReader reader(json, "the JSON value");
    MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
    MESHIFT_ASSIGN_OR_RETURN(const Json* list, reader.Require("levels"));
    if (!list->is_array()) {
      return InvalidArgument("'levels' is {}; it must be an array", Quote(*list));
    }
    std::vector<TopologyLevel> levels;
    for (const Json& item : *list) {
      MESHIFT_ASSIGN_OR_RETURN(TopologyLevel level, ReadLevel(item));
      levels.push_back(std::move(level));
    }
    TopologyConstants constants;
    if (const Json* member = reader.Take("constants")) {
      MESHIFT_ASSIGN_OR_RETURN(constants, ReadConstants(*member));
    }
    MESHIFT_RETURN_IF_ERROR(reader.Finish());
    return Create(std::move(levels), constants);
  };
  absl::StatusOr<Topology> topology = parse();
  if (!topology.ok()) return Annotate(topology.status(), "topology");
  return topology;
}

std::string Topology::ToJson() const {
  const Json json = {{"levels", LevelsToJson(levels_)}, {"constants", ConstantsToJson(constants_)}};
  return json.dump(2);
}

int64_t Topology::DomainOf(int level, int64_t rank) const {
  const int64_t size = levels_[level].domain_size;
  return size == 0 ? 0 : rank / size;
}

int Topology::LevelBetween(int64_t a, int64_t b) const {
  int level = 0;
  while (DomainOf(level, a) != DomainOf(level, b)) ++level;
  return level;
}

std::string Topology::ToString() const {
  // Every plan says its topology, most of them one of these.
  if (NumLevels() == 1 && IsLevel(level(0), kFlatName, 0, kNvlink4) &&
      constants_ == TopologyConstants()) {
    return std::string(kFlatName);
  }
  for (const Preset& preset : kPresets) {
    if (NumLevels() == 2 && IsLevel(level(0), kNvlinkName, preset.domain_size, preset.nvlink) &&
        IsLevel(level(1), kNetName, 0, preset.net) && constants_ == ConstantsOf(preset)) {
      return std::string(preset.name);
    }
  }
  std::string sizes;
  for (int i = 0; i + 1 < NumLevels(); ++i) {
    sizes += fmt::format("{}{}={}", i == 0 ? "" : ",", level(i).name, level(i).domain_size);
  }
  if (const absl::StatusOr<Topology> parsed = Parse(sizes); parsed.ok() && *parsed == *this) {
    return sizes;
  }
  Json json = {{"levels", LevelsToJson(levels_)}};
  if (constants_ != TopologyConstants()) json["constants"] = ConstantsToJson(constants_);
  return json.dump();
}

}  // namespace meshift
