// Implements CostModel::MeasureMessages() and LengthsOf() of cost.h, and Moves of messages.h.
// cost_even.cc counts an all_to_all or exchange first, if it can. This file counts the others rank
// by rank, if the group has at most 256 ranks or a cut is ragged, and leaves the rest to
// cost_many_ranks.cc. For a permute it finds only the largest box that moves. The headers have the
// limits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/messages.h"

namespace meshift {

namespace cost_internal {
namespace {

// The largest group whose ranks are counted one by one; with ragged cuts, there is no limit.
constexpr int64_t kFewRanks = 256;
// Work of a counted rank, and of a listed piece.
constexpr int64_t kRankWork = 2;
constexpr int64_t kPieceWork = 4;

// Bytes of the largest box that a permute moves. Each rank sends one box and receives one, or keeps
// its own. A rank's box moves if its coordinates differ on a pair of mesh dims that trade places.
// The first piece of a ceil cut is the longest, the second the next longest, and a smaller box
// stays smaller under further cuts. So some largest box that moves has the longest piece on all
// mesh dims of the cuts before, except for the second longest on one of them at most.
int64_t LargestThatMoves(const Moves& moves) {
  using Coordinates = std::array<int64_t, kMaxStateDims>;
  Coordinates largest = {};
  Coordinates next;
  next.fill(1);
  absl::InlinedVector<MovedMeshDims, 4> moved;
  for (int k = 0; k < moves.problem.tensor_rank(); ++k) {
    const CutLists::List& before = moves.before.of[k];
    const CutLists::List& after = moves.after.of[k];
    const int common = moves.changes.common[k];
    moved.push_back({{before.dims.begin() + common, before.dims.begin() + before.size},
                     {after.dims.begin() + common, after.dims.begin() + after.size}});
    if (common > 0 || before.outermost == CutSizes::kCeil) continue;
    const int d = before[0];
    const Cut cut = CutOf(moves.problem, before, 0);
    const auto longer = [&](int64_t i, int64_t j) {
      return cut.Piece({}, i).Length() > cut.Piece({}, j).Length();
    };
    if (longer(1, 0)) std::swap(largest[d], next[d]);
    for (int64_t i = 2; i < cut.size; ++i) {
      if (longer(i, next[d])) next[d] = i;
      if (longer(next[d], largest[d])) std::swap(largest[d], next[d]);
    }
  }
  int64_t most = 0;
  const auto look_at = [&](const Coordinates& at) {
    __int128 items = 1;
    for (int k = 0; k < moves.problem.tensor_rank(); ++k) {
      if (!moves.Moving(k)) continue;
      Interval piece{0, moves.wholes[k].front()};
      for (int i = moves.changes.common[k]; i < moves.before.of[k].size; ++i) {
        piece = CutOf(moves.problem, moves.before.of[k], i).Piece(piece, at[moves.before.of[k][i]]);
      }
      items *= piece.Length();
    }
    most = std::max(most, moves.Bytes(items));
  };
  const auto size_of = [&](int d) { return moves.problem.size(d); };
  for (const auto& [d, e] : PermutePairs(moved, size_of)) {
    if (d == e) continue;
    if (largest[d] != largest[e]) look_at(largest);
    for (const int other : {d, e}) {
      if (largest[d] != largest[e]) continue;
      Coordinates at = largest;
      at[other] = next[other];
      look_at(at);
    }
  }
  return most;
}

// One tensor dim on which something moves, for one length under the cuts that stay. Pieces may be
// ragged; all of them are listed. A piece's index is the row-major index of its coordinates on the
// cuts, which is also its order along the tensor dim.
class MovedPieces {
 public:
  using Counts = absl::InlinedVector<int64_t, 32>;  // enough for the pieces of small groups

  // The indices of a rank along this dim: of its piece before, of its piece after, and in sent_.
  // Each is a sum over the rank's coordinates.
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

