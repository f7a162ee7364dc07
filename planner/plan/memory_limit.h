// What source and target take of memory, what a limit on the peak leaves for the workspace
// (planner/plan/workspace.h), and how it is refused.
//
//   const TensorMemory memory(from, to, Buffers::kTwo);
//   MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace, memory.WorkspaceLimit(max_memory));
//   ...
//   return memory.Refusal(max_memory, least_workspace, /*is_least=*/true);
//     // max_memory is 100 bytes per rank; the least that would do is 144: source 48, target 48,
//     // workspace 48
//
// docs/plan_format.md, "Memory", has the rules.
#ifndef MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
#define MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// Bytes of the largest local tensor. INT64_MAX where there are more.
int64_t TensorBytes(const Sharding& sharding);
// Bytes of the smallest one.
int64_t LeastTensorBytes(const Sharding& sharding);

// What source and target take of a rank, the largest of each, and what that means to the workspace.
struct TensorMemory {
  TensorMemory(const Sharding& from, const Sharding& to, Buffers buffers);

  // What a limit on the peak leaves for the workspace; below 0 where it is less than source and
  // target are. INVALID_ARGUMENT where the limit is.
  absl::StatusOr<int64_t> WorkspaceLimit(int64_t max_memory) const;
  // RESOURCE_EXHAUSTED: names the limit and, given the workspace that is needed at least, the least
  // that would do; or, unless that `is_least`, what would do, though less might.
  absl::Status Refusal(int64_t max_memory, int64_t least_workspace, bool is_least) const;

  int64_t source = 0;
  int64_t target = 0;
  int64_t together = 0;  // of one buffer, the larger
  // Of one buffer: what a plan of a single step takes besides, unless that is in place: a copy of
  // the smaller of the two. Else 0.
  int64_t copied = 0;
  // Of a consumed source: what every rank has of it, in multiples of 16, for the pieces of all
  // steps but the first. 0 where not every rank has a source: onto another mesh.
  int64_t scratch = 0;
  Buffers buffers = Buffers::kTwo;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
