// Topology presets by GPU and fabric: the numbers of `--topology h100-efa`.
//
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, PresetTopology("h100-efa,nics=4x100"));
//   PresetNames();       // {"a100-hdr", "a100-ndr", ...}
//
// Links inside a domain belong to the GPU, links beyond it to the fabric. docs/cost_model.md
// defines each number, with the measurements that it comes from. "flat" is not a preset
// (Topology::Flat). Internal to Meshift. Pure functions; safe for concurrent use.
#ifndef MESHIFT_MESH_TOPOLOGY_PRESETS_H_
#define MESHIFT_MESH_TOPOLOGY_PRESETS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/topology.h"

namespace meshift {

// The names of all presets, "GPU-fabric", ordered by GPU. "GPU" alone means its first preset.
std::vector<std::string> PresetNames();
// Whether the text has the form of a preset, known or unknown: neither "name=size" nor JSON. True
// for "flat" and the empty text too.
bool IsPresetText(std::string_view text);

// Known facts about the nodes of a machine.
struct NodeCounts {
  std::optional<int64_t> gpus = std::nullopt;       // of a node; at least 1
  std::optional<int64_t> nics_gbps = std::nullopt;  // Gb/s of all NICs; 1 to 10^12, not checked
};

// Parses "h100" or "h100-ndr", with an optional change: ",nics=4x100" means 4 NICs of 100 Gb/s in
// each node; both numbers are from 1 to 1,000,000. INVALID_ARGUMENT names the value; for an unknown
// preset it lists the known ones.
//
// `node.gpus`: the GPUs of a node share the NICs, and form a domain. If the preset's domains are
// larger than its nodes (gb200, gb300), they keep their size, unless node.gpus is larger. Without
// `node.nics_gbps`, a GPU's share of the NICs is that of the preset. ",nics=" overrides
// node.nics_gbps.
absl::StatusOr<Topology> PresetTopology(std::string_view text, const NodeCounts& node = {});
// The shortest name of the preset that equals `topology`; empty if there is none.
std::string PresetNameOf(const Topology& topology);

// Levels of this name and size with the links of an H100 machine: NVLink, or the network.
TopologyLevel NvlinkLevel(std::string_view name, int64_t domain_size);
TopologyLevel NetworkLevel(std::string_view name, int64_t domain_size);
// NCCL's protocols, and the constants of an H100 machine.
std::vector<TopologyProtocol> NcclProtocols();
TopologyConstants NcclConstants();

}  // namespace meshift

#endif  // MESHIFT_MESH_TOPOLOGY_PRESETS_H_