  // The first `common` cuts before and after stay. `spread`: the mesh dims on which a sender's
  // receivers may have any coordinate. On the others, the fixed ones, they share the sender's.
  MovedPieces(const Problem& problem, const CutLists::List& before, const CutLists::List& after,
              int common, DimMask spread, int64_t extent)
      : old_pieces_(AllPieces(extent, NestOf(problem, before, common, before.size))),
        new_pieces_(AllPieces(extent, NestOf(problem, after, common, after.size))) {
    int64_t num_fixed = 1;  // coordinates after the step that all of a sender's receivers share
    int64_t stride = 1;
    for (int i = after.size; i-- > common; stride *= problem.size(after[i])) {
      strides_[after[i]].after = stride;
      if (HasDim(spread, after[i])) continue;
      strides_[after[i]].sent = num_fixed;
      num_fixed *= problem.size(after[i]);
    }
    stride = 1;
    for (int i = before.size; i-- > common; stride *= problem.size(before[i])) {
      strides_[before[i]].before = stride;
      strides_[before[i]].sent += stride * num_fixed;
    }
    // The part of Place::sent for a new piece: its fixed digits.
    const auto fixed_index = [&](size_t index) {
      int64_t fixed = 0;
      for (int i = after.size; i-- > common;) {
        const int64_t n = problem.size(after[i]);
        const auto digit = static_cast<int64_t>(index) % n;
        index /= n;
        if (!HasDim(spread, after[i])) fixed += digit * strides_[after[i]].sent;
      }
      return static_cast<size_t>(fixed);
    };
    sent_.resize(old_pieces_.size() * num_fixed);
    sent_messages_.resize(old_pieces_.size() * num_fixed);
    received_messages_.resize(new_pieces_.size());
    for (size_t b = 0, a = 0; b < old_pieces_.size() && a < new_pieces_.size();) {
      if (const int64_t overlap = CommonIndices(old_pieces_[b], new_pieces_[a]); overlap > 0) {
        longest_ = std::max(longest_, overlap);
        splits_old_ |= overlap < old_pieces_[b].Length();
        splits_new_ |= overlap < new_pieces_[a].Length();
        const size_t at = b * num_fixed + (num_fixed == 1 ? 0 : fixed_index(a));
        sent_[at] += overlap;
        ++sent_messages_[at];
        ++received_messages_[a];
      }
      // Advance to the next of the list whose piece ends first; in both lists if the ends are equal
      // and another old piece follows.
      const bool both = old_pieces_[b].end == new_pieces_[a].end && b + 1 < old_pieces_.size();
      if (old_pieces_[b].end < new_pieces_[a].end || both) {
        ++b;
      } else {
        ++a;
      }
    }
  }

  int64_t longest() const { return longest_; }  // message along this dim
  // Whether some message is shorter than its piece before; than its piece after.
  bool splits_old() const { return splits_old_; }
  bool splits_new() const { return splits_new_; }

  // The increase of a rank's Place when its coordinate on mesh dim d increases by 1.
  const Place& StrideOf(int d) const { return strides_[d]; }
  // A rank along this dim: the length of its piece after, the part of that in its piece before, the
  // length of its piece before that receivers take, and the numbers of parts sent and received.
  struct View {
    int64_t after, own, sent, sent_messages, received_messages;
  };
  ABSL_ATTRIBUTE_ALWAYS_INLINE View At(const Place& place) const {
    const Interval& piece = new_pieces_[place.after];
    return {piece.Length(), CommonIndices(old_pieces_[place.before], piece), sent_[place.sent],
            sent_messages_[place.sent], received_messages_[place.after]};
  }
  // Raises each field to at least its maximum over all ranks.
  void Raise(View* view) const {
    const auto raise = [](int64_t* most, const Counts& counts) {
      *most = std::max(*most, *std::max_element(counts.begin(), counts.end()));
    };
    for (const Interval& piece : new_pieces_) view->after = std::max(view->after, piece.Length());
    view->own = std::max(view->own, longest_);
    raise(&view->sent, sent_);
    raise(&view->sent_messages, sent_messages_);
    raise(&view->received_messages, received_messages_);
  }

