// The constants of a topology, from times that an engine takes.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto probes, CalibrationProbes(structure, 16, int64_t{16} << 20));
//   for (const Probe& probe : probes) times.push_back(... the time of probe.from -> probe.to ...);
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, FitTopology(structure, probes, times));
//   topology.ToJson();                 // for --topology FILE.json
//
// `structure` says which ranks share a domain; its numbers stand where nothing was measured: of
// levels that the ranks do not reach, and group_setup_ns.
#ifndef MESHIFT_PLANNER_COST_CALIBRATION_H_
#define MESHIFT_PLANNER_COST_CALIBRATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "mesh/topology.h"
#include "placement/sharding.h"
#include "planner/plan/plan.h"

namespace meshift {

// A redistribution of one step, all of whose time one part of the cost model explains.
struct Probe {
  enum class Kind : uint8_t {
    kCopy,      // local memory
    kGather,    // all members of a level's groups at once: its links, and what starting takes
    kPair,      // groups of two neighbours: tells the start of a collective from a hop
    kMessages,  // one message to every other member
  };
  Kind kind;
  StepOp op;
  int level;      // of the links that it uses
  int64_t bytes;  // that the worst rank sends, or copies
  Sharding from;
  Sharding to;
};

// Probes of ranks 0 .. num_ranks-1 with tensors of up to `max_bytes` per rank, for each level of
// `structure` that two or more of them share. INVALID_ARGUMENT: num_ranks < 2, or more than a mesh
// has; max_bytes too small to tell a bandwidth (64 KiB for each member of a group always do).
absl::StatusOr<std::vector<Probe>> CalibrationProbes(const Topology& structure, int64_t num_ranks,
                                                     int64_t max_bytes);

// What the cost model says of a probe's step, in ns.
absl::StatusOr<int64_t> ProbeNs(const Probe& probe, const Topology& topology);

// The topology of that structure under which the probes take the times `ns` most nearly. Bandwidths
// are medians of slopes between two sizes (Theil 1950, Sen 1968), which a few wrong times do not
// move; latencies are medians of what remains of the times of small tensors. Deterministic.
// INVALID_ARGUMENT: as many times as probes are needed, and none below 1 ns.
absl::StatusOr<Topology> FitTopology(const Topology& structure, absl::Span<const Probe> probes,
                                     absl::Span<const int64_t> ns);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_CALIBRATION_H_
