#include "meshift/topology.h"

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
#include "fmt/format.h"
#include "mesh/name.h"
#include "mesh/topology_presets.h"
#include "meshift/status.h"
#include "nlohmann/json.hpp"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFlatName = "flat";
constexpr std::string_view kNvlinkName = "nvlink";
constexpr std::string_view kNetName = "net";
constexpr size_t kMaxProtocols = 16;

TopologyLevel FlatLevel() { return {std::string(kFlatName), 0, 360'000, 1'000}; }

// The level for "name=size", with the links of an H100 machine: "nvlink" is NVLink, "rail" and
// "net" are the network; any other name is NVLink if it is the innermost level, else the network.
TopologyLevel LevelNamed(std::string_view name, int64_t size, bool innermost) {
  const bool network = name == "rail" || name == kNetName;
  return name == kNvlinkName || (innermost && !network) ? NvlinkLevel(name, size)
                                                        : NetworkLevel(name, size);
}

absl::Status CheckAtLeast(int64_t least, int64_t value, std::string_view what) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("{} is {}; it must be {} or more", what, value, least);
}

// Limits on times, in ns: 1 s and 1,000 s. With them, the latencies of 2^31 messages add up to less
// than 2^63.
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

absl::Status CheckLevel(const TopologyLevel& level) {
  const auto check = [&](int64_t least, int64_t value, std::string_view what) {
    return CheckAtLeast(least, value, fmt::format("{} of level '{}'", what, level.name));
  };
  MESHIFT_RETURN_IF_ERROR(check(1, level.bandwidth_bytes_per_us, "bandwidth_bytes_per_us"));
  for (const auto& [what, ns] :
       {std::pair("latency_ns", level.latency_ns), std::pair("entry_ns", level.entry_ns)}) {
    MESHIFT_RETURN_IF_ERROR(
        CheckNs(ns, kMaxLatencyNs, fmt::format("{} of level '{}'", what, level.name)));
  }
  for (const auto& [what, value] :
       {std::pair("direct_bandwidth_bytes_per_us", level.direct_bandwidth_bytes_per_us),
        std::pair("domain_bandwidth_bytes_per_us", level.domain_bandwidth_bytes_per_us),
        std::pair("in_switch_bandwidth_bytes_per_us", level.in_switch_bandwidth_bytes_per_us),
        std::pair("in_switch_members", level.in_switch_members)}) {
    MESHIFT_RETURN_IF_ERROR(check(0, value, what));
  }
  return absl::OkStatus();
}

absl::Status CheckProtocols(absl::Span<const TopologyProtocol> protocols) {
  if (protocols.size() > kMaxProtocols) {
    return InvalidArgument("there are {} protocols; at most {} may be given", protocols.size(),
                           kMaxProtocols);
  }
  std::set<std::string_view> names;
  for (const TopologyProtocol& protocol : protocols) {
    MESHIFT_RETURN_IF_ERROR(CheckName("protocol name", protocol.name));
    if (!names.insert(protocol.name).second) {
      return InvalidArgument("protocol '{}' is named twice", protocol.name);
    }
    const auto of = [&](std::string_view what) {
      return fmt::format("{} of protocol '{}'", what, protocol.name);
    };
    MESHIFT_RETURN_IF_ERROR(CheckNs(protocol.start_ns, kMaxLatencyNs, of("start_ns")));
    constexpr int64_t kMostLatency = 10'000;
    MESHIFT_RETURN_IF_ERROR(CheckNs(protocol.latency_percent, kMostLatency, of("latency_percent")));
    for (const auto& [what, percent] : {std::pair("bandwidth_percent", protocol.bandwidth_percent),
                                        std::pair("domain_percent", protocol.domain_percent)}) {
      MESHIFT_RETURN_IF_ERROR(CheckAtLeast(1, percent, of(what)));
      if (percent > 100) {
        return InvalidArgument("{} is {}; it must be 100 or less", of(what), percent);
      }
    }
  }
  return absl::OkStatus();
}

// The text form, "nvlink=8,rail=64".
absl::StatusOr<std::vector<TopologyLevel>> ParseLevels(std::string_view text) {
  std::vector<TopologyLevel> levels;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals == part.npos) {
      return InvalidArgument("'{}' is not name=size", part);
    }
    const std::string_view name = part.substr(0, equals);
    const std::string_view digits = part.substr(equals + 1);
    int64_t size = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, size);
    if (error != std::errc() || stop != end) {
      return InvalidArgument("domain size '{}' of level '{}' is not a 64-bit number", digits, name);
    }
    levels.push_back(LevelNamed(name, size, levels.empty()));
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  levels.push_back(NetworkLevel(kNetName, 0));
  return levels;
}

