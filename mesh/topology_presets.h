// Machines by GPU and fabric: the numbers behind `--topology h100-efa`.
//
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, PresetTopology("h100-efa,nics=4x100"));
//   PresetNames();       // {"a100-hdr", "a100-ndr", ...}
//
// Every GPU goes with every fabric: the links inside a domain are the GPU's, those beyond it the
// fabric's. docs/cost_model.md says what each number means and which measurements it comes from.
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

// "GPU-fabric" of all presets, by GPU. "GPU" alone stands for the first of its fabrics.
std::vector<std::string> PresetNames();
// Whether the text begins with a preset's name, known or not: no "name=size", no JSON.
bool IsPresetText(std::string_view text);

// What is known of the nodes of a machine.
struct NodeCounts {
  std::optional<int64_t> gpus = std::nullopt;
  std::optional<int64_t> nics_gbps = std::nullopt;  // of all NICs together; at least 1
};

// "h100" or "h100-ndr", and what is other than there: ",nics=4x100", 4 NICs of 100 Gb/s in each
// node. INVALID_ARGUMENT names the value; of an unknown preset, those that exist.
//
// Of `node`, the GPUs of a node are a domain, unless the preset's domains are larger than its
// nodes, as gb200's are; they share the NICs. Without NICs, a GPU's share of them is the preset's.
// ",nics=" comes before node.nics_gbps.
absl::StatusOr<Topology> PresetTopology(std::string_view text, const NodeCounts& node = {});
// The shortest name of the preset that this is; empty where it is none.
std::string PresetNameOf(const Topology& topology);

// The links of an H100 machine, inside a domain or beyond, as a level of that name and size.
TopologyLevel NvlinkLevel(std::string_view name, int64_t domain_size);
TopologyLevel NetworkLevel(std::string_view name, int64_t domain_size);
// NCCL's, and the constants of an H100 machine.
std::vector<TopologyProtocol> NcclProtocols();
TopologyConstants NcclConstants();

}  // namespace meshift

#endif  // MESHIFT_MESH_TOPOLOGY_PRESETS_H_
