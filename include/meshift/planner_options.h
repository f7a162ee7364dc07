// What a plan may do, what it must promise, and what it is for.
//
//   const Topology h100 = *Topology::Parse("h100");
//   MakePlan(from, to, {.reproducibility = Reproducibility::kOrdered, .topology = h100});
//
// All that planning depends on but the two shardings. A value; safe for concurrent use.
#ifndef MESHIFT_PLANNER_OPTIONS_H_
#define MESHIFT_PLANNER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/work_budget.h"
#include "meshift/topology.h"
#include "meshift/dtype.h"
#include "planner/groups/group_budget.h"
#include "planner/options/capabilities.h"
#include "planner/plan/buffers.h"
#include "meshift/plan.h"

namespace meshift {

enum class PlannerKind : uint8_t {
  kBest,    // the cheapest plan that keeps the promise; of a search that takes long (from five mesh
            // dims on), one near it: planner/search/search.h
  kPerDim,  // one collective per mesh dim, as DTensor's greedy planner; a baseline to compare with
};
std::string_view Name(PlannerKind kind);  // "best", "per-dim"
absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name);

// How an all_gather or reduce_scatter over a ragged cut moves its blocks.
enum class RaggedSizes : uint8_t {
  kCost,  // the cheaper of the two
  kMax,   // padded to the largest block
  kSum,   // exactly, one block behind the other
};
std::string_view Name(RaggedSizes sizes);  // "cost", "max", "sum"
absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name);

struct PlannerOptions {
  // What the plan must promise about bits. kPerDim asks for it and may not keep it: Plan::kept().
  Reproducibility reproducibility = Reproducibility::kReplicas;
  Topology topology = Topology::Flat();
  PlannerKind planner = PlannerKind::kBest;
  EngineCapabilities engine = EngineCapabilities::Local();
  // The dtype in which partial values are reduced; none: the source's where the cast to the
  // target's is exact, else the one that sums of the source's are formed in (docs/plan_format.md).
  std::optional<DType> reduce_dtype = std::nullopt;
  RaggedSizes ragged_sizes = RaggedSizes::kCost;
  // Whether contributions may be combined in a fixed order, by messages and local sums: where the
  // promise needs that, and where it is cheaper on the way to another mesh. Else kOrdered is
  // refused, and kBatchInvariant where the engine's own reductions do not keep it.
  bool ordered_reductions = true;
  // k > 0: reductions in order combine the contributions of k consecutive coordinates first, then
  // what comes of these blocks, and round once; bits are a function of k and the contributions.
  // Where that is cheaper, blocks are combined before anything leaves them (Step::reduce_stages).
  // Needs kOrdered. 0: no blocks.
  int64_t reduce_block = 0;
  // The most bytes that a rank may take, of source, target and workspace together
  // (PlanTotals::peak_bytes). The plan is the cheapest that keeps to it. None: no limit.
  std::optional<int64_t> max_memory = std::nullopt;
  // The most bytes that a value between two steps may take on a rank. None: a quarter more than the
  // larger of source and target, and 4 MiB in any case (planner/search/value_rule.h); or, with
  // max_memory, any. Where limits on groups leave no plan within that, one beyond it is made, whose
  // inputs say so; beyond a number that is given, none is (FAILED_PRECONDITION).
  std::optional<int64_t> max_value = std::nullopt;
  // How runs are handed source and target: what the plan says of memory, and the limit, is of that.
  // A run may do otherwise, and then takes more or less.
  Buffers buffers = Buffers::kTwo;
  // Which groups the plan may use, and what new ones cost (planner/groups/group_budget.h).
  GroupBudget groups = {};
  // The work that planning may take, in units of about 10 ns (base/work_budget.h): states, steps,
  // ranks and messages are counted, so that it ends at the same place on every rank. Beyond it,
  // planning is refused (RESOURCE_EXHAUSTED). The plans that are made do not depend on it.
  int64_t max_work = kDefaultMaxWork;
  friend bool operator==(const PlannerOptions&, const PlannerOptions&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_OPTIONS_H_
