// Counts, from a plan alone, the bytes that each rank sends and receives over the links of each
// level of a topology.
//
//   ForEachLoad(
//       plan, topology,
//       [&](int64_t rank, int level, const LinkBytes& bytes) { sent[rank][level] += bytes.sent; },
//       [](int64_t rank, int64_t bytes_sent) {});
//
// A message counts for the lowest level at which sender and receiver share a domain. A sum in order
// sends contributions to all other members. A sum in blocks is counted the same way, although more
// of its messages stay inside a domain. An all_reduce in order then gathers its results by a ring.
//
// For other collectives, the algorithm whose time the plan assumes decides:
// - Ring: it enters and leaves each domain once. The domain's members share those bytes equally. A
//   gather or scatter of exact sizes takes all blocks except the smallest over each link.
// - Tree: the tensor goes up and down between each two domains that the tree joins.
// - Sums in switches: each rank or domain sends the tensor once, and receives it once.
// Bytes saturate. No errors; safe for concurrent use. Internal to the planner and the CLI.
#ifndef MESHIFT_PLANNER_TOGETHER_LINK_LOADS_H_
#define MESHIFT_PLANNER_TOGETHER_LINK_LOADS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "meshift/plan.h"
#include "meshift/topology.h"
#include "planner/together/links.h"

namespace meshift {

struct LinkBytes {
  int64_t sent = 0;
  int64_t received = 0;
  // Sent, as plans count it (docs/plan_format.md): in a gather of exact sizes a rank counts the
  // blocks of all others. Elsewhere equal to `sent`.
  int64_t counted = 0;
};

// Calls on_link, perhaps several times for one link, with bytes that add up to those of the plan.
// Calls on_rank with the bytes that plans count for a rank, which also may be several times. Skips
// steps that send nothing. REQUIRES: the verifier accepts `plan`. O(ranks * members of groups +
// messages) time.
void ForEachLoad(const Plan& plan, const Topology& topology,
                 absl::FunctionRef<void(int64_t rank, int level, const LinkBytes& bytes)> on_link,
                 absl::FunctionRef<void(int64_t rank, int64_t bytes_sent)> on_rank);

// The time of a step's local copies without their starts, in ns, from the parts of its time.
int64_t BareCopiesNs(const TimeParts& parts, const Topology& topology);

// Adds the bytes of ForEachLoad that are sent and received to `list`, a list of these links, and
// local copies: BareCopiesNs() of each step, on each rank that holds anything after it or, unless
// the step is local, before it. REQUIRES: also, that the links are those of the plan's meshes and
// others.
void AddLoads(const Plan& plan, const Links& links, LoadList* list);

// The work of each of them, in units of WorkBudget (base/work_budget.h).
int64_t LoadWork(const Plan& plan);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_LINK_LOADS_H_
