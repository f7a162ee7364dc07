// What --topology takes: the text of a topology, a file, or a preset on the nodes of NCCL's file.
//
//   MESHIFT_ASSIGN_OR_RETURN(TopologyText read, ReadTopology("h100-efa,ndv5-topo.xml"));
//   read.topology.level(0).domain_size;     // the node's GPUs
//   read.note;                              // what is to be said about it; often empty
//
//   cluster.json           as Topology::ToJson, or `meshift calibrate`, writes it
//   PRESET,FILE.xml        the counts of NCCL's topology file (cli/nccl_topology_xml.h), all else
//                          as the preset has it: GPUs per node are a domain, unless the preset's
//                          domains span nodes; NICs and their speeds are as with nics=
//   PRESET,nics=4x100,FILE.xml    but for the NICs
//   any other text         Topology::Parse
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
  std::string note;  // where NICs' speeds are only bounds, or there are none; else empty
};

// Whether the text names a file that would be read.
bool NamesFile(std::string_view text);

// Errors that lie in a file are those of BadFile (cli/io.h); others are INVALID_ARGUMENT as
// Topology::Parse has them. `known` is what is known of the nodes beside the text: it counts for
// presets, as far as no file says it. Linear in the file.
absl::StatusOr<TopologyText> ReadTopology(const std::string& text, const NodeCounts& known = {});

// Prints the note of what --topology was given to io.err, on one line, where there is one. Errors
// are left to who reads the topology to use it.
void TellNote(const std::optional<std::string>& text, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TOPOLOGY_TEXT_H_
