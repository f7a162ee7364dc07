// Memory of source and target, and the workspace that a limit on the peak (max_memory) leaves.
//
//   const TensorMemory memory(from, to, Buffers::kTwo);
//   MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace, memory.WorkspaceLimit(max_memory));
//   ...
//   return memory.Refusal(max_memory, least_workspace, /*is_least=*/true);
//     // max_memory is 100 bytes per rank; the least that would do is 144: source 48, target 48,
//     // workspace 48
//
// planner/plan/workspace.h has the workspace itself. docs/plan_format.md, "Memory", has the rules.
#ifndef MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
#define MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// Bytes of the largest local tensor of any rank. INT64_MAX if there are more.
int64_t TensorBytes(const Sharding& sharding);
// Bytes of the smallest local tensor of any rank.
int64_t LeastTensorBytes(const Sharding& sharding);

// The bytes of the largest source and the largest target on any rank, and the consequences for the
// workspace.
struct TensorMemory {
  TensorMemory(const Sharding& from, const Sharding& to, Buffers buffers);

  // The bytes that a limit of `max_memory` leaves for the workspace; below 0 if source and target
  // alone exceed it. INVALID_ARGUMENT if `max_memory` is negative.
  absl::StatusOr<int64_t> WorkspaceLimit(int64_t max_memory) const;
  // RESOURCE_EXHAUSTED. The message names `max_memory` and the limit that would suffice with
  // `least_workspace`: the least such limit if `is_least`, else one that a smaller limit may
  // replace.
  absl::Status Refusal(int64_t max_memory, int64_t least_workspace, bool is_least) const;

  int64_t source = 0;
  int64_t target = 0;
  int64_t together = 0;  // bytes of both; in one buffer, of the larger
  // kOne: the bytes that a plan of a single step needs besides, unless the step works in place: a
  // copy of the smaller of the two. Else 0.
  int64_t copied = 0;
  // kConsumed: the bytes of source that every rank has, a multiple of 16. The pieces of all steps
  // but the first may lie there. 0 between two meshes, where a rank may have no source.
  int64_t scratch = 0;
  Buffers buffers = Buffers::kTwo;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
