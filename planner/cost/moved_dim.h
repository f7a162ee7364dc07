// One tensor dim on which something moves, piece by piece.
//
//   const MovedDim dim(problem, before, after, common, cut_before, extent);
//   MovedDim::Place place;                  // of the rank whose coordinates are all 0
//   place.Move(dim.StrideOf(d), 1);         // ... all but 1 on mesh dim d
//   dim.At(place).own;                      // what that rank keeps
//
// Takes time and memory in proportion to pieces; for very many there is MovedBounds. Internal to
// the cost model.
#ifndef MESHIFT_PLANNER_COST_MOVED_DIM_H_
#define MESHIFT_PLANNER_COST_MOVED_DIM_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"
#include "planner/cost/cost_cuts.h"
#include "planner/graph/geometry.h"
#include "planner/graph/state.h"

namespace meshift {

// For one length of the parent box along it. Pieces are in ascending order; a piece's index is the
// row-major index of its cuts' coordinates.
class MovedDim {
 public:
  using Dims = absl::InlinedVector<int, kMaxStateDims>;
  using Counts = absl::InlinedVector<int64_t, 32>;  // as many as small groups have pieces

  // A rank, by what it has along this dim: its piece before, its piece after, and the receivers of
  // the former. Each number is a sum over the rank's coordinates.
  struct Place {
    int64_t before = 0;
    int64_t after = 0;
    int64_t sent = 0;
    void Move(const Place& stride, int64_t by) {
      before += stride.before * by;
      after += stride.after * by;
      sent += stride.sent * by;
    }
  };

  // The cuts before and after, of which the first `common` do not move. `spread`: the mesh dims
  // whose coordinates a sender's receivers may differ in.
  MovedDim(const Problem& problem, const CutLists::List& before, const CutLists::List& after,
           int common, DimMask spread, int64_t extent)
      : problem_(problem),
        before_(before.dims.begin() + common, before.dims.begin() + before.size),
        after_(after.dims.begin() + common, after.dims.begin() + after.size),
        old_pieces_(AllPieces(problem, before, common, extent)),
        new_pieces_(AllPieces(problem, after, common, extent)) {
    int64_t num_fixed = 1;  // coordinates after the step that all of a sender's receivers share
    int64_t stride = 1;
    for (size_t i = after_.size(); i-- > 0; stride *= problem.size(after_[i])) {
      strides_[after_[i]].after = stride;
      if (HasDim(spread, after_[i])) continue;
      strides_[after_[i]].sent = num_fixed;
      num_fixed *= problem.size(after_[i]);
    }
    stride = 1;
    for (size_t i = before_.size(); i-- > 0; stride *= problem.size(before_[i])) {
      strides_[before_[i]].before = stride;
      strides_[before_[i]].sent += stride * num_fixed;
    }
    const PieceList& old_pieces = old_pieces_;
    const PieceList& new_pieces = new_pieces_;
    sent_.resize(old_pieces.size() * num_fixed);
    sent_messages_.resize(old_pieces.size() * num_fixed);
    received_messages_.resize(new_pieces.size());
    for (size_t b = 0, a = 0; b < old_pieces.size() && a < new_pieces.size();) {
      if (const int64_t overlap = Overlap(old_pieces[b], new_pieces[a]); overlap > 0) {
        longest_ = std::max(longest_, overlap);
        splits_old_ |= overlap < old_pieces[b].Length();
        splits_new_ |= overlap < new_pieces[a].Length();
        const size_t at =
            b * num_fixed + (num_fixed == 1 ? 0 : FixedIndex(static_cast<int64_t>(a), spread));
        sent_[at] += overlap;
        ++sent_messages_[at];
        ++received_messages_[a];
      }
      // On to the next of whichever ends first; of both, as long as there is an old one.
      const bool both = old_pieces[b].end == new_pieces[a].end && b + 1 < old_pieces.size();
      if (old_pieces[b].end < new_pieces[a].end || both) {
        ++b;
      } else {
        ++a;
      }
    }
  }

  const Dims& before() const { return before_; }
  const Dims& after() const { return after_; }
  int64_t longest() const { return longest_; }  // that a message is along this dim
  // The most of any rank: what receivers take, its piece after, and in how many parts.
  int64_t most_sent() const { return Most(sent_); }
  int64_t most_after() const {
    int64_t most = 0;
    for (const Interval& piece : new_pieces_) most = std::max(most, piece.Length());
    return most;
  }
  int64_t most_sent_messages() const { return Most(sent_messages_); }
  int64_t most_received_messages() const { return Most(received_messages_); }
  // Whether some message has less than the piece before it is from, the piece after it is for.
  bool splits_old() const { return splits_old_; }
  bool splits_new() const { return splits_new_; }

  // What a rank's Place gains where its coordinate of mesh dim d grows by 1.
  const Place& StrideOf(int d) const { return strides_[d]; }
  // For the rank there, along this dim: its piece before, its piece after, what both have in
  // common, and how much of the former receivers take, in how many parts.
  struct View {
    int64_t before, after, own, sent, sent_messages, received_messages;
  };
  ABSL_ATTRIBUTE_ALWAYS_INLINE View At(const Place& place) const {
    const Interval& b = old_pieces_[place.before];
    const Interval& a = new_pieces_[place.after];
    return {b.Length(),
            a.Length(),
            Overlap(b, a),
            sent_[place.sent],
            sent_messages_[place.sent],
            received_messages_[place.after]};
  }

 private:
  static int64_t Most(const Counts& counts) {
    return *std::max_element(counts.begin(), counts.end());
  }
  // Of the new piece `index`: its part of Place::sent.
  size_t FixedIndex(int64_t index, DimMask spread) const {
    int64_t fixed = 0;
    for (size_t i = after_.size(); i-- > 0;) {
      const int64_t n = problem_.size(after_[i]);
      const int64_t digit = index % n;
      index /= n;
      if (!HasDim(spread, after_[i])) fixed += digit * strides_[after_[i]].sent;
    }
    return static_cast<size_t>(fixed);
  }

  const Problem& problem_;
  Dims before_;
  Dims after_;
  const PieceList old_pieces_;
  const PieceList new_pieces_;
  std::array<Place, kMaxStateDims> strides_ = {};  // by mesh dim
  Counts sent_;  // by old piece, and coordinates where a sender's receivers share its own
  Counts sent_messages_;
  Counts received_messages_;  // by new piece
  int64_t longest_ = 0;
  bool splits_old_ = false;
  bool splits_new_ = false;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_MOVED_DIM_H_
