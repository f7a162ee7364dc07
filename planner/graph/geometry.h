// Lengths and intervals that nested cuts give, without a list of ranks.
//
//   ExtentsAfter(problem, 0, cuts);                 // {3, 1}: lengths that pieces of dim 0 have
//   Interval piece = Piece(5, {2, 2}, {0, 1});      // [2, 3): 5 in two, and the first part in two
#ifndef MESHIFT_PLANNER_GRAPH_GEOMETRY_H_
#define MESHIFT_PLANNER_GRAPH_GEOMETRY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/graph/state.h"

namespace meshift {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t Length() const { return std::max<int64_t>(end - begin, 0); }
};

inline int64_t Overlap(const Interval& a, const Interval& b) {
  return std::max<int64_t>(std::min(a.end, b.end) - std::max(a.begin, b.begin), 0);
}

// Where chunk `i` of an interval begins, and the one before it ends. n chunks may end up to n - 1
// behind the interval, which is then not signed any more.
inline int64_t BeginOrEnd(const Interval& whole, int64_t chunk, int64_t i) {
  const uint64_t at =
      static_cast<uint64_t>(whole.begin) + static_cast<uint64_t>(chunk) * static_cast<uint64_t>(i);
  return static_cast<int64_t>(std::min(static_cast<uint64_t>(whole.end), at));
}

// Piece `i` of `n` of an interval.
inline Interval Cut(const Interval& whole, int64_t n, int64_t i) {
  const int64_t chunk = CeilDiv(whole.Length(), n);
  return {BeginOrEnd(whole, chunk, i), BeginOrEnd(whole, chunk, i + 1)};
}

// Piece `index` of an interval under cut i of `list`.
inline Interval Cut(const Problem& problem, const CutLists::List& list, int i,
                    const Interval& whole, int64_t index) {
  if (i > 0 || list.outermost == CutSizes::kCeil) return Cut(whole, problem.size(list[i]), index);
  const absl::Span<const int64_t> begins = problem.begins(list[0], list.outermost);
  return {begins[index], begins[index + 1]};
}

// The pieces of an interval of `extent` under the cuts of `list` from `first` on, in the order of
// their coordinates, those of the innermost cut fastest.
using PieceList = absl::InlinedVector<Interval, 32>;
inline PieceList AllPieces(const Problem& problem, const CutLists::List& list, int first,
                           int64_t extent) {
  PieceList pieces = {{0, extent}};
  for (int i = first; i < list.size; ++i) {
    const int64_t n = problem.size(list[i]);
    const auto num_wholes = static_cast<int64_t>(pieces.size());
    pieces.resize(num_wholes * n);
    // In place, from the last one on.
    for (int64_t at = num_wholes; at-- > 0;) {
      const Interval whole = pieces[at];
      Interval* const made = pieces.data() + at * n;
      if (i == 0 && list.outermost != CutSizes::kCeil) {
        for (int64_t j = 0; j < n; ++j) made[j] = Cut(problem, list, i, whole, j);
        continue;
      }
      const int64_t chunk = CeilDiv(whole.Length(), n);
      int64_t begin = whole.begin;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t end = BeginOrEnd({begin, whole.end}, chunk, 1);
        made[j] = {begin, end};
        begin = end;
      }
    }
  }
  return pieces;
}

// The distinct lengths other than 0 of the pieces of tensor dim k under `cuts`, longest first.
using Extents = absl::InlinedVector<int64_t, 4>;
inline Extents ExtentsAfter(const Problem& problem, int k, const CutLists::List& list) {
  Extents extents;
  if (problem.extent(k) > 0) extents.push_back(problem.extent(k));
  for (int i = 0; i < list.size; ++i) {
    const int64_t n = problem.size(list[i]);
    Extents next;
    if (i == 0 && list.outermost != CutSizes::kCeil) {
      for (int64_t piece = 0; piece < n; ++piece) {
        const int64_t length = Cut(problem, list, 0, {}, piece).Length();
        if (length > 0) next.push_back(length);
      }
    } else {
      for (int64_t extent : extents) {
        const int64_t chunk = CeilDiv(extent, n);
        next.push_back(chunk);
        if (extent % chunk > 0) next.push_back(extent % chunk);
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    extents = std::move(next);
  }
  std::sort(extents.rbegin(), extents.rend());
  return extents;
}
inline Extents ExtentsAfter(const Problem& problem, int k, const CutLists& cuts) {
  return ExtentsAfter(problem, k, cuts.of[k]);
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_GEOMETRY_H_