std::string Quote(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Reads the members of a JSON object, each at most once; Finish() returns an error for unread
// members.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {}

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

  // Leaves *out unchanged if the key is absent.
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
  const std::string what_;
  std::set<std::string_view> known_;
};

// Optional fields: not printed if they are 0.
struct LevelField {
  const char* key;
  int64_t TopologyLevel::*member;
};
constexpr LevelField kLevelFields[] = {
    {"entry_ns", &TopologyLevel::entry_ns},
    {"direct_bandwidth_bytes_per_us", &TopologyLevel::direct_bandwidth_bytes_per_us},
    {"domain_bandwidth_bytes_per_us", &TopologyLevel::domain_bandwidth_bytes_per_us},
    {"in_switch_bandwidth_bytes_per_us", &TopologyLevel::in_switch_bandwidth_bytes_per_us},
    {"in_switch_members", &TopologyLevel::in_switch_members},
};

absl::StatusOr<TopologyLevel> ReadLevel(const Json& json, size_t index) {
  TopologyLevel level;
  ObjectReader reader(json, fmt::format("level {}", index));
  MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
  MESHIFT_RETURN_IF_ERROR(reader.RequireString("name", &level.name));
  MESHIFT_RETURN_IF_ERROR(reader.RequireInt("domain_size", &level.domain_size));
  MESHIFT_RETURN_IF_ERROR(
      reader.RequireInt("bandwidth_bytes_per_us", &level.bandwidth_bytes_per_us));
  MESHIFT_RETURN_IF_ERROR(reader.RequireInt("latency_ns", &level.latency_ns));
  for (const LevelField& field : kLevelFields) {
    MESHIFT_RETURN_IF_ERROR(reader.OptionalInt(field.key, &(level.*field.member)));
  }
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

absl::StatusOr<TopologyProtocol> ReadProtocol(const Json& json, size_t index) {
  TopologyProtocol p;
  ObjectReader reader(json, fmt::format("protocol {}", index));
  MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
  MESHIFT_RETURN_IF_ERROR(reader.RequireString("name", &p.name));
  MESHIFT_RETURN_IF_ERROR(reader.RequireInt("start_ns", &p.start_ns));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("latency_percent", &p.latency_percent));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("bandwidth_percent", &p.bandwidth_percent));
  MESHIFT_RETURN_IF_ERROR(reader.OptionalInt("domain_percent", &p.domain_percent));
  MESHIFT_RETURN_IF_ERROR(reader.Finish());
  return p;
}

Json LevelsToJson(absl::Span<const TopologyLevel> levels) {
  Json json = Json::array();
  for (const TopologyLevel& level : levels) {
    Json item = {{"name", level.name},
                 {"domain_size", level.domain_size},
                 {"bandwidth_bytes_per_us", level.bandwidth_bytes_per_us},
                 {"latency_ns", level.latency_ns}};
    for (const LevelField& field : kLevelFields) {
      if (level.*field.member != 0) item[field.key] = level.*field.member;
    }
    json.push_back(std::move(item));
  }
  return json;
}

Json ProtocolsToJson(absl::Span<const TopologyProtocol> protocols) {
  Json json = Json::array();
  for (const TopologyProtocol& p : protocols) {
    json.push_back({{"name", p.name},
                    {"start_ns", p.start_ns},
                    {"latency_percent", p.latency_percent},
                    {"bandwidth_percent", p.bandwidth_percent},
                    {"domain_percent", p.domain_percent}});
  }
  return json;
}

// Reads a list; read(item, index) converts each item.
template <typename T>
absl::StatusOr<std::vector<T>> ReadList(const Json& list, std::string_view key,
                                        absl::StatusOr<T> (*read)(const Json&, size_t)) {
  if (!list.is_array()) {
    return InvalidArgument("'{}' is {}; it must be an array", key, Quote(list));
  }
  std::vector<T> items;
  for (const Json& json : list) {
    MESHIFT_ASSIGN_OR_RETURN(T item, read(json, items.size()));
    items.push_back(std::move(item));
  }
  return items;
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
  topology.levels_ = {FlatLevel()};
  return topology;
}

