// Decides which plans of a list run as one program (comm/program/merge_programs.h). The decision
// depends on the plans and two limits alone, so that it is the same on all ranks.
//
//   std::vector<const CoalesceTraits*> traits = ...;   // CoalesceTraitsOf(plan, max_bytes) each
//   for (const std::vector<int>& run : Coalesce(traits, max_total)) { ... merge plans `run` ... }
//
// Plans may run together if their collectives match: the same kinds, over the same mesh dims of the
// same meshes, in the same order. All steps that send messages, such as all_to_all and permute, are
// one kind. Plans without collectives match on any meshes. An all_reduce or reduce_scatter must
// also have the same dtype, operation and divisor.
//
// A plan runs alone if it has an all_reduce or reduce_scatter in ascending order, which may take
// several calls, or one under a promise of more than `replicas`, since then no element's bits may
// depend on the other data in the call. A plan also runs alone if a step sends many bytes: merged
// data is copied once more on both sides, which is only worth it if a collective's start takes
// longer than that.
//
// Refuses no plan, and merges nothing itself. Thread-safe.
#ifndef MESHIFT_COMM_PROGRAM_COALESCE_H_
#define MESHIFT_COMM_PROGRAM_COALESCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/plan.h"
#include "meshift/topology.h"

namespace meshift {

struct CoalesceTraits {
  bool alone = false;      // the plan must run alone
  std::string calls;       // describes the collectives: plans with equal texts may run together
  std::vector<int> steps;  // indices of the collectives in the plan's steps, ascending
  // Bytes of the largest value before or after a collective, on the worst rank. An exchange that
  // reduces counts all contributions to the value after it.
  int64_t bytes = 0;
};

// A plan with a step that sends more than `max_bytes` per rank runs alone.
CoalesceTraits CoalesceTraitsOf(const Plan& plan, int64_t max_bytes);

// The bytes that the fastest links transfer in the time that a collective takes to start. For
// larger messages the start hardly matters.
int64_t DefaultCoalesceBytes(const Topology& topology);

// Divides the plans' indices into runs. A plan joins the latest run of plans with its `calls` if
// that run then has at most `max_total` bytes; otherwise it begins another. Indices ascend within a
// run; runs are ordered by their first plan.
std::vector<std::vector<int>> Coalesce(absl::Span<const CoalesceTraits* const> plans,
                                       int64_t max_total);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_COALESCE_H_
