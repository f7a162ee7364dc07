// FindMostPieces: the largest number of pieces of one list of nested cuts (`parts`) that a single
// piece of another list (`windows`) overlaps. One use: the most messages of one rank.
//
//   const NestedCuts senders(12, Nest{{3}}), receivers(12, Nest{{4}});
//   FindMostPieces(senders, receivers, 0).pieces;      // 2: [4, 8) overlaps [3, 6) and [6, 9)
//
// Pieces of one cut, except for the last, have equal lengths and distances. So their offsets in
// pieces of the other list form a linear congruence, whose maximum a variant of Euclid's algorithm
// finds. Time: at most proportional to the number of pieces of both lists without their innermost
// cuts; much less if the lengths of outer pieces have a small common multiple. Each fixed cut
// multiplies the time by the number of coordinates that are tried in it, up to some dozens. No
// ragged cuts (placement/nested_cuts.h). Internal to Meshift. Pure functions; safe for concurrent
// use.
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
  // The most indices that a piece of `windows` shares with such pieces; may be another piece.
  int64_t items = 0;
  // A piece of `windows` with this number of overlaps, and the fixed coordinates of the overlapped
  // pieces.
  NestedCuts::Digits window = {};
  NestedCuts::Digits parts = {};
};

// `fixed` is a bit mask of cuts of `parts` (bit i: cut number i). Only pieces count that have the
// same coordinates in those cuts; the coordinates that give the largest number are chosen. 0: all
// pieces count. REQUIRES: both have the same extent.
MostPieces FindMostPieces(const NestedCuts& windows, const NestedCuts& parts, uint32_t fixed);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_MOST_PIECES_H_
