// How many pieces of one nest of cuts a piece of another has parts of, at most.
//
//   const NestedCuts senders(12, Nest{{3}}), receivers(12, Nest{{4}});
//   FindMostPieces(senders, receivers, 0).pieces;      // 2: [4, 8) has parts of [3, 6), [6, 9)
//
// Pieces of one cut are as long, and begin as far from each other, so that where they begin in
// pieces of the other is a linear congruence, whose largest value a form of Euclid's algorithm
// finds. Takes time by the number of pieces of the nests without their innermost cuts, at most; by
// far less where the lengths of outer pieces have a common multiple.
#ifndef MESHIFT_PLACEMENT_MOST_PIECES_H_
#define MESHIFT_PLACEMENT_MOST_PIECES_H_

#include <cstdint>

#include "placement/nested_cuts.h"

namespace meshift {

// The i in [0, n) whose (first + i * step) % modulus is largest.
// REQUIRES: n > 0, modulus > 0, first >= 0, step >= 0.
int64_t LargestResidue(int64_t first, int64_t step, int64_t modulus, int64_t n);

struct MostPieces {
  int64_t pieces = 0;
  int64_t items = 0;  // the most, not of the same piece
  // Some piece that has parts of so many, and, where these are fixed, their coordinates.
  NestedCuts::Digits window = {};
  NestedCuts::Digits parts = {};
};

// Of pieces of `parts`, those that have the same coordinates in the cuts of `fixed`, by place. Both
// nests are of the same extent.
MostPieces FindMostPieces(const NestedCuts& windows, const NestedCuts& parts, uint32_t fixed);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_MOST_PIECES_H_
