// Reads the value of --topology: the text of a topology, a file, or a preset with NCCL's file of a
// node.
//
//   MESHIFT_ASSIGN_OR_RETURN(TopologyText read, ReadTopology("h100-efa,ndv5-topo.xml"));
//   read.topology.level(0).domain_size;     // the node's GPUs
//   read.note;                              // a remark for the user; often empty
//
//   cluster.json           the format of Topology::ToJson and `meshift calibrate`
//   PRESET,FILE.xml        the preset with the counts of NCCL's topology file
//                          (cli/nccl_topology_xml.h). A node's GPUs are a domain, unless the
//                          preset's domains span nodes. The file's NICs, if any, replace the
//                          preset's.
//   PRESET,nics=4x100,FILE.xml    the same, but the NICs are those of nics=
//   any other text         Topology::Parse
//
// PRESET may not be "flat". A NIC with neither a speed nor a PCIe link in the file is an error,
// unless nics= is given. At most one .xml may be given, and its path has no comma. It is read up to
// 4 MiB (kMaxNcclTopologyBytes), a .json up to kMaxFileBytes.
#ifndef MESHIFT_CLI_TOPOLOGY_TEXT_H_
#define MESHIFT_CLI_TOPOLOGY_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "mesh/topology_presets.h"
#include "meshift/topology.h"

namespace meshift::cli {

struct TopologyText {
  Topology topology;
  // If NICs' speeds are only bounds, or if the file has no NICs. Else, and with nics=, empty.
  std::string note;
};

// Whether the text names a .json or .xml file.
bool NamesFile(std::string_view text);

// Errors in a file are those of BadFile (cli/io.h); others are INVALID_ARGUMENT, as from
// Topology::Parse. `known`: the nodes' GPUs and NICs from another source, used for a preset without
// an .xml; nics= overrides the NICs. Takes time linear in the file.
absl::StatusOr<TopologyText> ReadTopology(const std::string& text, const NodeCounts& known = {});

// Prints the note on the value of --topology, if any, to io.err on one line. Reads the file for it.
// Prints no errors; the code that uses the topology does.
void TellNote(const std::optional<std::string>& text, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TOPOLOGY_TEXT_H_
