// Who holds which part of a parent box before and after a step, and what must travel. Internal to
// the verifier; cuts are torch.chunk's, or of sizes that are given, computed here once more on
// purpose.
//
//   Pieces(world, 10, {0, 1}, {});           // of [0, 10), cut by mesh dims 0, then 1
//   Pieces(world, 10, {0, 1}, {3, 0, 7});    // likewise, the first cut of these sizes
//   FindUncovered(world, cut, {0});    // nullopt: the members' pieces make up each box, once
//   TrafficOfExchange(world, before, after, change);
//
// Costs are O(parent sizes * group size), times a logarithm; a parent has few sizes.
#ifndef MESHIFT_PLANNER_VERIFIER_BOXES_H_
#define MESHIFT_PLANNER_VERIFIER_BOXES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "planner/verifier/state.h"

namespace meshift::verifier_internal {

// The most members that one step may move data between, so that a plan cannot ask for any amount
// of memory.
inline constexpr int64_t kMaxMoving = int64_t{1} << 22;
// And times the choices of sizes that the boxes have which it cuts.
inline constexpr int64_t kMaxChoices = 4 * kMaxMoving;

// [low, high) of a tensor dim, counted from the parent's first index.
struct Interval {
  int64_t low = 0;
  int64_t high = 0;

  int64_t size() const { return high - low; }
  friend bool operator==(const Interval&, const Interval&) = default;
};
int64_t Common(const Interval& a, const Interval& b);  // how many indices

// The pieces of [0, size) that `cuts` make, by coordinate; that of the last cut varies fastest.
// `sizes`: of the first cut's pieces; empty: ceil chunks, as those of the others.
std::vector<Interval> Pieces(const World& world, int64_t size, absl::Span<const int> cuts,
                             const Sizes& sizes);

// Goes through all coordinates of some mesh dims, the last one fastest, and keeps for each of
// several channels the index into a table over that channel's dims. A channel's dims that are not
// walked count as 0.
class Walk {
 public:
  Walk(const World& world, absl::Span<const int> dims,
       absl::Span<const absl::Span<const int>> channels);

  size_t index(size_t channel) const { return index_[channel]; }
  // In the order of `dims`.
  absl::Span<const int64_t> coordinate() const { return coordinate_; }
  bool Next();  // false: that was the last one

 private:
  absl::InlinedVector<int64_t, 6> sizes_;
  absl::InlinedVector<int64_t, 6> coordinate_;
  absl::InlinedVector<size_t, 4> index_;
  absl::InlinedVector<size_t, 12> strides_;  // [dim * channels + channel]
};

// Disjoint intervals, for counting how much of another one they cover.
class Coverage {
 public:
  void Clear() { entries_.clear(); }
  // False: it overlaps what is there, or lies before it. Empty ones are left out.
  bool Add(const Interval& interval);
  int64_t Covered(const Interval& interval) const {
    return Below(interval.high) - Below(interval.low);
  }

 private:
  struct Entry {
    Interval interval;
    int64_t before;  // indices in the intervals before this one
  };
  int64_t Below(int64_t index) const;
  std::vector<Entry> entries_;
};

// A box after that is not made of the boxes before: where, how much of it is there and how large
// it is along the tensor dim.
struct Uncovered {
  std::string where;  // "a=0,b=1"
  bool twice = false;
  int64_t found = 0;
  int64_t wanted = 0;
};

// Whether along `cut`'s tensor dim each rank's interval after is made of the intervals before of
// the ranks that differ from it in `sources` only, each index once.
std::optional<Uncovered> FindUncovered(const World& world, const CutChange& cut,
                                       absl::Span<const int> sources);

struct Traffic {
  Wide sent = 0;                 // bytes that the worst rank sends
  Wide received = 0;             // bytes that the worst rank receives
  bool sent_in_runs = true;      // each message is one run of the box it is from
  bool received_in_runs = true;  // of the box it is for
};

// all_to_all and exchange. REQUIRES: all parts of boxes after are held (FindUncovered).
Traffic TrafficOfExchange(const World& world, const State& before, const State& after,
                          const Change& change);

// permute: per moving mesh dim, the one whose coordinate of the receiver is the sender's there.
// nullopt where the moving cuts before and after are not of equal sizes pairwise.
using Sources = absl::InlinedVector<int, 4>;
std::optional<Sources> SourcesOfPermute(const World& world, const Change& change);
Traffic TrafficOfPermute(const World& world, const State& before, const Change& change,
                         const Sources& sources);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_BOXES_H_
