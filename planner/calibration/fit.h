// The numbers of a topology, from times that were measured.
//
//   Observation gather{.what = Observation::What::kBlocks, .num_ranks = 8,
//                      .groups = {.size = 8, .modes = {{8, 1}}}, .bytes = 7 << 20, .ns = 61'000};
//   MESHIFT_ASSIGN_OR_RETURN(Topology fitted, FitObservations(structure, {gather, ...}));
//   TimeOf(gather, fitted).Ns();
//
// `structure` has the domains, the protocols and the values to begin with. A number that is 0 where
// 0 says that there is none (a tree's own bandwidth, sums in switches, the start of a protocol)
// stays 0, and what no observation tells stays as it is.
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

struct Observation {
  enum class What : uint8_t {
    kCopy,       // local memory alone
    kAllReduce,  // of `bytes`
    kBlocks,     // a gather or scatter: each member sends `bytes`, all blocks but its own
    kToAll,      // each member sends `bytes`, in one message to each other member
  };
  What what = What::kAllReduce;
  int64_t num_ranks = 2;
  RankGroups groups = {};  // not of copies
  int64_t bytes = 0;
  // Copies in local memory, one after another, before and after the collective.
  int64_t copies = 0;
  int64_t copied_bytes = 0;
  int64_t ns = 0;  // measured; at least 1
};

// What the cost model says that an observation takes. The copies and what each message takes count
// as start.
CollectiveTime TimeOf(const Observation& observation, const Topology& topology);

// How far times of a model lie from those that were measured: of |model / measured - 1|.
struct FitError {
  size_t count = 0;
  double median = 0;
  double worst = 0;
};
// `ratios` are model / measured.
FitError ErrorOf(std::vector<double> ratios);

// At most so many observations are fitted: of more, evenly many along the list.
inline constexpr size_t kMaxFitted = 2048;

// The topology of that structure under which the sum over all observations of sqrt(x^2 + s^2) is
// least, x = ln(model / measured), s = 0.2: near errors count by their squares, far ones by their
// size, so that a few wrong times move little; and where the structure has protocols, its numbers
// count as weak observations, so that what times tell badly stays near them. Found from several
// starts, by Gauss-Newton steps in latencies and inverse bandwidths, in which a time is linear as
// long as the same algorithm is the quickest, and by trying other values of each number in turn.
// Deterministic. O(fitted observations * numbers) per step; at most some hundred steps.
// INVALID_ARGUMENT: no observations, or a time below 1 ns.
absl::StatusOr<Topology> FitObservations(const Topology& structure,
                                         absl::Span<const Observation> observations);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CALIBRATION_FIT_H_
