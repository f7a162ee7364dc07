// Reads NCCL's XML description of a node: a file for NCCL_TOPO_FILE, or one that
// NCCL_TOPO_DUMP_FILE has written.
//
//   MESHIFT_ASSIGN_OR_RETURN(NcclTopologyFile node, ParseNcclTopology(xml));
//   node.gpus.size();         // 8
//   node.nics[0].mbps;        // 400000, from its <net>
//
// The reader counts the devices that NCCL counts:
//
//   GPUs   the <gpu> elements of PCI devices; without any (as in files for NCCL_TOPO_FILE), PCI
//          devices of class 0x03... <gpu>s of one PCI device count once, but its partitions
//          (mlopart) count each.
//   NICs   the <net> elements of a <nic> (a NIC of two ports has two), except those that NCCL
//          ignores (no `dev`) or has merged into another (net="0"); without any, PCI devices of
//          class 0x02...
//
// Elements that NCCL does not read, and elements in a wrong place, are skipped with their content.
// The dump of a multi-node NVLink domain has several hosts, with a `host_hash` in <cpu>. All must
// have the same numbers of devices, except those without any, which do not count; the first host's
// devices are returned.
//
// Opens no file. Errors are INVALID_ARGUMENT and name the value and the rule, and the line if one
// element is wrong. RESOURCE_EXHAUSTED: expat gets no memory. A DOCTYPE is refused, and so are
// entities that it would define. The text is read as UTF-8, whatever encoding it declares. Time and
// memory are linear in the text.
#ifndef MESHIFT_CLI_NCCL_TOPOLOGY_XML_H_
#define MESHIFT_CLI_NCCL_TOPOLOGY_XML_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift::cli {

inline constexpr int64_t kMaxNcclTopologyBytes = int64_t{4} << 20;  // a longer text is refused
inline constexpr int64_t kMaxNcclTopologyDepth = 64;  // of elements; NCCL's own files have about 10

enum class NicSpeed {
  kNet,      // <net speed>: the speed of the network
  kPcie,     // an upper bound: the NIC's PCIe link, link_speed times link_width
  kUnknown,  // the file has neither; mbps is 0
};

struct NcclTopologyNic {
  // The name of the <net>, which may be empty, or the busid of the PCI device; at most 200 bytes.
  std::string name;
  int64_t mbps = 0;  // 10^6 bit/s in each direction
  NicSpeed source = NicSpeed::kUnknown;
  friend bool operator==(const NcclTopologyNic&, const NcclTopologyNic&) = default;
};

struct NcclTopologyGpu {
  std::string busid;               // at most 200 bytes
  std::optional<int64_t> sm;       // compute capability: 90 is 9.0
  std::optional<int64_t> nvlinks;  // the counts of its <nvlink>s together
  friend bool operator==(const NcclTopologyGpu&, const NcclTopologyGpu&) = default;
};

struct NcclTopologyFile {
  int64_t hosts = 1;                  // described by the file; at least 1
  std::vector<NcclTopologyGpu> gpus;  // of one host, in the file's order; at least one
  std::vector<NcclTopologyNic> nics;  // of one host
  friend bool operator==(const NcclTopologyFile&, const NcclTopologyFile&) = default;
};

// Parses <system version="1">; as in NCCL, text after the number is ignored. The bound of a PCIe
// link counts 128b/130b coding from 8 GT/s on and 8b/10b below; it does not subtract packet
// headers.
absl::StatusOr<NcclTopologyFile> ParseNcclTopology(std::string_view xml);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_NCCL_TOPOLOGY_XML_H_
