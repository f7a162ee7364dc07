// One tensor dim on which something moves, among many ranks: what ranks have of it at most.
//
//   const MovedBounds dim(problem, before, after, common, cut_before, extent);
//   dim.Over(at, at, true).own;             // what the rank with these coordinates keeps
//   dim.Over(first, last, false).sent;      // of ranks between, none has more taken
//
// Like MovedDim, but without lists of pieces, whatever their number: cuts are not ragged here.
// Internal to the cost model.
#ifndef MESHIFT_PLANNER_COST_MOVED_BOUNDS_H_
#define MESHIFT_PLANNER_COST_MOVED_BOUNDS_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost_cuts.h"
#include "planner/cost/nested_cuts.h"
#include "planner/graph/state.h"

namespace meshift {

class MovedBounds {
 public:
  using Dims = absl::InlinedVector<int, kMaxStateDims>;
  using Coordinates = std::array<int64_t, kMaxStateDims>;  // by mesh dim
  // By mesh dim, the coordinates with which runs (NestedCuts) begin.
  using Runs = std::array<absl::InlinedVector<int64_t, 16>, kMaxStateDims>;

  // The cuts before and after, of which the first `common` do not move, of a box that is so long.
  // `spread`: the mesh dims whose coordinates a sender's receivers may differ in.
  MovedBounds(const Problem& problem, const CutLists::List& before, const CutLists::List& after,
              int common, DimMask spread, int64_t extent);

  void AddRuns(Runs* runs) const;
  // Adds the coordinates of some ranks that have the most messages, as far as this dim goes.
  void AddBusy(Runs* coordinates) const;

  // How long a message is. The most of any rank: what receivers take, its piece after, and in how
  // many parts.
  int64_t longest() const { return longest_; }
  int64_t most_sent() const { return most_sent_; }
  int64_t most_after() const { return new_cuts_.First(); }
  int64_t most_sent_messages() const { return most_sent_messages_; }
  int64_t most_received_messages() const { return most_received_messages_; }
  // Whether some message has less than the piece before it is from, the piece after it is for.
  bool splits_old() const { return splits_old_; }
  bool splits_new() const { return splits_new_; }
  // Whether the only receiver with a rank's coordinates on mesh dims that cut anew is the rank
  // itself, so that it keeps what each receiver takes.
  bool KeepsWhatItSends() const { return keeps_what_it_sends_; }

  // Of the rank with these coordinates, its piece before.
  int64_t Before(const Coordinates& at) const;

  // Of ranks whose coordinates are in a box, ends included: no rank's piece after is longer, of no
  // piece before do receivers take more, or in more parts, no piece after comes in more. None keeps
  // less than `own`. Of a single rank that is what it has.
  struct Bounds {
    int64_t after = 0;
    int64_t sent = 0;
    int64_t sent_messages = 0;
    int64_t received_messages = 0;
    int64_t own = 0;
  };
  // `one_run`: all coordinates of each mesh dim are in one run.
  Bounds Over(const Coordinates& first, const Coordinates& last, bool one_run) const;

  // How far a rank's pieces come from where they are if its coordinate changes so, in parts of
  // 2^-40 of the whole; 0 where cuts are only made, or only taken away.
  int64_t Reach(int d, int64_t first, int64_t last) const;

 private:
  using Digits = NestedCuts::Digits;
  bool IsFixed(int d) const { return !HasDim(spread_, d); }
  int64_t LeastOwn(const Coordinates& first, const Coordinates& last) const;

  const DimMask spread_;
  Dims before_;
  Dims after_;
  NestedCuts old_cuts_;
  NestedCuts new_cuts_;
  bool keeps_what_it_sends_ = true;
  Digits busy_sender_ = {};  // pieces with the most messages, and what the receivers of the former
  Digits busy_receiver_ = {};  // have in common
  Digits shared_ = {};
  int64_t longest_ = 0;
  int64_t most_sent_ = 0;
  int64_t most_sent_messages_ = 0;
  int64_t most_received_messages_ = 0;
  bool splits_old_ = false;
  bool splits_new_ = false;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_MOVED_BOUNDS_H_