absl::StatusOr<Topology> Topology::Create(std::vector<TopologyLevel> levels,
                                          TopologyConstants constants,
                                          std::vector<TopologyProtocol> protocols) {
  if (levels.empty()) return InvalidArgument("a topology needs at least one level");
  std::set<std::string_view> names;
  for (size_t i = 0; i < levels.size(); ++i) {
    const std::string& name = levels[i].name;
    const int64_t size = levels[i].domain_size;
    MESHIFT_RETURN_IF_ERROR(CheckName("level name", name));
    if (!names.insert(name).second) return InvalidArgument("level '{}' is named twice", name);
    if (i + 1 == levels.size()) {
      if (size != 0) {
        return InvalidArgument("the last level '{}' has domain size {}; it must be 0 (all ranks)",
                               name, size);
      }
    } else if (size < 1) {
      return InvalidArgument(
          "level '{}' has domain size {}; it must be 1 or more below the last level", name, size);
    } else if (i > 0) {
      const TopologyLevel& inner = levels[i - 1];
      if (size % inner.domain_size != 0 || size == inner.domain_size) {
        return InvalidArgument(
            "domain size {} of level '{}' is not a multiple (2 or more) of {}, that of '{}'", size,
            name, inner.domain_size, inner.name);
      }
    }
    MESHIFT_RETURN_IF_ERROR(CheckLevel(levels[i]));
  }
  MESHIFT_RETURN_IF_ERROR(CheckConstants(constants));
  MESHIFT_RETURN_IF_ERROR(CheckProtocols(protocols));
  Topology topology;
  topology.levels_.assign(std::make_move_iterator(levels.begin()),
                          std::make_move_iterator(levels.end()));
  topology.constants_ = constants;
  topology.protocols_.assign(std::make_move_iterator(protocols.begin()),
                             std::make_move_iterator(protocols.end()));
  return topology;
}

absl::StatusOr<Topology> Topology::Parse(std::string_view text) {
  if (text == kFlatName) return Flat();
  if (text.substr(0, 1) == "{") return FromJson(text);
  const auto parse = [text]() -> absl::StatusOr<Topology> {
    if (IsPresetText(text)) return PresetTopology(text);
    MESHIFT_ASSIGN_OR_RETURN(std::vector<TopologyLevel> levels, ParseLevels(text));
    return Create(std::move(levels), NcclConstants(), NcclProtocols());
  };
  absl::StatusOr<Topology> topology = parse();
  if (!topology.ok()) return Annotate(topology.status(), fmt::format("topology '{}'", text));
  return topology;
}

absl::StatusOr<Topology> Topology::FromJson(std::string_view text) {
  const auto parse = [text]() -> absl::StatusOr<Topology> {
    MESHIFT_ASSIGN_OR_RETURN(Json json, ParseJsonText(text));
    const JsonEmptier emptier(json);
    if (json.is_discarded()) return InvalidArgument("the text is not one JSON value");
    ObjectReader reader(json, "the JSON value");
    MESHIFT_RETURN_IF_ERROR(reader.CheckIsObject());
    MESHIFT_ASSIGN_OR_RETURN(const Json* list, reader.Require("levels"));
    MESHIFT_ASSIGN_OR_RETURN(std::vector<TopologyLevel> levels,
                             ReadList<TopologyLevel>(*list, "levels", ReadLevel));
    std::vector<TopologyProtocol> protocols;
    if (const Json* member = reader.Take("protocols")) {
      MESHIFT_ASSIGN_OR_RETURN(protocols,
                               ReadList<TopologyProtocol>(*member, "protocols", ReadProtocol));
    }
    TopologyConstants constants;
    if (const Json* member = reader.Take("constants")) {
      MESHIFT_ASSIGN_OR_RETURN(constants, ReadConstants(*member));
    }
    MESHIFT_RETURN_IF_ERROR(reader.Finish());
    return Create(std::move(levels), constants, std::move(protocols));
  };
  absl::StatusOr<Topology> topology = parse();
  if (!topology.ok()) return Annotate(topology.status(), "topology");
  return topology;
}

std::string Topology::ToJson() const {
  Json json = {{"levels", LevelsToJson(levels_)}, {"constants", ConstantsToJson(constants_)}};
  if (!protocols_.empty()) json["protocols"] = ProtocolsToJson(protocols_);
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
  // Fast path: every plan prints its topology, usually one of these.
  if (NumLevels() == 1 && level(0) == FlatLevel() && constants_ == TopologyConstants() &&
      protocols_.empty()) {
    return std::string(kFlatName);
  }
  if (std::string preset = PresetNameOf(*this); !preset.empty()) return preset;
  std::string sizes;
  for (int i = 0; i + 1 < NumLevels(); ++i) {
    sizes += fmt::format("{}{}={}", i == 0 ? "" : ",", level(i).name, level(i).domain_size);
  }
  if (const absl::StatusOr<Topology> parsed = Parse(sizes);
      NumLevels() > 1 && parsed.ok() && *parsed == *this) {
    return sizes;
  }
  Json json = {{"levels", LevelsToJson(levels_)}};
  if (constants_ != TopologyConstants()) json["constants"] = ConstantsToJson(constants_);
  if (!protocols_.empty()) json["protocols"] = ProtocolsToJson(protocols_);
  return json.dump();
}

}  // namespace meshift
