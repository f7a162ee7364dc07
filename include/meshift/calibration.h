// Calibration: fits the numbers of a topology to the measured times of probes. A probe is a
// redistribution of one step. These functions run nothing: the caller runs and times the probes.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto probes, CalibrationProbes(structure, 16, int64_t{16} << 20));
//   std::vector<int64_t> times;        // in ns, one per probe
//   for (const Probe& probe : probes) times.push_back(... the time of probe.from -> probe.to ...);
//   MESHIFT_ASSIGN_OR_RETURN(Topology topology, FitTopology(structure, probes, times));
//   topology.ToJson();                 // for --topology FILE.json
//
// `structure` says which ranks share a domain. The fit changes no domain, and keeps the numbers of
// `structure` that no probe measures: those of levels that the ranks do not reach, and
// group_setup_ns. A number that is 0 because the machine has no such thing stays 0. Pure functions;
// safe for concurrent use.
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
    kGather,    // all-gather in each group of a level, all groups at once
    kReduce,    // all-reduce in the same groups
    kMessages,  // messages from each member to every other
    // All-gather between the first two ranks of each innermost domain of three ranks or more:
    // separates the start of a collective from a hop.
    kPair,
  };
  Kind kind;
  StepOp op;
  int level;      // level of the links that it uses
  int64_t bytes;  // sent or copied by the worst rank; kReduce: of the tensor
  Sharding from;
  Sharding to;
  std::shared_ptr<const Observation> observation;  // the cost model's terms; for FitTopology
};

// The topology to plan the probes with: the domains of `structure` with fixed bandwidths and
// latencies, and without protocols. Under it each probe's own step is the best plan. A protocol
// with a cheap start could make messages cheaper than a gather.
Topology ProbeTopology(const Topology& structure);

// Probes of ranks 0 .. num_ranks-1 with tensors of up to `max_bytes` per rank, for each level of
// `structure` at which they fill two or more domains of the level below (level 0: two or more
// ranks). The ranks of an incomplete domain take no part in the probes of its level.
// INVALID_ARGUMENT: num_ranks < 2 or more than a mesh may have, or max_bytes too small to measure a
// bandwidth (64 KiB per member of a group always suffice).
absl::StatusOr<std::vector<Probe>> CalibrationProbes(const Topology& structure, int64_t num_ranks,
                                                     int64_t max_bytes);

// The cost model's estimate of a probe's step, in ns. `probe`: from CalibrationProbes.
absl::StatusOr<int64_t> ProbeNs(const Probe& probe, const Topology& topology);

// Fits the times `ns` of the probes, in their order. INVALID_ARGUMENT: there are no probes or
// another number of times; a time is below 1 ns; or a probe is not from CalibrationProbes.
// REQUIRES: the probes are those of `structure`, which is not checked.
absl::StatusOr<Topology> FitTopology(const Topology& structure, absl::Span<const Probe> probes,
                                     absl::Span<const int64_t> ns);

}  // namespace meshift

#endif  // MESHIFT_CALIBRATION_H_
