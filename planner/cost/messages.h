// Counts the messages of an all_to_all or exchange: the most bytes that any rank sends, the most
// that any receives, and the most messages of any. These maxima may belong to different ranks.
// There are three ways to count: in closed form if all pieces are equal and nest (cost_even.cc);
// rank by rank, for groups of at most 256 ranks and for ragged cuts (cost_messages.cc); else by
// branch and bound (cost_many_ranks.cc). Permutes are counted in cost_messages.cc, in none of these
// ways. After the problem's work budget is spent, counts may be too small. Not for collectives with
// one block per member (cost_blocks.cc). Internal to the cost model.
//
//   const Moves moves(problem, cuts_before, cuts_after, item_bytes);
//   if (even && CountEven(moves, &traffic)) return;           // `even`: that of IsEven()
//   if (moves.ranks > 256 && !moves.ragged) CountByBounds(moves, &traffic);
//
// A rank's interval along one tensor dim depends only on its coordinates on that dim's cuts. So the
// volume of a box is a product over tensor dims. The sum of the volumes over all receivers is such
// a product too, if the receivers' coordinates vary freely. The cuts that stay may leave several
// lengths along a tensor dim. Each combination of these lengths is counted by itself.
#ifndef MESHIFT_PLANNER_COST_MESSAGES_H_
#define MESHIFT_PLANNER_COST_MESSAGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost.h"
#include "planner/graph/geometry.h"
#include "planner/graph/state.h"

namespace meshift::cost_internal {

// One step, as the lists of cuts of each tensor dim before and after it. The common prefix of the
// two lists stays; the cuts after the prefix move.
struct Moves {
  // Keeps references to the problem and the cuts.
  Moves(const Problem& problem, const CutLists& before, const CutLists& after, int64_t item_bytes);

  // Whether a cut of tensor dim k moves.
  bool Moving(int k) const {
    return changes.common[k] < before.of[k].size || changes.common[k] < after.of[k].size;
  }
  // Bytes of a volume along the tensor dims that move. Saturates.
  int64_t Bytes(__int128 items) const {
    const __int128 product = items * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  }

  const Problem& problem;
  const CutLists& before;
  const CutLists& after;
  const CutChanges changes;  // ranks that differ on `changes.from` hold different pieces
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;  // of all cuts that move
  int64_t ranks = 1;                                  // in a group over them
  // How many ranks receive the same box: those that differ only on mesh dims that no longer cut
  // after the step.
  int64_t copies = 1;
  bool ragged = false;
  // By tensor dim: the nonzero lengths under the cuts that stay, the longest first.
  absl::InlinedVector<Lengths, 6> wholes;
  int64_t still;         // bytes of an item, times the items along tensor dims that do not move
  bool is_huge = false;  // the items of all receivers together do not fit into 64 bits
};

// A `Dim` for each tensor dim that moves and each length under the cuts that stay.
template <typename Dim>
class MovingTensorDims {
 public:
  using Choice = absl::InlinedVector<const Dim*, 4>;

  explicit MovingTensorDims(const Moves& moves) {
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

// Set the most bytes and messages of any rank, and whether messages are packed. REQUIRES: an
// all_to_all or exchange that moves something, and a tensor with elements.
//
// CountEven() REQUIRES: along each tensor dim that moves, all pieces before have one length, and so
// have all pieces after (IsEven() in planner/graph/transitions.h). It does not check this. It
// returns false, and sets nothing, unless each moving cut before makes pieces whose length is a
// multiple or a divisor of those of each moving cut after. It returns false, too, if the cuts that
// stay leave several lengths along a moving tensor dim. CountByBounds() REQUIRES: no moving cut is
// ragged.
bool CountEven(const Moves& moves, Traffic* traffic);
void CountByBounds(const Moves& moves, Traffic* traffic);

}  // namespace meshift::cost_internal

#endif  // MESHIFT_PLANNER_COST_MESSAGES_H_
