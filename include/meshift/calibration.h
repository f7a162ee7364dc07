// Probes: redistributions of one step each, whose times tell the numbers of a topology.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto probes, CalibrationProbes(structure, 16, int64_t{16} << 20));
//   for (const Probe& probe : probes) times.push_back(... the time of probe.from -> probe.to ...);
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, FitTopology(structure, probes, times));
//   topology.ToJson();                 // for --topology FILE.json
//
// `structure` says which ranks share a domain; its numbers stand where nothing was measured: of
// levels that the ranks do not reach, and group_setup_ns.
#ifndef MESHIFT_CALIBRATION_H_
#define MESHIFT_CALIBRATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

struct Observation;  // planner/calibration/fit.h

struct Probe {
  enum class Kind : uint8_t {
    kCopy,      // local memory
    kGather,    // among the members of a level's groups, all groups at once
    kReduce,    // all-reduce among them
    kMessages,  // from each to every other of them
    kPair,      // gather in groups of two neighbours: tells the start of a collective from a hop
  };
  Kind kind;
  StepOp op;
  int level;      // of the links that it uses
  int64_t bytes;  // that the worst rank sends, or copies; of kReduce, of the tensor
  Sharding from;
  Sharding to;
  std::shared_ptr<const Observation>
      observation;  // what the cost model makes of it; for FitTopology
};

// A topology of those levels, under which each probe is the best plan for what it does: without
// protocols no cheap start draws a gather towards messages.
Topology ProbeTopology(const Topology& structure);

// Probes of ranks 0 .. num_ranks-1 with tensors of up to `max_bytes` per rank, for each level of
// `structure` that two or more of them share. INVALID_ARGUMENT: num_ranks < 2, or more than a mesh
// has; max_bytes too small to tell a bandwidth (64 KiB for each member of a group always do).
absl::StatusOr<std::vector<Probe>> CalibrationProbes(const Topology& structure, int64_t num_ranks,
                                                     int64_t max_bytes);

// What the cost model says of a probe's step, in ns.
absl::StatusOr<int64_t> ProbeNs(const Probe& probe, const Topology& topology);

// Fits the probes' times. INVALID_ARGUMENT: as many times
// as probes are needed, and none below 1 ns.
absl::StatusOr<Topology> FitTopology(const Topology& structure, absl::Span<const Probe> probes,
                                     absl::Span<const int64_t> ns);

}  // namespace meshift

#endif  // MESHIFT_CALIBRATION_H_
