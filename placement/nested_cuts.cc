#include "placement/nested_cuts.h"

#include <algorithm>

#include "base/checked_math.h"

namespace meshift {

Interval NestedCuts::Piece(const Digits& at) const {
  Interval piece{0, extent_};
  for (int i = 0; i < depth(); ++i) piece = cuts_[i].Piece(piece, at[i]);
  return piece;
}

NestedCuts::Range NestedCuts::FullRange() const {
  Range range;
  for (int i = 0; i < depth(); ++i) range.last[i] = size(i) - 1;
  return range;
}

NestedCuts::Lengths NestedCuts::LengthsOf(int depth, int64_t length, const Range& range) const {
  if (depth == this->depth()) return {length, length};
  const Chunks parts = PartsOf({depth, {0, length}});
  const int64_t first = range.first[depth];
  const int64_t last = range.last[depth];
  Lengths lengths{INT64_MAX, 0};
  const auto add = [&](int64_t part) {
    const Lengths of = LengthsOf(depth + 1, part, range);
    lengths = {std::min(lengths.least, of.least), std::max(lengths.most, of.most)};
  };
  if (first < parts.full) add(parts.chunk);
  if (parts.rest > 0 && first <= parts.full && parts.full <= last) add(parts.rest);
  if (last >= parts.NotEmpty()) lengths.least = 0;
  return lengths;
}

NestedCuts::Digits NestedCuts::At(int64_t item) const {
  Digits at = {};
  Node node = root();
  while (node.depth < depth()) {
    const Chunks parts = PartsOf(node);
    const int64_t i = (item - node.whole.begin) / parts.chunk;
    at[node.depth] = i;
    node = Part(node, parts, i);
  }
  return at;
}

// The sum for a node that lies inside the interval.
NestedCuts::Sum NestedCuts::SumInside(int depth, int64_t length, const Range& range) const {
  if (depth == this->depth()) return {1, length};
  const Chunks parts = PartsOf({depth, {0, length}});
  const int64_t first = range.first[depth];
  const int64_t last = range.last[depth];
  Sum sum;
  if (first < parts.full) {
    sum.Add(SumInside(depth + 1, parts.chunk, range), std::min(last + 1, parts.full) - first);
  }
  if (parts.rest > 0 && first <= parts.full && parts.full <= last) {
    sum.Add(SumInside(depth + 1, parts.rest, range), 1);
  }
  return sum;
}

NestedCuts::Sum NestedCuts::Within(const Node& node, const Interval& window,
                                   const Range& range) const {
  const int64_t overlap = CommonIndices(node.whole, window);
  if (overlap == 0) return {};
  if (overlap == node.whole.Length()) return SumInside(node.depth, overlap, range);
  if (node.depth == depth()) return {1, overlap};
  const Chunks parts = PartsOf(node);
  // The parts at the two ends of the interval; all parts between them have equal lengths.
  const int64_t begin = std::max(window.begin, node.whole.begin) - node.whole.begin;
  const int64_t end = std::min(window.end, node.whole.end) - node.whole.begin;
  const int64_t low = begin / parts.chunk;
  const int64_t high = (end - 1) / parts.chunk;
  const int64_t first = range.first[node.depth];
  const int64_t last = range.last[node.depth];
  Sum sum;
  if (first <= low && low <= last) sum.Add(Within(Part(node, parts, low), window, range), 1);
  if (low == high) return sum;
  if (first <= high && high <= last) sum.Add(Within(Part(node, parts, high), window, range), 1);
  const int64_t between = std::min(last, high - 1) - std::max(first, low + 1) + 1;
  if (between > 0) sum.Add(SumInside(node.depth + 1, parts.chunk, range), between);
  return sum;
}

int64_t NestedCuts::LongestLength() const {
  int64_t length = extent_;
  for (const Cut& cut : cuts_) length = CeilDiv(length, cut.size);
  return length;
}

void NestedCuts::AppendRunBegins(int i, absl::InlinedVector<int64_t, 16>* runs) const {
  runs->push_back(0);
  for (const int64_t length : PieceLengths(extent_, absl::MakeConstSpan(cuts_).first(i))) {
    if (length == 0) continue;
    const Chunks parts = PartsOf({i, {0, length}});
    for (const int64_t at : {parts.full, parts.full + 1}) {
      if (at < size(i)) runs->push_back(at);
    }
  }
}

}  // namespace meshift
