// The most pieces of one nest of cuts that a piece of another nest overlaps.
//
//   const NestedCuts senders(12, Nest{{3}}), receivers(12, Nest{{4}});
//   FindMostPieces(senders, receivers, 0).pieces;      // 2: [4, 8) overlaps [3, 6) and [6, 9)
//
// Pieces of one cut have equal lengths and distances. So their offsets in pieces of the other nest
// form a linear congruence, whose maximum a variant of Euclid's algorithm finds. Time: at most
// proportional to the number of pieces of both nests without their innermost cuts; much less if the
// lengths of outer pieces have a small common multiple.
#ifndef MESHIFT_PLACEMENT_MOST_PIECES_H_
#define MESHIFT_PLACEMENT_MOST_PIECES_H_

#include <cstdint>

#include "placement/nested_cuts.h"

namespace meshift {

// The i in [0, n) with the largest (first + i * step) % modulus. REQUIRES: n > 0, modulus > 0,
// first >= 0, step >= 0.
int64_t LargestResidue(int64_t first, int64_t step, int64_t modulus, int64_t n);

struct MostPieces {
  int64_t pieces = 0;
  int64_t items = 0;  // the largest overlap in items; may belong to another piece
  // A piece of `windows` with this number of overlaps, and the fixed coordinates of the overlapped
  // pieces.
  NestedCuts::Digits window = {};
  NestedCuts::Digits parts = {};
};

// Only pieces of `parts` count that share their coordinates in the cuts of `fixed`, a bit mask of
// cut indices. REQUIRES: both nests have the same extent.
MostPieces FindMostPieces(const NestedCuts& windows, const NestedCuts& parts, uint32_t fixed);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_MOST_PIECES_H_
