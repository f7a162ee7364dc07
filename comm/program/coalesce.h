// Decides which plans of a list run as one program (comm/program/merge_programs.h). The decision
// depends on the plans alone, so that it is the same on all ranks.
//
//   std::vector<const CoalesceTraits*> traits = ...;   // CoalesceTraitsOf(plan, max_bytes) each
//   for (const std::vector<int>& run : Coalesce(traits, max_total)) { ... merge plans `run` ... }
//
// Plans run together if their collectives match: the same kinds, over the same mesh dims of the
// same meshes, in the same order. Reductions must also have the same dtype, operation and divisor.
//
// A plan runs alone if it reduces and promises more than equal bits of replicas, since then no
// element's bits may depend on the other data in the call. A plan also runs alone if it sends many
// bytes: merged data is copied once more on both sides, which is only worth it if the start of a
// collective takes longer than that.
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
  bool alone = false;
  std::string calls;       // plans that may run together have equal ones
  std::vector<int> steps;  // indices of the collectives
  // Bytes of the largest value before or after a collective, on the worst rank. An exchange that
  // reduces counts all contributions to the value after it.
  int64_t bytes = 0;
};

// A plan with a step that sends more than `max_bytes` runs alone.
CoalesceTraits CoalesceTraitsOf(const Plan& plan, int64_t max_bytes);

// The bytes that the fastest links transfer in the time that a collective takes to start. For
// larger messages the start hardly matters.
int64_t DefaultCoalesceBytes(const Topology& topology);

// Groups the plans' indices into as few runs as possible. A run has one plan, or several with at
// most `max_total` bytes together. Indices ascend within a run; runs are ordered by their first
// plan.
std::vector<std::vector<int>> Coalesce(absl::Span<const CoalesceTraits* const> plans,
                                       int64_t max_total);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_COALESCE_H_
