// The cost of a path of steps, and the order of costs: plain values, computed from
// planner/cost/cost.h's prices. Internal to the planner.
//
//   const PathCost cost = before + CostOf(model.Measure(op, state, next), total_bytes);
//   if (cost < best) ...
#ifndef MESHIFT_PLANNER_COST_PATH_COST_H_
#define MESHIFT_PLANNER_COST_PATH_COST_H_

#include <cstdint>
#include <tuple>

#include "base/checked_math.h"
#include "planner/cost/cost.h"

namespace meshift {

// Ordered by time, then by the bytes that the worst ranks send, those that all ranks send, and the
// number of steps. REQUIRES: all fields >= 0. Sums of time and bytes saturate at 2^63 - 1.
struct PathCost {
  int64_t ns = 0;
  int64_t bytes = 0;        // sent by the worst rank of each step
  int64_t total_bytes = 0;  // sent by all ranks
  int64_t steps = 0;
  friend bool operator==(const PathCost&, const PathCost&) = default;
  friend bool operator<(const PathCost& a, const PathCost& b) {
    return std::tie(a.ns, a.bytes, a.total_bytes, a.steps) <
           std::tie(b.ns, b.bytes, b.total_bytes, b.steps);
  }
  PathCost operator+(const PathCost& other) const {
    return {SaturatingAdd(ns, other.ns), SaturatingAdd(bytes, other.bytes),
            SaturatingAdd(total_bytes, other.total_bytes), steps + other.steps};
  }
};

// The cost of one step. `total_bytes`: that all ranks send together.
inline PathCost CostOf(const Traffic& traffic, int64_t total_bytes) {
  return {traffic.est_ns, traffic.bytes_sent, total_bytes, 1};
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_PATH_COST_H_
