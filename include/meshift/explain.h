// Lists alternatives to the best plan, with the reason why each was not chosen.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<Alternative> all, ListAlternatives(from, to, options));
//   all[0].plan;                       // the best plan, as MakePlan makes it
//   all[1].verdict;                    // kCostsMore
//   all[1].reason;                     // "9.001 us more (+69 %): 2 more collectives, ..."
//   all[1].parts[0].links_ns;          // the part of its first step's time that the links take
//
// Plans with the same reductions and moves over the same mesh dims count as one; the cheapest of
// them is listed. The list may be incomplete, above all on meshes of four dims or more. A pure
// function of its arguments; safe for concurrent use. It runs nothing: times are those of the cost
// model, in ns.
#ifndef MESHIFT_EXPLAIN_H_
#define MESHIFT_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

struct Alternative {
  // Except for kBest and kCostsMore, Plan::inputs() omits max_memory and groups.
  enum class Verdict : uint8_t {
    kBest,
    kCostsMore,      // keeps the promise
    kBreaksPromise,  // `reason` has the rule
    kTakesTooMuch,   // more memory than options.max_memory
    kHoldsTooMuch,   // a value between two steps larger than options.max_value allows
    kNeedsGroups,    // groups that options.groups does not allow
    // The plan of DTensor's greedy planner. It may break the promise and the value rule; then
    // `reason` says so too.
    kPerDim,
  };
  Verdict verdict = Verdict::kBest;
  Plan plan;
  std::string reason;  // one line; empty for the best
  // The terms of each step's time, one per step of the plan.
  std::vector<TimeParts> parts = {};
};
std::string_view Name(Alternative::Verdict verdict);  // "best", "costs more", ...

// The result has, in this order:
//   1. the best plan;
//   2. up to `most` (0 or more) other plans that keep the promise, the fastest first. They include
//      the best plan without flattened groups, and plans that need more memory or other groups than
//      allowed. For each sequence of ops, a plan that undoes a reduce_scatter by messages is also
//      listed once with an all_gather instead;
//   3. the best plan that breaks only the value rule, if it is cheaper and on one mesh;
//   4. the best plan without a promise, if it is cheaper;
//   5. the plan of PlannerKind::kPerDim, if there is one and source and target are on one mesh.
// From one mesh to another, plans differ by the steps around the crossing.
//
// Limit: the search lists paths that visit no state twice, nearly in order of cost. It stops after
// a fixed amount of work. Its work and that of the best plan together stay within options.max_work.
// If it finds fewer than `most` plans on one mesh, the cheapest plans that avoid one group of the
// best plan are added. From one mesh to another, the result is the best plan alone if the listing
// reaches options.max_work. Errors are those of MakePlan. `options.planner` is ignored.
absl::StatusOr<std::vector<Alternative>> ListAlternatives(const Sharding& from, const Sharding& to,
                                                          const PlannerOptions& options,
                                                          int most = 8);

}  // namespace meshift

#endif  // MESHIFT_EXPLAIN_H_
