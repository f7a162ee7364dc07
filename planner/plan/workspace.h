// How values and pieces of steps lie in the workspace, and so how large it is.
//
//   AlignedPiece(18);              // 32
//   PiecesBytes(18, 40, 0);        // 32 + 48
//   PiecesBytes(18, 40, 48);       // 48: what is sent fits into a consumed source
//
// docs/plan_format.md, "Memory", has the rules.
#ifndef MESHIFT_PLANNER_PLAN_WORKSPACE_H_
#define MESHIFT_PLANNER_PLAN_WORKSPACE_H_

#include <cstdint>

#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// `bytes` of `elements`, saturating. REQUIRES: whole bytes.
inline int64_t SaturatingBytes(DType dtype, int64_t elements) {
  const int bits = BitWidth(dtype);
  return bits < 8 ? elements / (8 / bits) : SaturatingMul(elements, bits / 8);
}

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

// Whether a single step from `from` to `to` works on a copy where both are one buffer: all do but
// an all_reduce, and a relabel that leaves every rank's box as it is. O(ranks) for a relabel.
bool WorksOnCopy(StepOp op, const Sharding& from, const Sharding& to);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_WORKSPACE_H_
