// What a path of steps costs, and which of two is cheaper.
//
//   const PathCost cost = before + CostOf(model.Measure(op, state, next));
//   if (cost < best) ...
#ifndef MESHIFT_PLANNER_COST_PATH_COST_H_
#define MESHIFT_PLANNER_COST_PATH_COST_H_

#include <cstdint>
#include <tuple>

#include "base/checked_math.h"
#include "planner/cost/cost.h"

namespace meshift {

// Time first, then the bytes that worst ranks send, then steps. Sums stop at 2^63 - 1.
struct PathCost {
  int64_t ns = 0;
  int64_t bytes = 0;
  int64_t steps = 0;
  friend bool operator==(const PathCost&, const PathCost&) = default;
  friend bool operator<(const PathCost& a, const PathCost& b) {
    return std::tie(a.ns, a.bytes, a.steps) < std::tie(b.ns, b.bytes, b.steps);
  }
  PathCost operator+(const PathCost& other) const {
    return {SaturatingAdd(ns, other.ns), SaturatingAdd(bytes, other.bytes), steps + other.steps};
  }
};

// Of one step.
inline PathCost CostOf(const Traffic& traffic) { return {traffic.est_ns, traffic.bytes_sent, 1}; }

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_PATH_COST_H_
