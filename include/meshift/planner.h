// MakePlan: makes a plan from one sharding to another.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("ddp=8,fsdp=5,tp=1"));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to));
//     // all_reduce{ddp,fsdp} -> R,R,R
//
// Planning is a pure function of its arguments: every rank and every process gets the same plan. It
// needs no engine and sends nothing. Safe for concurrent use, with one WorkBudget per thread.
#ifndef MESHIFT_PLANNER_H_
#define MESHIFT_PLANNER_H_

#include <cstdint>

#include "absl/status/statusor.h"
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

}  // namespace meshift

#endif  // MESHIFT_PLANNER_H_
