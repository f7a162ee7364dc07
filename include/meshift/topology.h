// Topology: the cost model's description of the machine: a hierarchy of links between ranks, and
// the protocols of the collective library.
//
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, Topology::Parse("h100"));
//   topology.NumLevels();               // 2: NVLink inside a domain of 8 ranks, network beyond
//   topology.level(0).domain_size;      // 8
//   topology.DomainOf(0, 13);           // 1: rank 13 is in the second NVLink domain
//   topology.protocols()[0].name;       // "LL"
//
// Level 0 is the innermost. Ranks r with equal r / domain_size share a domain of a level; the last
// level has all ranks (domain_size 0). The other domain sizes are 1 or more, and each is a whole
// number, 2 or more, times the one before. The names of levels, and those of protocols, are unique,
// match [A-Za-z_][A-Za-z0-9_]* and have at most 100 bytes. group_setup_ns is at most 1,000 s, every
// other time at most 1 s. docs/cost_model.md has the formulas.
//
// The caller states the machine: nothing here measures it (see meshift/calibration.h). A Topology
// is an immutable value. Safe for concurrent use.
#ifndef MESHIFT_TOPOLOGY_H_
#define MESHIFT_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

struct TopologyLevel {
  std::string name;                    // "nvlink", "net", "flat"
  int64_t domain_size = 0;             // ranks per domain; 0 on the last level: all ranks
  int64_t bandwidth_bytes_per_us = 0;  // one rank's share of the links of this level, one direction
  int64_t latency_ns = 0;              // added per hop over this level
  // The fields below are 0 if they do not apply.
  int64_t entry_ns = 0;  // added once to a collective over this level
  // The bandwidth of a rank that sends messages to many ranks; 0: bandwidth_bytes_per_us.
  int64_t direct_bandwidth_bytes_per_us = 0;
  // The joint bandwidth of the ranks of one group into a domain of the level below; 0: the sum of
  // their links.
  int64_t domain_bandwidth_bytes_per_us = 0;
  // In-switch all-reduce: bytes of the tensor per us and rank, and the smallest number of members,
  // or domains of the level below, that can use it; 0: not available.
  int64_t in_switch_bandwidth_bytes_per_us = 0;
  int64_t in_switch_members = 0;
  friend bool operator==(const TopologyLevel&, const TopologyLevel&) = default;
};

// A protocol of the collective library: a trade-off between start-up time and bandwidth.
struct TopologyProtocol {
  std::string name;                 // "LL", "LL128", "Simple"
  int64_t start_ns = 0;             // added to collective_latency_ns
  int64_t latency_percent = 100;    // of the levels' latency_ns and entry_ns
  int64_t bandwidth_percent = 100;  // of a rank's links
  int64_t domain_percent = 100;     // of the levels' domain_bandwidth_bytes_per_us
  friend bool operator==(const TopologyProtocol&, const TopologyProtocol&) = default;
};

// Constants that do not depend on the level.
struct TopologyConstants {
  // The start-up time of every collective; a protocol adds its start_ns.
  int64_t collective_latency_ns = 10000;
  int64_t message_latency_ns = 500;  // each further message of a grouped send/recv
  int64_t copy_latency_ns = 2000;    // start-up time of a local kernel
  int64_t copy_bandwidth_bytes_per_us =
      1500000;                         // local memory; a byte read and written counts once
  int64_t group_setup_ns = 100000000;  // creation of a group: a warm ncclCommSplit
  friend bool operator==(const TopologyConstants&, const TopologyConstants&) = default;
};

class Topology {
 public:
  // One level with all ranks: the default everywhere.
  static Topology Flat();
  // Without protocols every collective takes collective_latency_ns to start, the hops of a tree,
  // and the bytes of a ring, or of messages, at full bandwidth. INVALID_ARGUMENT: `levels` is
  // empty; a level, a constant or a protocol breaks a rule above; bandwidth_bytes_per_us or
  // copy_bandwidth_bytes_per_us is below 1, or another number below 0; latency_percent is above
  // 10,000, or another percentage not in 1..100; or there are more than 16 protocols.
  static absl::StatusOr<Topology> Create(std::vector<TopologyLevel> levels,
                                         TopologyConstants constants = {},
                                         std::vector<TopologyProtocol> protocols = {});
  // Text is one of: "flat"; a preset (mesh/topology_presets.h) such as "h100" or "h200-efa", with
  // an optional change, "h100,nics=4x100"; levels from the innermost, "nvlink=8" or
  // "nvlink=8,rail=64", with the links of an H100 machine, where the network level "net" is
  // implied; or JSON. Reads the format of ToString. INVALID_ARGUMENT names the value and the rule.
  static absl::StatusOr<Topology> Parse(std::string_view text);
  // {"levels": [{"name", "domain_size", "bandwidth_bytes_per_us", "latency_ns", ...}, ...],
  //   "constants": {...}, "protocols": [{"name", "start_ns", ...}, ...]}.
  // The keys named here in a level and in a protocol are required, and so is "levels"; other keys
  // have defaults. INVALID_ARGUMENT: a missing, an unknown or a duplicate key, a value of another
  // type, text that is not JSON, or an error of Create.
  static absl::StatusOr<Topology> FromJson(std::string_view json);
  std::string ToJson() const;

  int NumLevels() const { return static_cast<int>(levels_.size()); }
  const TopologyLevel& level(int i) const { return levels_[i]; }
  const TopologyConstants& constants() const { return constants_; }
  absl::Span<const TopologyProtocol> protocols() const { return protocols_; }
  // The index of the domain of `level` that contains `rank`. REQUIRES: 0 <= level < NumLevels(),
  // and here and in the next function that ranks are 0 or more.
  int64_t DomainOf(int level, int64_t rank) const;
  // The lowest level at which both ranks share a domain.
  int LevelBetween(int64_t a, int64_t b) const;

  // A text that Parse reads back to an equal value: "flat", the name of a preset, "nvlink=8", or
  // else the JSON form on one line.
  std::string ToString() const;
  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  Topology() = default;
  absl::InlinedVector<TopologyLevel, 1> levels_;
  TopologyConstants constants_;
  absl::InlinedVector<TopologyProtocol, 3> protocols_;
};

}  // namespace meshift

#endif  // MESHIFT_TOPOLOGY_H_
