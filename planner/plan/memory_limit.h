// Computes the bytes of source and target, and the workspace that the limit max_memory leaves.
//
//   const TensorMemory memory(from, to, Buffers::kTwo);
//   MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace, memory.WorkspaceLimit(max_memory));
//   ...
//   return memory.Refusal(max_memory, least_workspace, /*is_least=*/true);
//     // max_memory is 100 bytes per rank; the smallest sufficient value is 144: source 48,
//     // target 48, workspace 48
//
// Sizes are in bytes on one rank, and saturate at INT64_MAX. planner/plan/workspace.h has the sizes
// of a workspace; docs/plan_format.md, "Memory", has the rules. Safe for concurrent use.
#ifndef MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
#define MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// Bytes of the largest local tensor of any rank.
int64_t TensorBytes(const Sharding& sharding);
// Bytes of the smallest local tensor of any rank.
int64_t LeastTensorBytes(const Sharding& sharding);

// `source`, `target`: the bytes of the largest source and the largest target on any rank.
struct TensorMemory {
  TensorMemory(const Sharding& from, const Sharding& to, Buffers buffers);

  // The bytes that a limit of `max_memory` leaves for the workspace; below 0 if source and target
  // alone exceed it. INVALID_ARGUMENT if `max_memory` is negative.
  absl::StatusOr<int64_t> WorkspaceLimit(int64_t max_memory) const;
  // RESOURCE_EXHAUSTED. The message names `max_memory` and the limit that would suffice with
  // `least_workspace`. If `is_least` is false, the message says that a smaller limit may suffice.
  absl::Status Refusal(int64_t max_memory, int64_t least_workspace, bool is_least) const;

  int64_t source = 0;
  int64_t target = 0;
  int64_t together = 0;  // bytes of both; in one buffer, of the larger
  // kOne: the bytes of a copy of the smaller of the two, rounded up to a multiple of 16. A plan of
  // a single step needs it, unless the step works in place (WorksOnCopy in workspace.h). Else 0.
  int64_t copied = 0;
  // kConsumed: the bytes of source that every rank has, rounded down to a multiple of 16. The
  // pieces of all steps but the first may lie there. 0 between two meshes, where a rank may have no
  // source, and with other buffers.
  int64_t scratch = 0;
  Buffers buffers = Buffers::kTwo;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
