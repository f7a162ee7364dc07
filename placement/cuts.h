// Cuts of one tensor dim: the pieces, their lengths, and the overlap of two pieces. Also pairs the
// ranks of a permute (PermutePairs).
//
//   Chunk({0, 10}, 4, 3);                      // [9, 10): the last of the lengths 3, 3, 3, 1
//   CommonIndices({0, 5}, {3, 6});             // 2
//   PieceLengths(10, Nest{{4}, {2}});          // {2, 1, 0}: 10 cut into four, each piece into two
//   CutsOf(sharding, 0).Piece({0, 10}, at);    // the part of tensor dim 0 at coordinate `at`
//
// A ceil cut of a length into n makes pieces of ceil(length / n), then possibly one shorter piece,
// then empty ones. The outermost cut of a tensor dim may be ragged instead. Each cut divides every
// piece of the cut before it. NestedCuts (placement/nested_cuts.h) counts the pieces in a range, of
// ceil cuts only.
//
// Positions and lengths count indices of the tensor dim; both are 0 or more. Nothing is checked:
// each Cut::size must be at least 1, and a coordinate less than it. A ragged cut always divides the
// whole tensor dim; it ignores the interval or length that it is given. Internal to Meshift. Pure
// functions and values; safe for concurrent use.
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
// The length of the intersection.
inline int64_t CommonIndices(const Interval& a, const Interval& b) {
  return std::max<int64_t>(std::min(a.end, b.end) - std::max(a.begin, b.begin), 0);
}

// The pieces of a length cut into n: `full` pieces of length `chunk`, one of length `rest` if that
// is not 0, and empty ones.
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

// The begin of chunk `i` of an interval, which is the end of the one before. Unsigned arithmetic:
// the product may exceed the interval by up to n - 1, beyond 2^63.
inline int64_t ChunkBegin(const Interval& whole, int64_t chunk, int64_t i) {
  const uint64_t at =
      static_cast<uint64_t>(whole.begin) + static_cast<uint64_t>(chunk) * static_cast<uint64_t>(i);
  return static_cast<int64_t>(std::min(static_cast<uint64_t>(whole.end), at));
}
// Piece `i` of an interval cut into `n`.
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
  // For a ragged cut: the begins of its pieces and the end of the last one. It must outlive the
  // cut. Empty: a ceil cut.
  absl::Span<const int64_t> begins = {};
};
// The cuts of one tensor dim, outermost first.
using Nest = absl::InlinedVector<Cut, 8>;

// The number of pieces, with empty ones. Saturates.
int64_t NumPieces(absl::Span<const Cut> cuts);

// The distinct lengths of pieces, longest first; includes 0 if some are empty.
using Lengths = absl::InlinedVector<int64_t, 4>;
// The lengths of the pieces that `cut` makes of pieces of the lengths `wholes`.
Lengths PieceLengths(const Lengths& wholes, const Cut& cut);
Lengths PieceLengths(int64_t extent, absl::Span<const Cut> cuts);

// All pieces of [0, extent), with empty ones, in coordinate order; the innermost cut varies
// fastest. Time and memory grow with NumPieces(cuts).
using PieceList = absl::InlinedVector<Interval, 32>;
PieceList AllPieces(int64_t extent, absl::Span<const Cut> cuts);

// The length of the common prefix of two lists of mesh dims.
template <typename Dims>
int CommonLength(const Dims& a, const Dims& b) {
  const auto end = a.begin() + std::min(a.size(), b.size());
  return static_cast<int>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

using MeshDims = absl::InlinedVector<int, 6>;

// The cuts of one tensor dim of a sharding, outermost first, without mesh dims of size 1.
struct CutList {
  int size() const { return static_cast<int>(mesh_dims.size()); }
  // Cut number `i`. Its begins point into this list.
  Cut At(int i) const {
    return {sizes[i], absl::MakeConstSpan(begins).first(i == 0 ? begins.size() : 0)};
  }
  Nest All() const;
  // The piece of `whole` at mesh coordinate `at`.
  Interval Piece(Interval whole, absl::Span<const int64_t> at) const;
  // The first `n` cuts, and the cuts after them.
  CutList First(int n) const;
  CutList After(int n) const;

  MeshDims mesh_dims;
  absl::InlinedVector<int64_t, 6> sizes;  // of mesh_dims
  std::vector<int64_t> begins;            // Cut::begins of the first cut
};
CutList CutsOf(const Sharding& sharding, int tensor_dim);

// The cuts of one tensor dim before and after a step on one mesh: the common outermost cuts, then
// the cuts that the step removes, and those that it adds.
struct StepCuts {
  CutList common;
  CutList before;
  CutList after;
};
StepCuts CutsOfStep(const Sharding& before, const Sharding& after, int tensor_dim);

// How the ranks of a permute are paired: a sender's coordinate on the first mesh dim of each pair
// equals its receiver's on the second. `moved`: per tensor dim, the mesh dims that cut it before
// and after, without the common ones. Mesh dims that cut on one side only are paired by size, then
// mesh order.
struct MovedMeshDims {
  MeshDims before;
  MeshDims after;
};
using DimPairs = absl::InlinedVector<std::pair<int, int>, 8>;
DimPairs PermutePairs(absl::Span<const MovedMeshDims> moved,
                      absl::FunctionRef<int64_t(int d)> size_of);

// The begins of pieces of these lengths, and the end of the last one.
std::vector<int64_t> BeginsOf(absl::Span<const int64_t> lengths);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_CUTS_H_
