// The least that any sequence of transitions costs, and the least memory that one needs: all paths
// over all states of a problem.
//
//   BruteForce brute_force;
//   BestPath best = brute_force.Find(from, to, {}).value();
//   EXPECT_EQ(best.cost, CostOf(*MakePlan(from, to)));
//
// What the planner is judged by. It shares with it what makes a plan good: the graph
// (planner/search/successors.h) and what each step costs. How to search is its own: no bound on
// what is left to do, and no edge left out.
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
#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "planner/graph/state.h"

namespace meshift {

// What plans are compared by, in this order.
struct PlanCost {
  int64_t est_ns = 0;
  int64_t bytes_sent = 0;   // the sum of the steps', each of its worst rank
  int64_t total_bytes = 0;  // of all ranks: see TotalBytes()
  int64_t steps = 0;
  friend auto operator<=>(const PlanCost&, const PlanCost&) = default;  // NOLINT
  std::string ToString() const;  // "12345 ns, 96 B, 384 B in all, 2 steps"
};
PlanCost CostOf(const Plan& plan);
// Bytes that all ranks send in a step of a plan on one mesh. In a gather, a scatter or a reduction
// each rank counts as the worst one.
int64_t TotalBytes(const Plan& plan, int step);
// What tells plans apart that cost the same: the first in alphabetical order, step by step, is
// planned.
std::vector<std::string> StepTexts(const Plan& plan);

struct BestPath {
  PlanCost cost;
  std::vector<std::string> steps;  // as StepTexts() has them: "all_gather a,b R"
  int64_t states = 0;              // that were looked at
};

// Keeps what steps cost from one call to the next, as long as mesh, tensor and options are the
// same. Not for use from several threads.
class BruteForce {
 public:
  // Fails as MakePlan does. `options.planner` is not looked at. INTERNAL: there is no path.
  // RESOURCE_EXHAUSTED: none keeps to options.max_memory.
  absl::StatusOr<BestPath> Find(const Sharding& from, const Sharding& to,
                                const PlannerOptions& options);
  // The least peak of all paths: that limit of which one byte less leaves no path.
  absl::StatusOr<int64_t> FindLeastMemory(const Sharding& from, const Sharding& to,
                                          const PlannerOptions& options);

  // Of the heuristic of the search (planner/search/heuristic.h) over all states that steps lead to:
  // those for which it says more than the least rest of a path, and the steps along which it falls
  // by more than their price.
  struct HeuristicCheck {
    int64_t states = 0;
    int64_t steps = 0;
    int64_t not_admissible = 0;
    int64_t not_consistent = 0;
    std::string text;  // of the first that is wrong
  };
  absl::StatusOr<HeuristicCheck> CheckHeuristic(const Sharding& from, const Sharding& to,
                                                const PlannerOptions& options);

  // Groups over mesh dims 0 and 2, of those of more than one rank, are number 5; a set of groups
  // has a bit for each. Of the paths over exactly the groups of a set, the cheapest, and what takes
  // least memory, by sets; none where there is no such path. options.groups and max_memory are not
  // looked at. REQUIRES: at most 5 such mesh dims.
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
  // One way to do a step.
  struct StepCost {
    int64_t est_ns = 0;
    int64_t bytes_sent = 0;
    int64_t total_bytes = 0;
    int64_t send_bytes = 0;  // the pieces that it packs, each rounded up to 16
    int64_t receive_bytes = 0;
  };
  using EdgeKey = std::tuple<StepOp, State, State>;

  void Forget(const Graph& graph, const PlannerOptions& options);
  // All steps out of `state`, in each way to do them.
  const std::vector<Edge>& EdgesOf(Graph& graph, const State& state);
  static PlanCost After(const PlanCost& cost, const Edge& edge);

  absl::flat_hash_map<EdgeKey, absl::InlinedVector<StepCost, 1>> measured_;
  std::string measured_for_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_BRUTE_FORCE_H_
