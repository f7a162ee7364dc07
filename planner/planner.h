// Making plans.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("ddp=8,fsdp=5,tp=1"));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to));
//     // all_reduce{ddp,fsdp} -> R,R,R
//
// Planning is a pure function of its arguments: the same on every rank, in every process.
#ifndef MESHIFT_PLANNER_PLANNER_H_
#define MESHIFT_PLANNER_PLANNER_H_

#include <optional>

#include "absl/status/statusor.h"
#include "mesh/topology.h"
#include "placement/sharding.h"
#include "planner/buffers.h"
#include "planner/capabilities.h"
#include "planner/group_budget.h"
#include "planner/plan.h"

namespace meshift {

enum class PlannerKind : uint8_t {
  kBest,    // the cheapest plan that keeps the promise
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
  // How runs are handed source and target: what the plan says of memory, and the limit, is of that.
  // A run may do otherwise, and then takes more or less.
  Buffers buffers = Buffers::kTwo;
  // Which groups the plan may use, and what new ones cost (planner/group_budget.h).
  GroupBudget groups = {};
  friend bool operator==(const PlannerOptions&, const PlannerOptions&) = default;
};

// The plan from `from` to `to`, whose dtypes and meshes may differ; casts are placed by cost.
// INVALID_ARGUMENT where the target cannot be reached (another shape, a change of the partial op,
// S -> P(avg), a cast that does not exist, one that rounds what stays partial), blocks without
// kOrdered, or a limit or budget that is none; UNIMPLEMENTED for what this version does not plan (a
// dtype the engine cannot reduce, another mesh with kPerDim); FAILED_PRECONDITION where the promise
// needs what the options forbid, a new group for one: the message names it; RESOURCE_EXHAUSTED
// where no plan keeps to max_memory or max_communicators: the message has the least that would do,
// or says that less than what it has might do.
absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options = {});

// The least max_memory that does: with it MakePlan makes a plan, with one byte less it does not.
// Where refusals say that less might do, so it is here: of problems with more steps than are looked
// at (planner/memory_search.h), as meshes of five dims and more may have. `options.max_memory` is
// not looked at. Fails as MakePlan does.
absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLANNER_H_
