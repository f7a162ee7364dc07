// Making plans.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Parse("ddp=8,fsdp=5,tp=1"));
//   MESHIFT_ASSIGN_OR_RETURN(auto from, Sharding::Parse("bf16[8192,8192]", mesh, "P,P,R"));
//   MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("R,R,R"));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to));
//     // all_reduce{ddp,fsdp} -> R,R,R
//
// Planning is a pure function of its arguments: the same on every rank, in every process.
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
// INVALID_ARGUMENT where the target cannot be reached (another shape, a change of the partial op,
// S -> P(avg), a cast that does not exist, one that rounds what stays partial), blocks without
// kOrdered, or a limit or budget that is none; UNIMPLEMENTED for what this version does not plan (a
// dtype the engine cannot reduce, another mesh with kPerDim, or with more than 2^24 messages);
// FAILED_PRECONDITION where the promise needs what the options forbid, a new group for one: the
// message names it; RESOURCE_EXHAUSTED where no plan keeps to max_memory or max_communicators: the
// message has the smallest sufficient value, or says that it is perhaps not the smallest; and where
// planning takes more work than max_work.
//
// Time and memory do not depend on the number of ranks of a row-major mesh; onto another mesh they
// grow with ranks and messages. Most problems take microseconds (docs/benchmarks.md). None takes
// more than some seconds, and about 1 GiB, under the default of max_work.
absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options = {});

// The same, with its work charged to a budget that several plans share, in place of
// options.max_work.
absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options, WorkBudget& budget);

// The least max_memory that does: with it MakePlan makes a plan, with one byte less it does not.
// Where refusals say that less might do, so it is here: of problems with more steps than are looked
// at (planner/limits/memory_search.h), as meshes of five dims and more may have.
// `options.max_memory` is not looked at. Fails as MakePlan does.
absl::StatusOr<int64_t> LeastMemory(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_PLANNER_H_
