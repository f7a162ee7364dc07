// What cuts make of a tensor dim: pieces, their lengths, and what two pieces have in common.
//
//   Chunk({0, 10}, 4, 3);                      // [9, 10): of 3, 3, 3, 1 the last
//   CommonIndices({0, 5}, {3, 6});             // 2
//   PieceLengths(10, Nest{{4}, {2}});          // {2, 1, 0}: of 10 in four, and each part in two
//   CutsOf(sharding, 0).Piece({0, 10}, at);    // what the coordinate `at` has of tensor dim 0
//
// Pieces are ceil chunks: n of a length have ceil(length / n) each, but one that is shorter, and
// empty ones behind it. The outermost cut of a tensor dim may be ragged instead. A cut is of each
// piece of the cut before it. NestedCuts (placement/nested_cuts.h) counts pieces without a list.
#ifndef MESHIFT_PLACEMENT_CUTS_H_
#define MESHIFT_PLACEMENT_CUTS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "meshift/sharding.h"

namespace meshift {

// Indices [begin, end) of a tensor dim.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t Length() const { return std::max<int64_t>(end - begin, 0); }
  bool Contains(const Interval& other) const {
    return other.Length() == 0 || (begin <= other.begin && other.end <= end);
  }
  friend bool operator==(const Interval&, const Interval&) = default;
};

inline Interval Intersect(const Interval& a, const Interval& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}
// How many that is.
inline int64_t CommonIndices(const Interval& a, const Interval& b) {
  return std::max<int64_t>(std::min(a.end, b.end) - std::max(a.begin, b.begin), 0);
}

// What cutting a length into n makes: `full` pieces of `chunk`, one of `rest`, unless that is 0,
// and empty ones.
struct Chunks {
  Chunks(int64_t length, int64_t n) : chunk(CeilDiv(length, n)) {
    if (length == 0) return;
    full = length / chunk;
    rest = length % chunk;
  }
  int64_t NotEmpty() const { return full + (rest > 0 ? 1 : 0); }

  int64_t chunk;
  int64_t full = 0;
  int64_t rest = 0;
};

// Where chunk `i` of an interval begins, and the one before it ends. n chunks may end up to n - 1
// behind the interval, which is then not signed any more.
inline int64_t ChunkBegin(const Interval& whole, int64_t chunk, int64_t i) {
  const uint64_t at =
      static_cast<uint64_t>(whole.begin) + static_cast<uint64_t>(chunk) * static_cast<uint64_t>(i);
  return static_cast<int64_t>(std::min(static_cast<uint64_t>(whole.end), at));
}
// Piece `i` of the `n` that an interval is cut into.
inline Interval Chunk(const Interval& whole, int64_t n, int64_t i) {
  const int64_t chunk = CeilDiv(whole.Length(), n);
  return {ChunkBegin(whole, chunk, i), ChunkBegin(whole, chunk, i + 1)};
}

// One cut, into `size` pieces.
struct Cut {
  Interval Piece(const Interval& whole, int64_t i) const {
    if (begins.empty()) return Chunk(whole, size, i);
    return {begins[i], begins[i + 1]};
  }

  int64_t size = 1;
  // Where its pieces begin, and where the last one ends, if it is ragged; empty: ceil chunks.
  absl::Span<const int64_t> begins = {};
};
// Of one tensor dim, outermost first.
using Nest = absl::InlinedVector<Cut, 8>;

// How many pieces there are, empty ones too.
int64_t NumPieces(absl::Span<const Cut> cuts);

// The distinct lengths of pieces, longest first; 0 among them where some are empty.
using Lengths = absl::InlinedVector<int64_t, 4>;
// Of the pieces of wholes that have such lengths.
Lengths PieceLengths(const Lengths& wholes, const Cut& cut);
Lengths PieceLengths(int64_t extent, absl::Span<const Cut> cuts);

// All pieces of [0, extent), empty ones too, in the order of their coordinates, those of the
// innermost cut fastest.
using PieceList = absl::InlinedVector<Interval, 32>;
PieceList AllPieces(int64_t extent, absl::Span<const Cut> cuts);

// How many mesh dims two lists of cuts have in common, from the outermost on.
template <typename Dims>
int CommonLength(const Dims& a, const Dims& b) {
  const auto end = a.begin() + std::min(a.size(), b.size());
  return static_cast<int>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

using MeshDims = absl::InlinedVector<int, 6>;

// The cuts of one tensor dim of a sharding, outermost first, but for mesh dims of size 1, which cut
// nothing.
struct CutList {
  int size() const { return static_cast<int>(mesh_dims.size()); }
  Cut At(int i) const {
    return {sizes[i], absl::MakeConstSpan(begins).first(i == 0 ? begins.size() : 0)};
  }
  Nest All() const;
  // What they leave of `whole` at a coordinate of the mesh.
  Interval Piece(Interval whole, absl::Span<const int64_t> at) const;
  // The first `n` of them, and the others.
  CutList First(int n) const;
  CutList Behind(int n) const;

  MeshDims mesh_dims;
  absl::InlinedVector<int64_t, 6> sizes;  // of these
  std::vector<int64_t> begins;            // of the first cut, as in Cut
};
CutList CutsOf(const Sharding& sharding, int tensor_dim);

// The cuts of one tensor dim around a step on one mesh: those that stay, from the outermost on, and
// behind them those that the step takes away, and those that it makes.
struct StepCuts {
  CutList common;
  CutList before;
  CutList after;
  bool Moves() const { return before.size() > 0 || after.size() > 0; }
};
StepCuts CutsOfStep(const Sharding& before, const Sharding& after, int tensor_dim);

// How the ranks of a permute are paired: a sender's coordinate on the first mesh dim of each pair
// is its receiver's on the second. `moved`: the mesh dims that cut tensor dims before and after,
// behind those that stay. Mesh dims that cut on one side alone are paired by size, then mesh order.
struct MovedMeshDims {
  MeshDims before;
  MeshDims after;
};
using DimPairs = absl::InlinedVector<std::pair<int, int>, 8>;
DimPairs PermutePairs(absl::Span<const MovedMeshDims> moved,
                      absl::FunctionRef<int64_t(int d)> size_of);

// Where pieces of these lengths begin, and where the last one ends.
std::vector<int64_t> BeginsOf(absl::Span<const int64_t> lengths);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_CUTS_H_
