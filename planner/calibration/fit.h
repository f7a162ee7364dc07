// Fits the numbers of a topology to measured times: latencies, bandwidths, and the starts and
// percents of protocols.
//
//   Observation gather{.kind = Observation::Kind::kBlocks, .num_ranks = 8,
//                      .groups = {.size = 8, .modes = {{8, 1}}}, .bytes = 7 << 20, .ns = 61'000};
//   MESHIFT_ASSIGN_OR_RETURN(Topology fitted, FitObservations(structure, {gather, ...}));
//   TimeOf(gather, fitted).Ns();
//
// `structure` has the domains, the protocols and the initial values; the fit changes numbers only.
// A number stays 0 where 0 means that it does not apply (direct, domain and in-switch bandwidths,
// entry_ns, start_ns). Numbers on which no fitted observation depends are unchanged. Not fitted:
// domain sizes, in_switch_members, group_setup_ns, the first protocol's latency_percent, and the
// last protocol's other percents.
//
// INVALID_ARGUMENT: no observations, or a time below 1 ns. Other fields are not checked. Pure
// functions, safe for concurrent use. Internal to the calibration and the CLI.
#ifndef MESHIFT_PLANNER_CALIBRATION_FIT_H_
#define MESHIFT_PLANNER_CALIBRATION_FIT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/topology.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/group_shape.h"

namespace meshift {

// The measured time of one step, and the terms from which the cost model predicts it.
struct Observation {
  enum class Kind : uint8_t {
    kCopy,       // local copies only
    kAllReduce,  // an all-reduce of `bytes`
    kBlocks,     // a gather or scatter: each member sends `bytes`, all blocks but its own
    kToAll,      // each member sends `bytes`, in one message to each other member
  };
  Kind kind = Kind::kAllReduce;
  int64_t num_ranks = 2;   // of all groups together
  RankGroups groups = {};  // unused for kCopy
  int64_t bytes = 0;
  // The number of copies in local memory, in sequence, before and after the collective; and their
  // bytes.
  int64_t copies = 0;
  int64_t copied_bytes = 0;
  int64_t ns = 0;  // measured; at least 1
};

// The time of the observation by the cost model. Copies and per-message latencies are in start_ns.
CollectiveTime TimeOf(const Observation& observation, const Topology& topology);

// Errors of a model: |model / measured - 1|.
struct FitError {
  size_t count = 0;
  double median = 0;
  double worst = 0;
};
// `ratios` are model / measured.
FitError ErrorOf(std::vector<double> ratios);

// The most observations that are fitted. From a longer list, every k-th one is taken.
inline constexpr size_t kMaxFitted = 2048;

// The topology of that structure with the least sum over the fitted observations of sqrt(x^2 +
// s^2), where x = ln(model / measured) and s = 0.2: a pseudo-Huber loss, so a few outliers change
// little. If the structure has protocols, its numbers count as weak observations: numbers that the
// times determine poorly stay near them. The minimum is a local one, the best from several starts.
// From each start the search does Gauss-Newton steps in latencies and inverse bandwidths, in which
// a time is linear while the same algorithm is the fastest, and tries other values of each number
// in turn. Deterministic. After some seconds of work no further steps begin.
absl::StatusOr<Topology> FitObservations(const Topology& structure,
                                         absl::Span<const Observation> observations);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CALIBRATION_FIT_H_
