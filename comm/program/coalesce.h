// Which of many plans run as one program (comm/program/merge_programs.h): a matter of the plans
// alone, so that all ranks decide alike.
//
//   std::vector<CoalesceTraits> traits = ...;          // CoalesceTraitsOf(plan, max_bytes) each
//   for (const std::vector<int>& run : Coalesce(traits, max_total)) { ... merge plans `run` ... }
//
// Plans run together where their collectives are alike: of the same kinds over the same mesh dims
// of the same meshes in the same order, and, where they reduce, of one dtype, operation and
// divisor. A plan that asks for more than equal bits of replicas keeps its reductions to itself,
// since then no element's bits may depend on what else is sent. So does a plan that sends much:
// what is merged is copied once more on both sides, which only pays where the start of a collective
// costs more than that.
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
  std::vector<int> steps;  // that are collectives
  // The largest value before or after one of them, on the worst rank; of an exchange that adds, all
  // contributions to what it has after.
  int64_t bytes = 0;
};

// `max_bytes`: what a step of the plan may send without keeping it alone.
CoalesceTraits CoalesceTraitsOf(const Plan& plan, int64_t max_bytes);

// What the fastest links carry in the time that a collective takes to start: beyond it the start
// no longer matters.
int64_t DefaultCoalesceBytes(const Topology& topology);

// The plans' indices, ascending, in as few runs as possible, each of at most `max_total` bytes or
// one plan; ordered by their first plan.
std::vector<std::vector<int>> Coalesce(absl::Span<const CoalesceTraits* const> plans,
                                       int64_t max_total);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_COALESCE_H_
