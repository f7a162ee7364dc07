// MakePlan: makes a plan from one sharding to another. MakePlans: plans for many tensors together.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("ddp=8,fsdp=5,tp=1"));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to));
//     // all_reduce{ddp,fsdp} -> R,R,R
//   MESHIFT_ASSIGN_OR_RETURN(PlanSet set, MakePlans({{from, to, 58}, {bias, to_bias, 61}}));
//   set.plans[1];  // of `bias`; set.busiest_ns: the time of the busiest link of all 119 tensors
//
// Planning is a pure function of its arguments: every rank and every process gets the same plan. It
// needs no engine and sends nothing. Safe for concurrent use, with one WorkBudget per thread.
#ifndef MESHIFT_PLANNER_H_
#define MESHIFT_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class WorkBudget;  // base/work_budget.h

// The plan from `from` to `to`, whose dtypes and meshes may differ; casts are placed by cost.
//
// INVALID_ARGUMENT: the target cannot be reached (another shape, a change of the partial op, S ->
// P(avg), a cast that does not exist, or one that rounds a value that stays partial); reduce_block
// without kOrdered; an invalid limit or budget.
// UNIMPLEMENTED: this version does not plan it (a dtype that the engine cannot reduce; another mesh
// with kPerDim, or with more than 2^24 messages; an average of integers with other reductions under
// kPerDim; too many mesh dims, or too many different boxes of ragged cuts).
// FAILED_PRECONDITION: the promise needs something that the options forbid, such as a new group, or
// no plan keeps an explicit max_value; the message names it. kPerDim does not
// refuse for the promise or max_value: its plan may break them (Plan::kept).
// RESOURCE_EXHAUSTED: no plan keeps max_memory or max_communicators (the message names a
// value that suffices, and says so if it may not be the least); or planning takes more work than
// max_work.
//
// On a row-major mesh, time and memory do not depend on the number of ranks, except for the sizes
// of ragged cuts; onto another mesh they grow with ranks and messages. Most problems take
// microseconds (docs/benchmarks.md). With the default of max_work none takes more than a few
// seconds and about 1 GiB.
absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options = {});

// The same, but charges the work to `budget`, which several plans share, instead of
// options.max_work.
absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options, WorkBudget& budget);

// The smallest max_memory with which MakePlan makes a plan; with one byte less it is refused.
// Limit: if a search ends early, after a fixed amount of work, the result is an upper bound. This
// is possible on meshes of five dims or more (planner/limits/memory_search.h), from one mesh to
// another with many ranks or messages (planner/inter_mesh/cross_mesh.h), and with limits on groups
// (planner/limits/budget_search.h). `options.max_memory` is ignored. Errors as those of MakePlan.
absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options = {});

// Tensors with the same problem, among those that are redistributed in one update.
struct TensorMove {
  Sharding from;
  Sharding to;
  int64_t count = 1;  // how many tensors: 1 or more
};

// A link: that of one rank at one level of the topology, in one direction.
struct BusiestLink {
  int64_t rank = 0;
  int level = 0;
  bool received = false;  // false: sent
  friend bool operator==(const BusiestLink&, const BusiestLink&) = default;
};

// A part of an update: its tensors run before those of the next round begin.
struct Round {
  struct Part {
    int64_t move = 0;   // the index of a move
    int64_t count = 0;  // how many of its tensors
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts;
  int64_t repeat = 1;           // the number of such rounds in a row
  int64_t workspace_bytes = 0;  // of all tensors of one round together, on the worst rank
  int64_t busiest_ns = 0;       // as PlanSet::busiest_ns, of the tensors of one round
};

struct PlanSet {
  std::vector<Plan> plans;  // one per move, in order
  // The objective is the sum of three times: of all bytes that the plans put on the busiest link,
  // at full bandwidth; of the starts of collectives on the group that has the most kinds of them;
  // and of the local copies of the rank that has the most.
  int64_t busiest_ns = 0;
  int64_t starts_ns = 0;
  int64_t copies_ns = 0;
  // The first of the busiest links: by rank, then level, then sent before received.
  BusiestLink busiest;
  int64_t bound_ns = 0;       // no choice of plans has a busiest link below this
  std::vector<Round> rounds;  // empty without a bucket
};

// Plans tensors together: each plan alone may be slower than MakePlan's, but all of them together
// are quicker, by PlanSet's objective. Plans are those of MakePlan, or, onto another mesh, where
// nothing is reduced or cast, crossings straight from the source or from one of its replicas.
// planner/together/together.h has the formula and the order of the choice; it is a heuristic.
//
// INVALID_ARGUMENT: no moves, or a count below 1. Other errors are those of MakePlan for one of the
// moves; the message begins with its index, "move 3: ...". RESOURCE_EXHAUSTED also: all plans
// together need more than options.max_work. Limits on memory and groups hold for each plan by
// itself.
//
// Plans do not depend on the order of the moves, except for which of two equal moves gets which.
// 1,000 moves between 2,304 ranks take a few seconds.
//
// With `bucket_bytes`, also cuts the update into rounds: the workspaces of the tensors of a round
// have at most that many bytes together. Rounds take the tensors in the order of the moves; a round
// ends when the next tensor would exceed the bucket. A tensor whose plan needs more workspace than
// the bucket gets one that does not. INVALID_ARGUMENT: the bucket is below 1 byte.
// RESOURCE_EXHAUSTED: a tensor has no such plan.
absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves,
                                  const PlannerOptions& options = {},
                                  std::optional<int64_t> bucket_bytes = std::nullopt);
// The same, but charges the work to `budget`.
absl::StatusOr<PlanSet> MakePlans(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                                  WorkBudget& budget,
                                  std::optional<int64_t> bucket_bytes = std::nullopt);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_H_
