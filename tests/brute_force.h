// The least cost of any sequence of transitions, and the least memory that one needs, by searching
// all paths over all states of a problem.
//
//   BruteForce brute_force;
//   BestPath best = brute_force.Find(from, to, {}).value();
//   EXPECT_EQ(best.cost, CostOf(*MakePlan(from, to)));
//
// The reference for the planner. It shares the graph (planner/search/successors.h) and the costs of
// steps with the planner, but not the search: it uses no bounds and skips no edges.
#ifndef MESHIFT_TESTS_BRUTE_FORCE_H_
#define MESHIFT_TESTS_BRUTE_FORCE_H_

#include <compare>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "planner/graph/state.h"

namespace meshift {

// The criteria by which plans are compared, in this order.
struct PlanCost {
  int64_t est_ns = 0;
  int64_t bytes_sent = 0;   // sum over the steps of the worst rank's bytes
  int64_t total_bytes = 0;  // over all ranks: see TotalBytes()
  int64_t steps = 0;
  friend auto operator<=>(const PlanCost&, const PlanCost&) = default;  // NOLINT
  std::string ToString() const;  // "12345 ns, 96 B, 384 B in all, 2 steps"
};
PlanCost CostOf(const Plan& plan);
// Bytes that all ranks send in a step of a plan on one mesh. In a gather, a scatter or a reduction
// each rank counts as the worst one.
int64_t TotalBytes(const Plan& plan, int step);
// Breaks ties between plans of equal cost: the first in alphabetical order, step by step, is
// chosen.
std::vector<std::string> StepTexts(const Plan& plan);

struct BestPath {
  PlanCost cost;
  std::vector<std::string> steps;  // as StepTexts() has them: "all_gather a,b R"
  int64_t states = 0;              // states examined
};

// Caches the costs of steps between calls with the same mesh and shape. Not thread-safe.
class BruteForce {
 public:
  // Fails as MakePlan does. Ignores `options.planner`. INTERNAL: no path exists.
  // RESOURCE_EXHAUSTED: no path keeps to options.max_memory.
  absl::StatusOr<BestPath> Find(const Sharding& from, const Sharding& to,
                                const PlannerOptions& options);
  // The smallest peak of all paths: with a limit of one byte less no path exists.
  absl::StatusOr<int64_t> FindLeastMemory(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options);

  // Checks the heuristic of the search (planner/search/heuristic.h) on all reachable states: counts
  // states for which it exceeds the least remaining cost, and steps along which it falls by more
  // than their cost.
  struct HeuristicCheck {
    int64_t states = 0;
    int64_t steps = 0;
    int64_t not_admissible = 0;
    int64_t not_consistent = 0;
    std::string text;  // the first violation
  };
  absl::StatusOr<HeuristicCheck> CheckHeuristic(const Sharding& from, const Sharding& to,
                                                const PlannerOptions& options);

  // Groups are numbered by their mesh dims with more than one rank: those over dims 0 and 2 have
  // number 5. A set of groups has a bit for each number. For each set, the cheapest path over
  // exactly its groups, and the path with the least memory; none if there is none. Ignores
  // options.groups and max_memory. REQUIRES: at most 5 such mesh dims.
  struct OverGroups {
    PlanCost cost;
    int64_t least_memory = 0;
  };
  using ByGroups = absl::flat_hash_map<uint32_t, OverGroups>;
  absl::StatusOr<ByGroups> FindByGroups(const Sharding& from, const Sharding& to,
                                        const PlannerOptions& options);

 private:
  struct Graph;
  struct Edge;
  // One variant of a step.
  struct StepCost {
    int64_t est_ns = 0;
    int64_t bytes_sent = 0;
    int64_t total_bytes = 0;
    int64_t send_bytes = 0;  // packed pieces, each rounded up to 16
    int64_t receive_bytes = 0;
    friend bool operator==(const StepCost&, const StepCost&) = default;
  };
  using EdgeKey = std::tuple<StepOp, State, State>;

  void Recall(const Graph& graph, const PlannerOptions& options);
  // All steps out of `state`, in all variants.
  const std::vector<Edge>& EdgesOf(Graph& graph, const State& state);
  static PlanCost After(const PlanCost& cost, const Edge& edge);

  using Measured = absl::flat_hash_map<EdgeKey, absl::InlinedVector<StepCost, 1>>;
  absl::node_hash_map<std::string, Measured> known_;  // by dtypes, cuts and options
  std::string known_for_;                             // mesh and shape
  Measured* measured_ = nullptr;                      // of the current problem, in known_
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_BRUTE_FORCE_H_
