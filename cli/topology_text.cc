#include "cli/topology_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "cli/input_file.h"
#include "cli/io.h"
#include "cli/nccl_topology_xml.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

bool IsJsonFile(std::string_view text) { return text.ends_with(".json") && !text.starts_with("{"); }
bool IsXmlPart(std::string_view part) { return part.ends_with(".xml"); }

// A preset's text, and the file given with it; empty if none.
struct Parts {
  std::string preset;
  std::string file;
};

absl::StatusOr<Parts> Split(std::string_view text) {
  Parts parts;
  std::string_view rest = text;
  bool first = true;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    if (!IsXmlPart(part)) {
      parts.preset += (first ? "" : ",") + std::string(part);
    } else if (first) {
      return InvalidArgument("{} needs a preset before it: h100,{}", Quoted(part), Shown(part));
    } else if (!parts.file.empty()) {
      return InvalidArgument("{} and {} both describe nodes; only one may be given",
                             Quoted(parts.file), Quoted(part));
    } else {
      parts.file = std::string(part);
    }
    first = false;
    if (comma == rest.npos) return parts;
    rest.remove_prefix(comma + 1);
  }
}

// The sum of the speeds of a node's NICs, in Gb/s; none if it has no NICs.
absl::StatusOr<std::optional<int64_t>> NicsGbps(const NcclTopologyFile& node) {
  constexpr int64_t kMost = 1'000'000'000'000;  // Gb/s; keeps later products below 2^63
  int64_t mbps = 0;
  for (const NcclTopologyNic& nic : node.nics) {
    if (nic.source == NicSpeed::kUnknown || nic.mbps < 1) {
      return InvalidArgument(
          "NIC {} has neither the speed of its network nor a PCIe link; write nics=COUNTxGBPS "
          "before the file",
          Quoted(nic.name));
    }
    mbps = SaturatingAdd(mbps, nic.mbps);
  }
  if (mbps == 0) return std::nullopt;
  return std::clamp<int64_t>(mbps / 1000, 1, kMost);
}

std::string NoteOf(const NcclTopologyFile& node, const std::string& file) {
  if (node.nics.empty()) {
    return fmt::format("{} has no NICs; using the preset's network", Shown(file));
  }
  int64_t bounds = 0;
  for (const NcclTopologyNic& nic : node.nics) bounds += nic.source == NicSpeed::kPcie ? 1 : 0;
  if (bounds == 0) return "";
  return fmt::format(
      "{} does not give the speed of {} of {}; using the PCIe limit; to set it, write "
      "nics=COUNTxGBPS before the file",
      Shown(file), bounds, CountText(static_cast<int64_t>(node.nics.size()), "NIC"));
}

absl::StatusOr<NcclTopologyFile> ReadNode(const std::string& file) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> in, OpenFile(file));
  // ParseNcclTopology has the same limit.
  const absl::StatusOr<std::string> xml = ReadUpTo(*in, kMaxNcclTopologyBytes);
  if (!xml.ok()) return BadFile(file, xml.status());
  absl::StatusOr<NcclTopologyFile> node = ParseNcclTopology(*xml);
  if (!node.ok()) return BadFile(file, node.status());
  return node;
}

absl::StatusOr<TopologyText> ReadPreset(const std::string& text, NodeCounts counts) {
  MESHIFT_ASSIGN_OR_RETURN(const Parts parts, Split(text));
  std::string note;
  if (!parts.file.empty()) {
    if (!IsPresetText(parts.preset) || parts.preset == "flat") {
      return InvalidArgument("{} is not a preset; a node's file needs one: h100,{}",
                             Quoted(parts.preset), Shown(parts.file));
    }
    // Report errors of the preset before those of the file.
    MESHIFT_RETURN_IF_ERROR(PresetTopology(parts.preset).status());
    MESHIFT_ASSIGN_OR_RETURN(const NcclTopologyFile node, ReadNode(parts.file));
    counts.gpus = static_cast<int64_t>(node.gpus.size());
    if (parts.preset.find(',') == parts.preset.npos) {
      const absl::StatusOr<std::optional<int64_t>> gbps = NicsGbps(node);
      if (!gbps.ok()) return BadFile(parts.file, gbps.status());
      counts.nics_gbps = *gbps;
      note = NoteOf(node, parts.file);
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(Topology topology, PresetTopology(parts.preset, counts));
  return TopologyText{std::move(topology), std::move(note)};
}

bool HasXmlPart(std::string_view text) {
  if (text.starts_with("{")) return false;
  while (true) {
    const size_t comma = text.find(',');
    if (IsXmlPart(text.substr(0, comma))) return true;
    if (comma == text.npos) return false;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

void TellNote(const std::optional<std::string>& text, Io& io) {
  if (!text || !HasXmlPart(*text)) return;
  const absl::StatusOr<TopologyText> read = ReadTopology(*text);
  if (!read.ok() || read->note.empty()) return;
  io.err << ShownMessage(fmt::format("meshift: --topology: {}", read->note)) << "\n";
}

bool NamesFile(std::string_view text) { return IsJsonFile(text) || HasXmlPart(text); }

absl::StatusOr<TopologyText> ReadTopology(const std::string& text, const NodeCounts& known) {
  if (IsJsonFile(text)) {
    MESHIFT_ASSIGN_OR_RETURN(const std::string json, ReadFile(text));
    absl::StatusOr<Topology> read = Topology::FromJson(json);
    if (!read.ok()) return BadFile(text, read.status());
    return TopologyText{*std::move(read), ""};
  }
  const bool is_preset = IsPresetText(text) && text != "flat";
  if (HasXmlPart(text) || (is_preset && (known.gpus || known.nics_gbps))) {
    absl::StatusOr<TopologyText> read = ReadPreset(text, known);
    if (read.ok() || ExitCodeOf(read.status()) == kExitBadFile) return read;
    return Annotate(read.status(), fmt::format("topology '{}'", text));
  }
  MESHIFT_ASSIGN_OR_RETURN(Topology topology, Topology::Parse(text));
  return TopologyText{std::move(topology), ""};
}

}  // namespace meshift::cli
