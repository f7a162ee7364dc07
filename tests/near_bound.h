// How near plans come to what no algorithm goes below (planner/cost/lower_bound.h), over all pairs
// of shardings of a mesh and tensor.
//
//   NearBound near = MeasureNearBound({.mesh = "a=2,b=2,c=2", .shape = {64, 64}}).value();
//   near.bytes.Mean();       // of bytes moved over their bound, geometric
//   near.worst_time[0];      // the plan that is furthest from its bound
//
// Bytes are those that all ranks send together, counted rank by rank (planner/plan/rank_bytes.h);
// times are the model's.
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
  Shape shape;       // which every list of cuts divides
  DType dtype = DType::kBF16;
  // Mesh dims of the source that are P(sum); 0: source and target are R or S on every mesh dim.
  int partial_dims = 0;
  PlannerOptions options = {};
  int64_t fraction = 1;  // one pair of so many is looked at
};

// A geometric mean of ratios, over the pairs in which the bound is not 0.
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
  int64_t bytes = 0;  // that all ranks send
  int64_t least_bytes = 0;
  int64_t slow_bytes = 0;  // of them, those that cross the slowest level of links
  int64_t least_slow_bytes = 0;
  int64_t est_ns = 0;
  int64_t least_ns = 0;
  // What the time has more than the bound.
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
  RatioMean sent;        // by the worst rank of each step
  RatioMean slow_bytes;  // only where the topology has levels
  RatioMean time;
  int64_t below = 0;   // plans that cost less than their bound: the bound is none
  int64_t larger = 0;  // plans with a value larger than source and target
  std::map<std::string, int64_t> ops;
  // The ten that are furthest from their bound, of equal ones the first.
  std::vector<NearPlan> worst_bytes;
  std::vector<NearPlan> worst_slow_bytes;
  std::vector<NearPlan> worst_time;
};

// Fails where the planner does, or the mesh is no mesh. Takes a plan of every pair but those of
// equal shardings.
absl::StatusOr<NearBound> MeasureNearBound(const NearBoundWorld& world);

// Bytes that cross the level of links above domains of `level` - 1, at least: what some rank of a
// domain wants and no rank of it has comes in once. REQUIRES: nothing is partial.
int64_t LeastBytesAcross(const Sharding& from, const Sharding& to, const Topology& topology,
                         int level);
// Those that a plan's messages and rings take across it.
int64_t BytesAcross(const Plan& plan, const Topology& topology, int level);

}  // namespace meshift

#endif  // MESHIFT_TESTS_NEAR_BOUND_H_
