// Breaks ties between paths of equal time, so that the search has one result on every machine.
//
//   Ties ties(problem, model);
//   ties.IsBefore({{StepOp::kAllGather, source, target}},      // whether this path is better than
//                 {{StepOp::kSlice, source, cut}, {StepOp::kAllGather, cut, target}});
//
// The search itself orders paths by time, then by the bytes that the worst ranks send. This class
// orders the rest: fewer bytes sent by all ranks together (TotalBytes), then fewer steps, then the
// text of the steps that comes first, with mesh dims by number: names do not change a plan.
#ifndef MESHIFT_PLANNER_SEARCH_TIES_H_
#define MESHIFT_PLANNER_SEARCH_TIES_H_

#include <cstdint>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "meshift/plan.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"

namespace meshift {

// One step, from one state to the next.
struct Leg {
  StepOp op;
  State before;
  State after;
  friend bool operator==(const Leg&, const Leg&) = default;
};

// Caches its counts without a limit. Internal to the planner; not safe for concurrent use.
class Ties {
 public:
  // On larger meshes each rank is counted as the one that sends most.
  static constexpr int64_t kMaxRanks = 256;

  // Keeps references to both.
  Ties(const Problem& problem, const CostModel& model) : problem_(problem), model_(model) {}

  // False for equal paths. REQUIRES: both have the same ends, times, and bytes of worst ranks.
  bool IsBefore(absl::Span<const Leg> a, absl::Span<const Leg> b);

  // Bytes that all ranks send together; 0 for a local step. In a gather, scatter or reduction each
  // rank is counted as the one that sends most. On up to kMaxRanks ranks, messages are counted rank
  // by rank. Saturates.
  int64_t TotalBytes(const Leg& leg);

 private:
  int64_t SumOf(absl::Span<const Leg> path);
  int64_t CountMessages(const Leg& leg) const;

  const Problem& problem_;
  const CostModel& model_;
  absl::flat_hash_map<std::tuple<StepOp, State, State>, int64_t> counted_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_TIES_H_
