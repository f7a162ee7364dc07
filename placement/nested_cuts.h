// What nested ceil cuts make of one tensor dim, counted without a list of pieces.
//
//   const NestedCuts cuts(10, Nest{{4}, {2}});      // 10 in four, and each part in two
//   cuts.Piece({1, 0});                     // [3, 5): of 3, 3, 3, 1 the second; of 2, 1 the first
//   cuts.Within({2, 6}, cuts.Everywhere()).pieces;   // 3: [2, 3), [3, 5) and [5, 6)
//
// Cut by n, a length has pieces of ceil(length / n), one that is shorter, and empty ones. So all
// pieces of a nest are of few kinds, and those of a kind lie in few *runs* of coordinates. What is
// asked takes time by the number of kinds, whatever the number of pieces. No cut is ragged here.
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
  // A coordinate for each cut, outermost first.
  using Digits = std::array<int64_t, kMaxDepth>;
  // Some of all coordinates of each cut, ends included.
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
  // The length of the first piece, which is the longest.
  int64_t First() const;

  // What cut i, or at depth() none any more, is of.
  struct Node {
    int depth = 0;
    Interval whole;
  };
  Node root() const { return {0, {0, extent_}}; }
  Chunks PartsOf(const Node& node) const {
    return Chunks(node.whole.Length(), cuts_[node.depth].size);
  }
  // One of these parts. REQUIRES: it is not empty.
  static Node Part(const Node& node, const Chunks& parts, int64_t i) {
    const int64_t begin = node.whole.begin + parts.chunk * i;
    return {node.depth + 1, {begin, begin + (i < parts.full ? parts.chunk : parts.rest)}};
  }

  Interval Piece(const Digits& at) const;
  // Of the pieces with such coordinates, the shortest and the longest.
  struct Lengths {
    int64_t least = 0;
    int64_t most = 0;
  };
  Lengths LengthsOf(const Range& range) const { return LengthsOf(0, extent_, range); }
  // The coordinates of the piece with the item.
  Digits At(int64_t item) const;

  // Of pieces with such coordinates, those that have something of an interval, and how much.
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
  // All coordinates.
  Range Everywhere() const;

  // Adds the coordinates of cut i with which runs begin: whatever the others, in a run the lengths
  // of pieces are constants, and where they begin is linear.
  void AddRuns(int i, absl::InlinedVector<int64_t, 16>* runs) const;

 private:
  Lengths LengthsOf(int depth, int64_t length, const Range& range) const;
  Sum All(int depth, int64_t length, const Range& range) const;
  Sum Within(const Node& node, const Interval& window, const Range& range) const;

  int64_t extent_;
  Nest cuts_;
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_NESTED_CUTS_H_
