// Computes the boxes of the ranks in one group before and after a step, and the bytes that must be
// sent. It shares no code for cuts with the planner (placement/cuts.h).
//
//   Pieces(mesh_shape, 10, {0, 1}, {});         // of [0, 10), cut by mesh dims 0, then 1
//   Pieces(mesh_shape, 10, {0, 1}, {3, 0, 7});  // the same, with these sizes for the first cut
//   FindUncovered(mesh_shape, cut, {0});        // nullopt: the members' pieces cover each box once
//   TrafficOfExchange(mesh_shape, before, after, change);
//
// A parent is an interval of a tensor dim that the changed cuts divide; the members of a group
// share it. Time is O(combinations of parent sizes * group size), times a logarithm. CheckFields
// (step.h) refuses steps beyond kMaxMoving and kMaxChoices; nothing is checked here. Internal to
// the verifier.
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

// The most ranks between which one step may move data; and the most combinations of parent sizes
// times these ranks. They limit the memory that a plan can make the verifier use.
inline constexpr int64_t kMaxMoving = int64_t{1} << 22;
inline constexpr int64_t kMaxChoices = 4 * kMaxMoving;

// [low, high) of a tensor dim, counted from the parent's first index.
struct Interval {
  int64_t low = 0;
  int64_t high = 0;

  int64_t size() const { return high - low; }
  friend bool operator==(const Interval&, const Interval&) = default;
};
int64_t Common(const Interval& a, const Interval& b);  // the number of common indices

// The pieces of [0, size) that `cuts` make, by coordinate; the last cut's coordinate varies
// fastest. `sizes`: the sizes of the first cut's pieces; empty for ceil chunks. All other cuts are
// ceil chunks.
std::vector<Interval> Pieces(const MeshShape& mesh_shape, int64_t size, absl::Span<const int> cuts,
                             const Sizes& sizes);

// Iterates over all coordinates of some mesh dims, the last dim fastest, and keeps the indices of
// the current coordinate in some row-major tables. `table_dims`: the mesh dims of each table. Those
// that are not iterated count as 0.
class Walk {
 public:
  Walk(const MeshShape& mesh_shape, absl::Span<const int> dims,
       absl::Span<const absl::Span<const int>> table_dims);

  size_t index(size_t table) const { return index_[table]; }
  // In the order of `dims`.
  absl::Span<const int64_t> coordinate() const { return coordinate_; }
  bool Next();  // false after the last one

 private:
  absl::InlinedVector<int64_t, 6> sizes_;
  absl::InlinedVector<int64_t, 6> coordinate_;
  absl::InlinedVector<size_t, 4> index_;
  absl::InlinedVector<size_t, 12> strides_;  // [dim * tables + table]
};

// Disjoint intervals, added in ascending order. Counts the indices of another interval that they
// cover.
class Coverage {
 public:
  void Clear() { entries_.clear(); }
  // False if the interval begins before the end of the last one. Empty intervals are ignored.
  bool Add(const Interval& interval);
  int64_t Covered(const Interval& interval) const {
    return Below(interval.high) - Below(interval.low);
  }

 private:
  struct Entry {
    Interval interval;
    int64_t before;  // the number of indices in the earlier intervals
  };
  int64_t Below(int64_t index) const;
  std::vector<Entry> entries_;
};

// A box after the step that the boxes before do not cover exactly once: the rank's coordinates, and
// the found and the wanted number of indices along the tensor dim.
struct Uncovered {
  std::string where;  // "a=0,b=1"; "" for every rank
  bool twice = false;
  int64_t found = 0;
  int64_t wanted = 0;
};

// Along the tensor dim of `cut`, a rank may take indices from all ranks whose coordinates differ
// from its own only on the mesh dims `sources`. Finds a rank whose interval after is not covered,
// each index once, by their intervals before. nullopt: there is none.
std::optional<Uncovered> FindUncovered(const MeshShape& mesh_shape, const CutChange& cut,
                                       absl::Span<const int> sources);

// Finds a rank whose box after is neither empty nor part of its box before, along all tensor dims
// together: what FindUncovered() finds with no sources may be empty along another tensor dim.
// nullopt: there is none.
struct Uncontained {
  int tensor_dim = 0;
  Uncovered uncovered;  // along that tensor dim
};
std::optional<Uncontained> FindUncontained(const MeshShape& mesh_shape, const Change& change);

struct Traffic {
  Int128 sent = 0;      // the most bytes that a rank sends
  Int128 received = 0;  // the most bytes that a rank receives
  // Each message, and each part that a rank keeps, is contiguous in the sender's box; in the
  // receiver's box.
  bool sent_contiguous = true;
  bool received_contiguous = true;
};

// For all_to_all and exchange. REQUIRES: FindUncovered found nothing.
Traffic TrafficOfExchange(const MeshShape& mesh_shape, const State& before, const State& after,
                          const Change& change);

// For permute, by index in Change::moving: the sender's coordinate on moving[i] is the receiver's
// on mesh dim sources[i]. nullopt unless the cuts before and after have equal sizes pairwise.
using Sources = absl::InlinedVector<int, 4>;
std::optional<Sources> SourcesOfPermute(const MeshShape& mesh_shape, const Change& change);
Traffic TrafficOfPermute(const MeshShape& mesh_shape, const State& before, const Change& change,
                         const Sources& sources);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_BOXES_H_
