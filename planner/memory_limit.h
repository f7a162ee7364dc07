// PlannerOptions::max_memory: what is left for a plan's workspace, and how a limit is refused.
//
//   MESHIFT_ASSIGN_OR_RETURN(const int64_t workspace, WorkspaceLimit(from, to, max_memory));
//   ...
//   return MemoryRefusal(from, to, max_memory, least_workspace);
//     // max_memory is 100 bytes, of the 144 that would do: source 48, target 48, workspace 48
#ifndef MESHIFT_PLANNER_MEMORY_LIMIT_H_
#define MESHIFT_PLANNER_MEMORY_LIMIT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "placement/sharding.h"

namespace meshift {

// What a value or piece of so many bytes takes of the workspace: it begins and ends at multiples of
// 16. INT64_MAX where there are more.
inline int64_t AlignedPiece(int64_t bytes) {
  constexpr int64_t kAlignment = 16;
  return bytes > INT64_MAX - kAlignment ? INT64_MAX : RoundUp(bytes, kAlignment);
}

// Bytes of the largest local tensor; of those of source and target together. INT64_MAX where there
// are more.
int64_t TensorBytes(const Sharding& sharding);
int64_t TensorBytes(const Sharding& from, const Sharding& to);

// What a limit on the peak leaves for the workspace; below 0 where it is less than source and
// target are. INVALID_ARGUMENT where the limit is.
absl::StatusOr<int64_t> WorkspaceLimit(const Sharding& from, const Sharding& to,
                                       int64_t max_memory);

// RESOURCE_EXHAUSTED: names the limit and, given the workspace that is needed at least, the least
// that would do.
absl::Status MemoryRefusal(const Sharding& from, const Sharding& to, int64_t max_memory,
                           int64_t least_workspace);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_MEMORY_LIMIT_H_