 private:
  const PieceList old_pieces_;
  const PieceList new_pieces_;
  std::array<Place, kMaxStateDims> strides_ = {};  // by mesh dim
  Counts sent_;  // by old piece and coordinates on fixed mesh dims
  Counts sent_messages_;
  Counts received_messages_;  // by new piece
  int64_t longest_ = 0;
  bool splits_old_ = false;
  bool splits_new_ = false;
};

using MovingPieces = MovingTensorDims<MovedPieces>;

// Calls fn(places) for every rank of a group, with its Place along each tensor dim, until fn
// returns false or the budget is spent. Returns whether it got to the end.
template <typename Fn>
bool ForEachRank(const Moves& moves, const MovingPieces::Choice& choice, const Fn& fn) {
  std::array<int64_t, kMaxStateDims> at = {};
  absl::InlinedVector<MovedPieces::Place, 4> places(choice.size());
  const auto move = [&](int d, int64_t by) {
    at[d] += by;
    for (size_t i = 0; i < choice.size(); ++i) places[i].Move(choice[i]->StrideOf(d), by);
  };
  while (true) {
    if (!moves.problem.Charge(kRankWork) || !fn(places)) return false;
    size_t i = moves.mesh_dims.size();
    for (; i > 0; --i) {
      const int d = moves.mesh_dims[i - 1];
      if (at[d] + 1 < moves.problem.size(d)) break;
      move(d, -at[d]);
    }
    if (i == 0) return true;
    move(moves.mesh_dims[i - 1], 1);
  }
}

// The volumes of a rank, or their maxima over ranks: products over tensor dims.
template <typename Items>
struct Volumes {
  explicit Volumes(int64_t copies) : sent(copies), sent_messages(copies) {}
  void Times(const MovedPieces::View& view) {
    sent *= view.sent;
    received *= view.after;
    own *= view.own;
    sent_messages *= view.sent_messages;
    received_messages *= view.received_messages;
  }

  Items sent;
  Items received = 1;
  Items own = 1;
  int64_t sent_messages;
  int64_t received_messages = 1;
};

template <typename Items>
void CountRankByRank(const Moves& moves, const MovingPieces& moving, Traffic* traffic) {
  // Upper bounds for any rank. The loop ends as soon as all of them are reached.
  Volumes<Items> most(moves.copies);
  for (const auto& dims : moving.dims()) {
    MovedPieces::View largest = {};
    for (const MovedPieces& dim : dims) dim.Raise(&largest);
    most.Times(largest);
  }
  const int64_t most_messages = std::max(most.sent_messages, most.received_messages);
  Items sent = 0;
  Items received = 0;
  Items kept = 0;
  int64_t messages = 0;
  moving.ForEachChoice([&](const MovingPieces::Choice& choice) {
    return ForEachRank(moves, choice, [&](const auto& places) {
      Volumes<Items> rank(moves.copies);
      for (size_t i = 0; i < choice.size(); ++i) rank.Times(choice[i]->At(places[i]));
      sent = std::max(sent, rank.sent - rank.own);
      received = std::max(received, rank.received - rank.own);
      kept = std::max(kept, rank.own);
      messages = std::max(
          messages, std::max(rank.sent_messages, rank.received_messages) - (rank.own > 0 ? 1 : 0));
      return sent < most.sent || received < most.received || kept < most.own ||
             messages < most_messages;
    });
  });
  traffic->bytes_sent = moves.Bytes(sent);
  traffic->bytes_received = moves.Bytes(received);
  traffic->bytes_kept = moves.Bytes(kept);
  traffic->messages = messages;
}

void CountRankByRank(const Moves& moves, Traffic* traffic) {
  for (int k = 0; k < moves.problem.tensor_rank(); ++k) {
    if (!moves.Moving(k)) continue;
    int64_t pieces = 0;  // MovedPieces lists all of them
    for (const CutLists* cuts : {&moves.before, &moves.after}) {
      const CutLists::List& list = cuts->of[k];
      const Nest nest = NestOf(moves.problem, list, moves.changes.common[k], list.size);
      pieces = SaturatingAdd(pieces, NumPieces(nest));
    }
    const int64_t work = SaturatingMul(kPieceWork, pieces);
    if (!moves.problem.Charge(work, std::ssize(moves.wholes[k]))) return;
  }
  const MovingPieces moving(moves);
  moving.SetPacks(traffic);
  moves.is_huge ? CountRankByRank<__int128>(moves, moving, traffic)
                : CountRankByRank<int64_t>(moves, moving, traffic);
}

}  // namespace

Moves::Moves(const Problem& p, const CutLists& b, const CutLists& a, int64_t item_bytes)
    : problem(p), before(b), after(a), changes(p, b, a), still(item_bytes) {
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!HasDim(changes.from | changes.to, d)) continue;
    mesh_dims.push_back(d);
    ranks *= problem.size(d);
    if (!HasDim(changes.to, d)) copies *= problem.size(d);
  }
  __int128 all = problem.mesh().NumRanks();
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const int common = changes.common[k];
    Lengths& lengths = wholes.emplace_back(
        PieceLengths(problem.extent(k), NestOf(problem, before.of[k], 0, common)));
    if (lengths.size() > 1 && lengths.back() == 0) lengths.pop_back();
    if (!Moving(k)) {
      still *= lengths.front();
      continue;
    }
    all *= lengths.front();
    ragged |= common == 0 && (before.of[k].outermost != CutSizes::kCeil ||
                              after.of[k].outermost != CutSizes::kCeil);
  }
  is_huge = all > INT64_MAX;
}

}  // namespace cost_internal

