// The lower envelope of lines: the one with the least y(x) = start + x * times / over, at x >= 0.
//
//   Envelope<char> least;
//   least.Add({.start = 10, .times = 3, .over = 1, .what = 'a'});
//   least.Add({.start = 50, .times = 1, .over = 1, .what = 'b'});
//   least.Seal();
//   least.At(20).what;         // 'a': 70, as 'b'
//   least.At(21).what;         // 'b': 71; 'a' would be 73
//
// At() only compares x with the ends of the lines; the caller computes y. Add() must not follow
// Seal(), nor At() precede it. Nothing is checked. After Seal(), safe for concurrent use. If the
// product of two lines' `over` and the difference of their starts exceeds 128 bits, At() may return
// a line that is not the least.
#ifndef MESHIFT_PLANNER_COST_ENVELOPE_H_
#define MESHIFT_PLANNER_COST_ENVELOPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace meshift {

template <typename What>
class Envelope {
 public:
  struct Line {
    int64_t start = 0;
    int64_t times = 0;
    int64_t over = 1;
    What what = {};
    int64_t most_x = INT64_MAX;  // the last x at which this line is the least; set by Seal()
  };

  // REQUIRES: start >= 0, times >= 0, over > 0.
  void Add(const Line& line) { lines_.push_back(line); }

  // Keeps the lines that are the least for some x, in order of x. Among equal lines, the first
  // added.
  void Seal() {
    std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
      if (a.start != b.start) return a.start < b.start;
      return IsFlatter(a, b);
    });
    Lines kept;
    for (const Line& line : lines_) {
      while (!kept.empty()) {
        if (!IsFlatter(line, kept.back())) break;
        const int64_t most_x = Crossing(kept.back(), line);
        const int64_t before = kept.size() > 1 ? kept[kept.size() - 2].most_x : -1;
        if (most_x > before) {
          kept.back().most_x = most_x;
          break;
        }
        kept.pop_back();
        if (!kept.empty()) kept.back().most_x = INT64_MAX;
      }
      if (kept.empty() || kept.back().most_x < INT64_MAX) kept.push_back(line);
    }
    lines_ = std::move(kept);
  }

  // The least line at x. REQUIRES: sealed, with one line or more; x >= 0.
  const Line& At(int64_t x) const {
    size_t i = 0;
    while (x > lines_[i].most_x) ++i;
    return lines_[i];
  }
  // The least line at x = 0. REQUIRES: sealed, with one line or more.
  const Line& first() const { return lines_.front(); }
  size_t size() const { return lines_.size(); }
  const Line& operator[](size_t i) const { return lines_[i]; }

 private:
  using Lines = absl::InlinedVector<Line, 3>;

  static bool IsFlatter(const Line& a, const Line& b) {
    return static_cast<__int128>(a.times) * b.over < static_cast<__int128>(b.times) * a.over;
  }
  // The last x at which `a` is at most `b`. REQUIRES: b.start >= a.start, and b is flatter. If the
  // product overflows 128 bits, a larger x.
  static int64_t Crossing(const Line& a, const Line& b) {
    const __int128 less =
        static_cast<__int128>(a.times) * b.over - static_cast<__int128>(b.times) * a.over;
    __int128 product = 0;
    if (__builtin_mul_overflow(static_cast<__int128>(a.over) * b.over,
                               static_cast<__int128>(b.start - a.start), &product)) {
      return INT64_MAX - 1;
    }
    return static_cast<int64_t>(std::min<__int128>(product / less, INT64_MAX - 1));
  }

  Lines lines_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_ENVELOPE_H_
