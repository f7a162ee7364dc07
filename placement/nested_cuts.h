// Nested ceil cuts of one tensor dim: counts pieces and their lengths without listing them.
//
//   const NestedCuts cuts(10, Nest{{4}, {2}});      // 10 cut into four, each piece into two
//   cuts.Piece({1, 0});                     // [3, 5): the second of 3, 3, 3, 1; the first of 2, 1
//   cuts.Within({2, 6}, cuts.FullRange()).pieces;    // 3: [2, 3), [3, 5) and [5, 6)
//
// A cut into n makes pieces of ceil(length / n), then possibly one shorter piece, then empty ones.
// So each cut divides a piece into parts of at most two lengths, besides empty ones. A query visits
// few parts of a piece: its time depends on the number of cuts, and not on the number of pieces.
// The coordinates of a cut fall into few ranges, called runs (AppendRunBegins).
//
// Ragged cuts are not supported, and nothing is checked (see the REQUIRES below). An item is one
// index of the tensor dim. Internal to Meshift. An immutable value; safe for concurrent use.
#ifndef MESHIFT_PLACEMENT_NESTED_CUTS_H_
#define MESHIFT_PLACEMENT_NESTED_CUTS_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/cuts.h"

namespace meshift {

class NestedCuts {
 public:
  static constexpr int kMaxDepth = 8;
  // The coordinate in each cut, outermost first.
  using Digits = std::array<int64_t, kMaxDepth>;
  // A range of coordinates for each cut; both ends are included.
  struct Range {
    Digits first = {};
    Digits last = {};
  };

  // REQUIRES: extent > 0, at most kMaxDepth cuts, none ragged, all sizes > 1.
  NestedCuts(int64_t extent, absl::Span<const Cut> cuts)
      : extent_(extent), cuts_(cuts.begin(), cuts.end()) {}

  int depth() const { return static_cast<int>(cuts_.size()); }
  int64_t extent() const { return extent_; }
  int64_t size(int i) const { return cuts_[i].size; }
  // The length of the longest piece, the first.
  int64_t LongestLength() const;

  // A piece of the first `depth` cuts: cut number `depth` divides it, or none if depth == depth().
  struct Node {
    int depth = 0;
    Interval whole;
  };
  Node root() const { return {0, {0, extent_}}; }
  Chunks PartsOf(const Node& node) const {
    return Chunks(node.whole.Length(), cuts_[node.depth].size);
  }
  // Part `i` of a node. REQUIRES: it is not empty.
  static Node Part(const Node& node, const Chunks& parts, int64_t i) {
    const int64_t begin = node.whole.begin + parts.chunk * i;
    return {node.depth + 1, {begin, begin + (i < parts.full ? parts.chunk : parts.rest)}};
  }

  // The piece at these coordinates; it may be empty.
  Interval Piece(const Digits& at) const;
  // The shortest and the longest length of the pieces with coordinates in `range`.
  struct Lengths {
    int64_t least = 0;
    int64_t most = 0;
  };
  Lengths LengthsOf(const Range& range) const { return LengthsOf(0, extent_, range); }
  // The coordinates of the piece that contains `item`. REQUIRES: 0 <= item < extent().
  Digits At(int64_t item) const;

  // The number of pieces with coordinates in `range` that overlap `window`, and the number of items
  // in the overlaps.
  struct Sum {
    int64_t pieces = 0;
    int64_t items = 0;
    void Add(const Sum& other, int64_t times) {
      pieces += other.pieces * times;
      items += other.items * times;
    }
  };
  Sum Within(const Interval& window, const Range& range) const {
    return Within(root(), window, range);
  }
  // The range of all coordinates.
  Range FullRange() const;

  // Appends the coordinates of cut i at which runs begin. Within a run, for any other coordinates,
  // the length of the piece is constant and its begin is linear in the coordinate. They are in no
  // order, and one may be appended twice.
  void AppendRunBegins(int i, absl::InlinedVector<int64_t, 16>* runs) const;

 private:
  Lengths LengthsOf(int depth, int64_t length, const Range& range) const;
  Sum SumInside(int depth, int64_t length, const Range& range) const;
  Sum Within(const Node& node, const Interval& window, const Range& range) const;

  int64_t extent_;
  Nest cuts_;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_NESTED_CUTS_H_
