// What a step moves by messages, and three ways to count them: where all pieces are alike in closed
// form (cost_even.cc), else rank by rank (cost_messages.cc), or, among many ranks, by bounds
// (cost_many_ranks.cc). Internal to the cost model.
//
//   const Moves moves(problem, cuts_before, cuts_after, item_bytes);
//   CountEven(moves, &traffic) || ...;
//
// Along one tensor dim a rank's interval depends on the coordinates of that dim's cuts alone, so a
// box's volume is a product over tensor dims, and so is a sum over all receivers whose coordinates
// vary freely. The box of the cuts that stay may have several lengths along a tensor dim: each
// combination of them is a choice of its own.
#ifndef MESHIFT_PLANNER_COST_MESSAGES_H_
#define MESHIFT_PLANNER_COST_MESSAGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost.h"
#include "planner/graph/geometry.h"
#include "planner/graph/state.h"

namespace meshift::cost_internal {

struct Moves {
  // Keeps references to all of them.
  Moves(const Problem& problem, const CutLists& before, const CutLists& after, int64_t item_bytes);

  bool Moving(int k) const {
    return changes.common[k] < before.of[k].size || changes.common[k] < after.of[k].size;
  }
  // Of a volume along the tensor dims that move.
  int64_t Bytes(__int128 items) const {
    const __int128 product = items * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  }

  const Problem& problem;
  const CutLists& before;
  const CutLists& after;
  const CutChanges changes;  // other coordinates on `changes.from` are other holders
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;  // of all that move
  int64_t ranks = 1;                                  // in a group over them
  int64_t copies = 1;  // receivers alike but for coordinates that cut nothing after
  bool ragged = false;
  // By tensor dim: the lengths, but 0, of the box of the cuts that stay, the longest first.
  absl::InlinedVector<Lengths, 6> wholes;
  int64_t still;         // bytes of an item, times the items along tensor dims that do not move
  bool is_huge = false;  // what all receivers take together does not fit into 64 bits
};

// `Dim`, for each tensor dim that moves and each length of the box that stays.
template <typename Dim>
class MovingDims {
 public:
  using Choice = absl::InlinedVector<const Dim*, 4>;

  explicit MovingDims(const Moves& moves) {
    bool is_long = false;  // messages have more than one index along some dim so far
    for (int k = 0; k < moves.problem.tensor_rank(); ++k) {
      bool longer = moves.wholes[k].front() > 1;
      if (moves.Moving(k)) {
        longer = false;
        dims_.emplace_back();
        for (const int64_t whole : moves.wholes[k]) {
          const Dim& dim =
              dims_.back().emplace_back(moves.problem, moves.before.of[k], moves.after.of[k],
                                        moves.changes.common[k], moves.changes.from, whole);
          send_packs_ |= is_long && dim.splits_old();
          receive_packs_ |= is_long && dim.splits_new();
          longer |= dim.longest() > 1;
        }
      }
      is_long |= longer;
    }
  }

  // By tensor dim and length.
  const auto& dims() const { return dims_; }
  // Calls fn(choice) for every combination of lengths, the longest first, until it returns false.
  template <typename Fn>
  void ForEachChoice(const Fn& fn) const {
    Choice choice(dims_.size());
    absl::InlinedVector<size_t, 4> index(dims_.size(), 0);
    while (true) {
      for (size_t i = 0; i < dims_.size(); ++i) choice[i] = &dims_[i][index[i]];
      if (!fn(choice)) return;
      size_t i = dims_.size();
      while (i > 0 && ++index[i - 1] == dims_[i - 1].size()) index[--i] = 0;
      if (i == 0) return;
    }
  }
  void SetPacks(Traffic* traffic) const {
    traffic->send_packs = send_packs_;
    traffic->receive_packs = receive_packs_;
  }

 private:
  absl::InlinedVector<absl::InlinedVector<Dim, 2>, 4> dims_;
  bool send_packs_ = false;
  bool receive_packs_ = false;
};

// Of an all_to_all or an exchange that moves something: the worst rank's bytes and messages, and
// what is packed. CountEven: false where pieces are not all alike, and whole parts of each other;
// CountByBounds: REQUIRES: nothing that moves is ragged.
bool CountEven(const Moves& moves, Traffic* traffic);
void CountByBounds(const Moves& moves, Traffic* traffic);

}  // namespace meshift::cost_internal

#endif  // MESHIFT_PLANNER_COST_MESSAGES_H_
