#include "placement/most_pieces.h"

#include <algorithm>
#include <numeric>

#include "base/checked_math.h"

namespace meshift {
namespace {

using Digits = NestedCuts::Digits;
using Node = NestedCuts::Node;

// The i in [0, n) with the smallest (first + i * step) % modulus. REQUIRES: first, step < modulus.
int64_t LeastResidue(int64_t first, int64_t step, int64_t modulus, int64_t n) {
  if (step == 0 || n == 1) return 0;
  const auto at = [&](int64_t i) {
    return static_cast<int64_t>((static_cast<__int128>(step) * i + first) % modulus);
  };
  // Reverse the order, so that the step is at most half the modulus.
  if (step > modulus / 2) return n - 1 - LeastResidue(at(n - 1), modulus - step, modulus, n);
  // The minimum is at i = 0, or directly after a wrap-around. The residue after the k-th
  // wrap-around is (first - k * modulus) mod step.
  const auto wraps =
      static_cast<int64_t>((static_cast<__int128>(step) * (n - 1) + first) / modulus);
  if (wraps == 0) return 0;
  const int64_t next_step = (step - modulus % step) % step;
  const int64_t k = 1 + LeastResidue((first % step + next_step) % step, next_step, step, wraps);
  const __int128 past = static_cast<__int128>(k) * modulus - first;
  const auto i = static_cast<int64_t>((past + step - 1) / step);
  return at(i) < first ? i : 0;
}

class Search {
 public:
  Search(const NestedCuts& windows, const NestedCuts& parts, uint32_t fixed)
      : windows_(windows), parts_(parts), fixed_(fixed) {
    for (int i = 0; i < parts.depth(); ++i) {
      if (!IsFixed(i)) continue;
      parts.AppendRunBegins(i, &candidates_[i]);
      for (size_t at = candidates_[i].size(); at-- > 0;) {
        if (candidates_[i][at] > 0) candidates_[i].push_back(candidates_[i][at] - 1);
      }
    }
  }

  MostPieces Run() {
    if (windows_.depth() == 0) {
      Examine({0, windows_.extent()});
    } else {
      Visit(windows_.root());
    }
    most_.window = windows_.At(window_begin_);
    return most_;
  }

 private:
  bool IsFixed(int i) const { return (fixed_ >> i & 1) != 0; }

  // The innermost node of `parts_`, without the last cut, that contains the interval.
  Node Around(const Interval& interval) const {
    Node node = parts_.root();
    while (node.depth + 1 < parts_.depth()) {
      const Chunks parts = parts_.PartsOf(node);
      const int64_t i = (interval.begin - node.whole.begin) / parts.chunk;
      const Node part = NestedCuts::Part(node, parts, i);
      if (interval.end > part.whole.end) break;
      node = part;
    }
    return node;
  }

  // Examines all windows in a node, without those that repeat earlier ones.
  void Visit(const Node& node) {
    const Chunks own = windows_.PartsOf(node);
    const bool innermost = node.depth + 1 == windows_.depth();
    const Node around = parts_.depth() == 0 ? Node{} : Around(node.whole);
    // Windows repeat with the period of the parts, up to the first shorter part.
    int64_t period = 1;
    int64_t repeats_to = node.whole.end;
    if (parts_.depth() > 0) {
      const Chunks others = parts_.PartsOf(around);
      period = others.chunk / std::gcd(others.chunk, own.chunk);
      repeats_to = around.whole.begin + others.full * others.chunk;
    }
    const int64_t same = std::clamp<int64_t>((repeats_to - node.whole.begin) / own.chunk, 0,
                                             own.full);  // the windows before repeats_to
    for (int64_t i = 0; i < own.full;) {
      if (i >= period && i < same) {
        i = same;
        continue;
      }
      const Node part = NestedCuts::Part(node, own, i);
      if (!innermost) {
        Visit(part);
        ++i;
      } else {
        i += ExamineRun(part.whole, (i < same ? std::min(same, period) : own.full) - i);
      }
    }
    if (own.rest == 0) return;
    const Node last = NestedCuts::Part(node, own, own.full);
    innermost ? Examine(last.whole) : Visit(last);
  }

  // Examines the first of n contiguous windows, or several at once. Returns the number examined.
  int64_t ExamineRun(const Interval& window, int64_t n) {
    if (parts_.depth() > 0) {
      const Node around = Around({window.begin, window.begin + 1});
      const int64_t inside = std::min(n, (around.whole.end - window.begin) / window.Length());
      if (inside > 1) {
        const int64_t chunk = parts_.PartsOf(around).chunk;
        const int64_t first = window.begin - around.whole.begin;
        const auto examine = [&](int64_t i) {
          const int64_t begin = window.begin + i * window.Length();
          Examine({begin, begin + window.Length()});
        };
        examine(LargestResidue(first, window.Length(), chunk, inside));
        if (fixed_ != 0) {
          examine(LargestResidue(chunk - 1 - first % chunk, chunk - window.Length() % chunk, chunk,
                                 inside));
          examine(inside - 1);
        }
        return inside;
      }
    }
    Examine(window);
    return 1;
  }

  // Examines a window: takes as fixed coordinates those of the pieces at its ends, their
  // neighbours, and the first and last ones of runs.
  void Examine(const Interval& window) {
    const Digits first = parts_.At(window.begin);
    const Digits last = parts_.At(window.end - 1);
    NestedCuts::Range range = parts_.FullRange();
    Enumerate(window, first, last, 0, &range);
  }
  // Enumerates these fixed coordinates in the cuts from `depth` on.
  void Enumerate(const Interval& window, const Digits& first, const Digits& last, int depth,
                 NestedCuts::Range* range) {
    if (depth == parts_.depth()) {
      const auto [pieces, items] = parts_.Within(window, *range);
      most_.items = std::max(most_.items, items);
      if (pieces <= most_.pieces) return;
      most_.pieces = pieces;
      most_.parts = range->first;
      window_begin_ = window.begin;
      return;
    }
    if (!IsFixed(depth)) return Enumerate(window, first, last, depth + 1, range);
    const auto enumerate_with = [&](int64_t i) {
      if (i < 0 || i >= parts_.size(depth)) return;
      range->first[depth] = i;
      range->last[depth] = i;
      Enumerate(window, first, last, depth + 1, range);
    };
    for (const int64_t i : {first[depth], first[depth] + 1, last[depth], last[depth] - 1}) {
      enumerate_with(i);
    }
    for (const int64_t i : candidates_[depth]) enumerate_with(i);
  }

  const NestedCuts& windows_;
  const NestedCuts& parts_;
  const uint32_t fixed_;
  // Candidates for fixed coordinates: the first and last ones of runs.
  std::array<absl::InlinedVector<int64_t, 16>, NestedCuts::kMaxDepth> candidates_;
  MostPieces most_;
  int64_t window_begin_ = 0;
};

}  // namespace

int64_t LargestResidue(int64_t first, int64_t step, int64_t modulus, int64_t n) {
  first %= modulus;
  step %= modulus;
  return LeastResidue(modulus - 1 - first, (modulus - step) % modulus, modulus, n);
}

MostPieces FindMostPieces(const NestedCuts& windows, const NestedCuts& parts, uint32_t fixed) {
  return Search(windows, parts, fixed).Run();
}

}  // namespace meshift
