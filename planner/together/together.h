// Chooses plans for several tensors that are redistributed in one update, so that all of them
// together take the least time.
//
//   WorkBudget budget(options.max_work);
//   MESHIFT_ASSIGN_OR_RETURN(PlanSet set, PlanTogether(moves, options, budget, plan_one));
//   set.busiest_ns + set.starts_ns + set.copies_ns;     // the objective
//
// *Objective.* A choice of plans gives move i the plan p(i). For rank r, level l of the topology
// and direction d (sent or received), b(p, r, l, d) are the bytes that plan p puts on r's link of
// that level, and c(p, r, d) the time of its local copies on r before (sent) or after (received)
// the data cross (both in link_loads.h). n(i) is the count of move i, w(l) the level's
// bandwidth_bytes_per_us, and s(k) the longest start of the plans' collectives of kind k: an op on
// a group (collective_starts.h). The objective, in ns, is
//
//   max over r, l, d of T(r, l, d) + max over r, d of C(r, d) + max over g of S(g), where
//   T(r, l, d) = ceil(1000 * sum over i of n(i) * b(p(i), r, l, d) / w(l))
//   C(r, d)    = sum over i of n(i) * c(p(i), r, d)
//   S(g)       = sum of s(k) over the kinds k on group g that any of the plans p(i) has
//
// The collectives and copies of a list are merged where they match (comm/program/merge_programs.h),
// so a kind starts once, not once a tensor; the starts of copies do not count. Nor do the starts of
// crossings, which every choice has, and hops. Ties go by the sum over r and l of the bytes sent,
// then by the lower number of the candidate (candidates.h). Products of bytes and counts, and
// times, stop at 2^63 - 1; sums have 128 bits.
//
// *Choice.* One move of count 1 has the plan that its tensor has alone. Else moves in descending
// order of bytes (equal ones by their text) each take the candidate with the least objective so
// far. Then up to three sweeps choose again for each move, while that changes something. The same
// follows from three other starts: the candidates that send the least; those with the least sum of
// the squares of all T, with sweeps for that sum first; and the plans that the tensors have alone.
// The best of the four counts; its copies are partly estimated (candidates.h), and if the plans
// alone then take less, these count. So it is not worse than they are, but not always the best. If
// a chosen plan breaks a limit, the choice is made again without it. No clock and no order of
// hashing takes part, so every rank chooses the same plans. Internal to the planner.
#ifndef MESHIFT_PLANNER_TOGETHER_TOGETHER_H_
#define MESHIFT_PLANNER_TOGETHER_TOGETHER_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"

namespace meshift {

// Makes the plan of one of the moves alone, by its index; as MakePlan.
using PlanOneFn = absl::FunctionRef<absl::StatusOr<Plan>(size_t move)>;

// As MakePlans (meshift/planner.h), for plans that `plan_one` makes; it may charge `budget` too.
// When the budget is exhausted, the result is unspecified and the caller must refuse. Makes no
// rounds. `max_workspace`: the most bytes of workspace of a plan; plan_one keeps to it.
absl::StatusOr<PlanSet> PlanTogether(absl::Span<const TensorMove> moves,
                                     const PlannerOptions& options, WorkBudget& budget,
                                     PlanOneFn plan_one,
                                     int64_t max_workspace = std::numeric_limits<int64_t>::max());

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_TOGETHER_H_
