// What a search has yet to look at, by the least that a whole path through it costs. Internal to
// it.
//
//   OpenQueue open;
//   open.push({.estimate = cost, .state = state, .node = index});
//   open.top();      // of the least estimate; of equal ones, a function of their fields alone
#ifndef MESHIFT_PLANNER_SEARCH_QUEUE_H_
#define MESHIFT_PLANNER_SEARCH_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "planner/path_cost.h"
#include "planner/plan.h"
#include "planner/state.h"

namespace meshift {

// Steps wait unpriced: most never have their turn.
struct OpenEntry {
  enum class Kind : uint8_t {
    kStep,         // from node `node` to `state`
    kBoundedStep,  // likewise, with the closest bound that there is
    kReached,      // node `node`: the collectives that finish come next
    kFinished,     // only longer ways are left
  };
  PathCost estimate;
  State state;
  int node = 0;
  Kind kind = Kind::kStep;
  StepOp op = StepOp::kSlice;
  int64_t least_ns = 0;  // of the step
  int64_t rest_ns = 0;   // of what follows
  int64_t cost_ns = 0;   // of the path to `node` when this was put here

  bool operator>(const OpenEntry& other) const {
    if (!(estimate == other.estimate)) return other.estimate < estimate;
    if (!(state == other.state)) return state > other.state;
    return std::tie(kind, op, node) > std::tie(other.kind, other.op, other.node);
  }
};

using OpenQueue =
    std::priority_queue<OpenEntry, absl::InlinedVector<OpenEntry, 32>, std::greater<>>;

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_QUEUE_H_