void CostModel::MeasureMessages(StepOp op, const CutLists& before, const CutLists& after, bool even,
                                int64_t item_bytes, Traffic* traffic) const {
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return;
  }
  const cost_internal::Moves moves(problem_, before, after, item_bytes);
  if (op == StepOp::kPermute) {
    traffic->bytes_sent = cost_internal::LargestThatMoves(moves);
    traffic->bytes_received = traffic->bytes_sent;
    traffic->messages = traffic->bytes_sent > 0 ? 1 : 0;
    return;
  }
  if (even && CountEven(moves, traffic)) return;
  if (moves.ranks <= cost_internal::kFewRanks || moves.ragged) {
    cost_internal::CountRankByRank(moves, traffic);
  } else {
    CountByBounds(moves, traffic);
  }
}

const CostModel::MovedLengths& CostModel::LengthsOf(int k, const CutLists::List& before,
                                                    const CutLists::List& after) const {
  // Key: 4 bits of k; for each list 4 bits of size, 2 bits of `outermost`, and 3 bits per mesh dim.
  static_assert(kMaxTensorRank <= 16 && kMaxStateDims == 8);
  uint64_t key = static_cast<uint64_t>(k);
  for (const CutLists::List* list : {&before, &after}) {
    key = key << 6 | static_cast<uint64_t>(list->size << 2 | static_cast<int>(list->outermost));
    for (int i = 0; i < list->size; ++i) key = key << 3 | static_cast<uint64_t>((*list)[i]);
    key <<= 3 * (kMaxStateDims - list->size);
  }
  const auto [at, is_new] = lengths_.try_emplace(key);
  if (!is_new) return at->second;
  const int common = CommonLength(before, after);
  for (const int64_t whole :
       PieceLengths(problem_.extent(k), NestOf(problem_, before, 0, common))) {
    const cost_internal::MovedPieces dim(problem_, before, after, common, ~DimMask{0}, whole);
    at->second.longest = std::max(at->second.longest, dim.longest());
    at->second.splits_before |= dim.splits_old();
    at->second.splits_after |= dim.splits_new();
  }
  return at->second;
}

}  // namespace meshift
