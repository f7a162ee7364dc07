// Measures how near plans come to the lower bounds (planner/cost/lower_bound.h), over all pairs of
// shardings of a mesh and tensor.
//
//   NearBound near = MeasureNearBound({.mesh = "a=2,b=2,c=2", .shape = {64, 64}}).value();
//   near.bytes.Mean();       // geometric mean of bytes moved over their bound
//   near.worst_time[0];      // the plan that is furthest from its bound
//
// Bytes are those that all ranks send together, counted rank by rank (planner/plan/rank_bytes.h);
// times are those of the model.
#ifndef MESHIFT_TESTS_NEAR_BOUND_H_
#define MESHIFT_TESTS_NEAR_BOUND_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {

struct NearBoundWorld {
  std::string mesh;  // "a=2,b=2,c=2"
  Shape shape;       // every list of cuts must divide it
  DType dtype = DType::kBF16;
  // The number of the source's mesh dims that are P(sum); 0: all mesh dims are R or S on both
  // sides.
  int partial_dims = 0;
  PlannerOptions options = {};
  int64_t fraction = 1;  // examines one in this many pairs
};

// A geometric mean of ratios, over the pairs whose bound is not 0.
struct RatioMean {
  int64_t count = 0;
  double log_sum = 0;
  double worst = 1;

  void Add(int64_t value, int64_t bound) {
    if (bound == 0) return;
    const double ratio = static_cast<double>(value) / static_cast<double>(bound);
    ++count;
    log_sum += std::log(ratio);
    if (ratio > worst) worst = ratio;
  }
  double Mean() const { return count == 0 ? 1 : std::exp(log_sum / static_cast<double>(count)); }
};

// One plan and its bounds.
struct NearPlan {
  std::string text;   // "f32[8,8] S(0),R -> R,S(0)"
  std::string steps;  // "all_gather{a} -> R,R; slice{b} -> R,S(0)"
  int64_t bytes = 0;  // sent by all ranks
  int64_t least_bytes = 0;
  int64_t slow_bytes = 0;  // those that cross the slowest level of links
  int64_t least_slow_bytes = 0;
  int64_t est_ns = 0;
  int64_t least_ns = 0;
  // The reason for the time above the bound.
  std::string why;

  double BytesRatio() const { return Ratio(bytes, least_bytes); }
  double TimeRatio() const { return Ratio(est_ns, least_ns); }
  double SlowRatio() const { return Ratio(slow_bytes, least_slow_bytes); }

 private:
  static double Ratio(int64_t value, int64_t bound) {
    return bound == 0 ? 1 : static_cast<double>(value) / static_cast<double>(bound);
  }
};

struct NearBound {
  int64_t pairs = 0;
  RatioMean bytes;
  RatioMean sent;        // sent by the worst rank of each step
  RatioMean slow_bytes;  // only where the topology has levels
  RatioMean time;
  int64_t below = 0;   // plans that cost less than their bound, which is then wrong
  int64_t larger = 0;  // plans with a value larger than source and target
  std::map<std::string, int64_t> ops;
  // The ten plans that are furthest from their bound; among equals the first.
  std::vector<NearPlan> worst_bytes;
  std::vector<NearPlan> worst_slow_bytes;
  std::vector<NearPlan> worst_time;
};

// Fails if planning fails, or if the mesh is invalid. Plans every pair of different shardings.
absl::StatusOr<NearBound> MeasureNearBound(const NearBoundWorld& world);

// A lower bound on the bytes that cross the links above domains of `level` - 1: data that a rank of
// a domain needs and no rank of it has must enter once. REQUIRES: nothing is partial.
int64_t LeastBytesAcross(const Sharding& from, const Sharding& to, const Topology& topology,
                         int level);
// The bytes that a plan's messages and rings send across those links.
int64_t BytesAcross(const Plan& plan, const Topology& topology, int level);

}  // namespace meshift

#endif  // MESHIFT_TESTS_NEAR_BOUND_H_
