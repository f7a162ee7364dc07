// Computes sizes of the workspace: the memory of a rank for values between two steps, and for
// pieces (the buffers in which a step packs what it sends or receives).
//
//   AlignedPiece(18);              // 32
//   PiecesBytes(18, 40, 0);        // 32 + 48
//   PiecesBytes(18, 40, 48);       // 48: the piece to send fits into a consumed source
//
// docs/plan_format.md, "Memory", has the rules. Sizes are in bytes, at least 0, and saturate at
// INT64_MAX. Pure functions.
#ifndef MESHIFT_PLANNER_PLAN_WORKSPACE_H_
#define MESHIFT_PLANNER_PLAN_WORKSPACE_H_

#include <cstdint>

#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// REQUIRES: the elements fill whole bytes (two elements of f4e2m1 share one).
inline int64_t SaturatingBytes(DType dtype, int64_t elements) {
  const int bits = BitWidth(dtype);
  return bits < 8 ? elements / (8 / bits) : SaturatingMul(elements, bits / 8);
}

// In bytes. The largest element, c128, has 16.
inline constexpr int64_t kPieceAlignment = 16;

// The bytes that a value or piece takes in the workspace: it begins and ends at multiples of 16.
inline int64_t AlignedPiece(int64_t bytes) {
  return bytes > INT64_MAX / kPieceAlignment * kPieceAlignment ? INT64_MAX
                                                               : RoundUp(bytes, kPieceAlignment);
}

// The bytes that a step's pieces take in the workspace. `scratch`: the bytes of a
// consumed source, a multiple of 16. A piece that fits into the rest of it takes none.
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

// Whether a plan of a single step must work on a copy if source and target share one buffer. True
// for all steps but an all_reduce, and a relabel after which every box is as before or empty.
// O(ranks) for a relabel.
bool WorksOnCopy(StepOp op, const Sharding& from, const Sharding& to);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_WORKSPACE_H_
