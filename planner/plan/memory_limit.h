// What a plan takes of memory: tensors and pieces of the workspace, what a limit on the peak leaves
// for the workspace, and how it is refused.
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
#include "base/checked_math.h"
#include "placement/sharding.h"
#include "planner/plan/buffers.h"
#include "planner/plan/plan.h"

namespace meshift {

inline constexpr int64_t kPieceAlignment = 16;

// What a value or piece of so many bytes takes of the workspace: it begins and ends at multiples of
// 16. INT64_MAX where there are more.
inline int64_t AlignedPiece(int64_t bytes) {
  return bytes > INT64_MAX / kPieceAlignment * kPieceAlignment ? INT64_MAX
                                                               : RoundUp(bytes, kPieceAlignment);
}

// What the pieces of a step take of the workspace: those that do not fit, one after the other, into
// `scratch` bytes, a multiple of 16, of a consumed source.
inline int64_t PiecesBytes(int64_t send, int64_t receive, int64_t scratch) {
  int64_t bytes = 0;
  for (const int64_t piece : {AlignedPiece(send), AlignedPiece(receive)}) {
    if (piece <= scratch) {
      scratch -= piece;
    } else {
      bytes = SaturatingAdd(bytes, piece);
    }
  }
  return bytes;
}

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

// Whether a single step from `from` to `to` works on a copy where both are one buffer: all do but
// an all_reduce, and a relabel that leaves every rank's box as it is. O(ranks) for a relabel.
bool WorksOnCopy(StepOp op, const Sharding& from, const Sharding& to);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_MEMORY_LIMIT_H_
