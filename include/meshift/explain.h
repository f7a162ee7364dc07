// What else could be done than the best plan does, and why it is not.
//
//   MESHIFT_ASSIGN_OR_RETURN(std::vector<Alternative> all, ListAlternatives(from, to, options));
//   all[0].plan;                       // the best plan, as MakePlan makes it
//   all[1].verdict;                    // kCostsMore
//   all[1].reason;                     // "9.001 us more (+69 %): 2 collectives more, ..."
//   all[1].parts[0].links_ns;          // of its first step's time, what bytes take
//
// Plans are told apart by what they do, not by where they put it: of those with the same reductions
// and moves over the same mesh dims the cheapest stands for all. A pure function of its arguments,
// as planning is; safe for concurrent use.
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
  enum class Verdict : uint8_t {
    kBest,
    kCostsMore,      // keeps the promise too
    kBreaksPromise,  // `reason` has the rule
    kTakesTooMuch,   // memory: more than options.max_memory, which its inputs do not name
    kHoldsTooMuch,   // a value beyond the rule on values (planner/search/value_rule.h)
    kNeedsGroups,    // that options.groups, which its inputs do not name, does not allow
    // What DTensor's greedy planner does. It may break the promise, and hold values on the way that
    // no plan of ours may; `reason` has these rules too.
    kPerDim,
  };
  Verdict verdict = Verdict::kBest;
  Plan plan;
  std::string reason;  // empty for the best
  // What each step's time is made of.
  std::vector<TimeParts> parts = {};
};
std::string_view Name(Alternative::Verdict verdict);  // "best", "costs more", ...

// The best plan; then up to `most` others that keep the promise, the cheapest first, the best one
// that needs no flattened group and those that take more memory, or need other groups, than allowed
// among them; beside the first that undoes a reduce_scatter by messages, for each sequence of ops,
// the same with an all_gather; the best that holds a larger value than the rule on values allows,
// where that is cheaper; then the best without a promise, where that is cheaper, and the plan of
// PlannerKind::kPerDim. From one mesh to another they are told apart by the steps around the
// crossing, and there is no kPerDim, which plans on one mesh. Others are looked for among all
// paths of steps that visit no state twice, in order of their cost, up to a fixed amount of work,
// and with the best plan to options.max_work: on meshes of four dims or more some may be missed,
// and those by the cheapest way that avoids a group of the best plan stand in for them. Fails as
// MakePlan does; `options.planner` is not looked at.
absl::StatusOr<std::vector<Alternative>> ListAlternatives(const Sharding& from, const Sharding& to,
                                                          const PlannerOptions& options,
                                                          int most = 8);

}  // namespace meshift

#endif  // MESHIFT_EXPLAIN_H_
