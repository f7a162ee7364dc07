// Collectives made of messages: all_to_all, permute, exchange.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "planner/cost.h"
#include "planner/cost_cuts.h"
#include "planner/geometry.h"

namespace meshift {

using cost_internal::CommonBeginning;
using cost_internal::Has;
using cost_internal::IsRaggedBehind;

namespace {

// Coordinates of one mesh dim that are looked at for the worst rank of an exchange.
constexpr int64_t kMaxCoordinates = 16;

// One tensor dim on which something moves, for one length of the parent box along it. Pieces are in
// ascending order; a piece's index is the row-major index of its cuts' coordinates.
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
      if (Has(spread, after_[i])) continue;
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
      if (!Has(spread, after_[i])) fixed += digit * strides_[after_[i]].sent;
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

// The most that a rank has, each over all ranks that were looked at.
template <typename Items>
struct Worst {
  Items sent = 0;
  Items received = 0;
  Items kept = 0;
  int64_t messages = 0;
};

// Coordinates of a mesh dim that are looked at.
using Coordinates = absl::InlinedVector<int64_t, kMaxCoordinates>;

// All of a small dim, or if `all`. Of a large one the ends and the middle, and where the pieces
// that it cuts become short or empty: `turns`, of every cut by it.
Coordinates WorthALook(int64_t n, bool all, absl::Span<const int64_t> turns) {
  Coordinates list;
  if (all || n <= kMaxCoordinates) {
    for (int64_t i = 0; i < n; ++i) list.push_back(i);
    return list;
  }
  const auto around = [&](int64_t middle) {
    for (int64_t i = middle - 1; i <= middle + 1; ++i) {
      if (i >= 0 && i < n) list.push_back(i);
    }
  };
  for (const int64_t i : {int64_t{1}, n / 2, n - 2}) around(i);
  for (const int64_t i : turns) around(i);
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

// Adds to turns[d] where the pieces of lengths `extents` that mesh dim d cuts anew become short or
// empty, for each of the cuts of `list` behind the first `common`.
void AddTurns(const Problem& problem, const CutLists::List& list, int common,
              const Extents& parents, std::array<Coordinates, kMaxStateDims>* turns) {
  const auto is_large = [&](int d) { return problem.size(d) > kMaxCoordinates; };
  if (std::none_of(list.dims.begin() + common, list.dims.begin() + list.size, is_large)) return;
  Extents extents = parents;
  for (int i = common; i < list.size; ++i) {
    const int64_t n = problem.size(list[i]);
    if (i == 0 && list.outermost != CutSizes::kCeil) return;  // all coordinates are looked at
    Extents next;
    for (const int64_t extent : extents) {
      const int64_t chunk = CeilDiv(extent, n);
      if (n > kMaxCoordinates) (*turns)[list[i]].push_back(extent / chunk);
      for (const int64_t length : {chunk, extent % chunk}) {
        if (length > 0 && std::find(next.begin(), next.end(), length) == next.end()) {
          next.push_back(length);
        }
      }
    }
    extents = std::move(next);
  }
}

// Calls fn() at every combination of those coordinates of `dims`, until it returns false; whether
// it never did. `go_to(d, c)` makes c the coordinate of mesh dim d.
template <typename GoTo, typename Fn>
bool ForEachCoordinate(absl::Span<const int> dims, absl::Span<const Coordinates> lists,
                       const GoTo& go_to, const Fn& fn) {
  absl::InlinedVector<size_t, kMaxStateDims> index(dims.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) go_to(dims[i], lists[i][0]);
  while (true) {
    if (!fn()) return false;
    size_t i = dims.size();
    while (i > 0 && ++index[i - 1] == lists[i - 1].size()) {
      --i;
      index[i] = 0;
      go_to(dims[i], lists[i][0]);
    }
    if (i == 0) return true;
    go_to(dims[i - 1], lists[i - 1][index[i - 1]]);
  }
}

}  // namespace

// The worst rank's messages of an all_to_all, a permute or an exchange.
//
// Along one tensor dim a rank's interval depends on the coordinates of that dim's cuts alone, so a
// box's volume is a product over tensor dims, and so is a sum over all receivers whose coordinates
// vary freely. Only the rank itself is enumerated: its coordinates on the moving dims, and the
// lengths that the parent box can have.
void CostModel::MeasureMessages(StepOp op, const CutLists& cuts_before, const CutLists& cuts_after,
                                int64_t item_bytes, Traffic* traffic) const {
  const CutLists parent = CommonBeginning(problem_, cuts_before, cuts_after);
  DimMask cut_before = 0;  // moving cuts before the step: other coordinates are other holders
  DimMask cut_after = 0;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return;
    for (int i = parent.of[k].size; i < cuts_before.of[k].size; ++i) {
      cut_before |= DimMask{1} << cuts_before.of[k][i];
    }
    for (int i = parent.of[k].size; i < cuts_after.of[k].size; ++i) {
      cut_after |= DimMask{1} << cuts_after.of[k][i];
    }
  }
  // Times the items along tensor dims that nothing moves.
  int64_t still = item_bytes;
  absl::InlinedVector<absl::InlinedVector<MovedDim, 2>, 4> moved;  // by tensor dim and extent
  const bool packs = op != StepOp::kPermute;
  bool long_before = false;  // messages have more than one index along some dim before k
  bool ragged = false;       // the worst rank may be anywhere
  std::array<Coordinates, kMaxStateDims> turns;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const CutLists::List& list_before = cuts_before.of[k];
    const CutLists::List& list_after = cuts_after.of[k];
    const int common = parent.of[k].size;
    const Extents extents = ExtentsAfter(problem_, k, parent);
    if (list_before.size == common && list_after.size == common) {
      still *= extents.front();
      long_before |= extents.front() > 1;
      continue;
    }
    ragged |= IsRaggedBehind(parent.of[k], list_before) || IsRaggedBehind(parent.of[k], list_after);
    AddTurns(problem_, list_before, common, extents, &turns);
    AddTurns(problem_, list_after, common, extents, &turns);
    moved.emplace_back();
    bool is_long = false;
    for (int64_t extent : extents) {
      const MovedDim& dim =
          moved.back().emplace_back(problem_, list_before, list_after, common, cut_before, extent);
      is_long |= dim.longest() > 1;
      traffic->send_packs |= packs && long_before && dim.splits_old();
      traffic->receive_packs |= packs && long_before && dim.splits_new();
    }
    long_before |= is_long;
  }
  int64_t copies = 1;  // receivers alike but for coordinates that cut nothing after
  MovedDim::Dims moving;
  MovedDim::Dims only_before;  // sorted by size, then mesh order
  MovedDim::Dims only_after;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(cut_before | cut_after, d)) moving.push_back(d);
    if (Has(cut_before & ~cut_after, d)) {
      copies *= problem_.size(d);
      only_before.push_back(d);
    }
    if (Has(cut_after & ~cut_before, d)) only_after.push_back(d);
  }
  for (MovedDim::Dims* dims : {&only_before, &only_after}) {
    std::stable_sort(dims->begin(), dims->end(),
                     [&](int x, int y) { return problem_.size(x) < problem_.size(y); });
  }

  // Elements of all receivers together fit into 64 bits unless the tensor is huge; never are they
  // more than 2^31 ranks times 2^63.
  int64_t elements = problem_.mesh().NumRanks();
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    elements = SaturatingMul(elements, problem_.extent(k));
  }
  const bool fits = SaturatingMul(elements, item_bytes) < INT64_MAX;
  const auto bytes = [still](__int128 items) {
    const __int128 product = items * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  };
  std::array<int64_t, kMaxStateDims> at = {};
  absl::InlinedVector<const MovedDim*, 4> chosen(moved.size());
  absl::InlinedVector<MovedDim::Place, 4> places(moved.size());  // of the rank at `at`
  const auto go_to = [&](int d, int64_t coordinate) {
    const int64_t by = coordinate - at[d];
    at[d] = coordinate;
    for (size_t i = 0; i < chosen.size(); ++i) places[i].Move(chosen[i]->StrideOf(d), by);
  };
  // Every combination of the parent's lengths, at every combination of coordinates.
  absl::InlinedVector<Coordinates, 4> coordinates;
  for (int d : moving) {
    coordinates.push_back(WorthALook(problem_.size(d), ragged || options_.all_ranks, turns[d]));
    traffic->sampled |= std::ssize(coordinates.back()) < problem_.size(d);
  }
  const auto for_each_rank = [&](const auto& visit) {
    absl::InlinedVector<size_t, 4> index(moved.size(), 0);
    while (true) {
      for (size_t i = 0; i < moved.size(); ++i) chosen[i] = &moved[i][index[i]];
      if (!ForEachCoordinate(moving, coordinates, go_to, visit)) return;
      size_t i = moved.size();
      while (i > 0 && ++index[i - 1] == moved[i - 1].size()) index[--i] = 0;
      if (i == 0) return;
    }
  };
  if (op == StepOp::kPermute) {
    // One box out, one box in; nothing where the rank keeps its own.
    for_each_rank([&] {
      bool stays = true;
      int64_t volume = 1;
      for (size_t k = 0; k < chosen.size(); ++k) {
        volume *= chosen[k]->At(places[k]).before;
        for (size_t i = 0; i < chosen[k]->before().size(); ++i) {
          stays &= at[chosen[k]->before()[i]] == at[chosen[k]->after()[i]];
        }
      }
      for (size_t i = 0; i < only_after.size(); ++i) {
        stays &= at[only_after[i]] == at[only_before[i]];
      }
      if (stays || volume == 0) return true;
      traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(volume));
      traffic->bytes_received = traffic->bytes_sent;
      traffic->messages = 1;
      return true;
    });
    return;
  }
  const auto measure = [&](auto zero) {
    using Items = decltype(zero);
    Worst<Items> worst;
    // No rank can have more: where that is found, the rest need not be looked at.
    Worst<Items> most{static_cast<Items>(copies), 1, 1, 0};
    int64_t most_sent_messages = copies;
    int64_t most_received_messages = 1;
    for (const auto& dims : moved) {
      const auto times_most = [&dims](auto* product, const auto& of) {
        int64_t largest = 0;
        for (const MovedDim& dim : dims) largest = std::max(largest, of(dim));
        *product *= largest;
      };
      times_most(&most.sent, [](const MovedDim& dim) { return dim.most_sent(); });
      times_most(&most.received, [](const MovedDim& dim) { return dim.most_after(); });
      times_most(&most.kept, [](const MovedDim& dim) { return dim.longest(); });
      times_most(&most_sent_messages, [](const MovedDim& dim) { return dim.most_sent_messages(); });
      times_most(&most_received_messages,
                 [](const MovedDim& dim) { return dim.most_received_messages(); });
    }
    most.messages = std::max(most_sent_messages, most_received_messages);
    for_each_rank([&] {
      Items sent = copies;
      Items received = 1;
      Items own = 1;
      int64_t sent_messages = copies;
      int64_t received_messages = 1;
      for (size_t i = 0; i < chosen.size(); ++i) {
        const MovedDim::View view = chosen[i]->At(places[i]);
        sent *= view.sent;
        sent_messages *= view.sent_messages;
        received *= view.after;
        received_messages *= view.received_messages;
        own *= view.own;
      }
      worst.sent = std::max(worst.sent, sent - own);
      worst.received = std::max(worst.received, received - own);
      worst.kept = std::max(worst.kept, own);
      worst.messages =
          std::max(worst.messages, std::max(sent_messages, received_messages) - (own > 0 ? 1 : 0));
      const bool may_grow = worst.sent < most.sent || worst.received < most.received ||
                            worst.kept < most.kept || worst.messages < most.messages;
      traffic->sampled &= may_grow;
      return may_grow;
    });
    traffic->bytes_sent = bytes(worst.sent);
    traffic->bytes_received = bytes(worst.received);
    traffic->bytes_kept = bytes(worst.kept);
    traffic->messages = worst.messages;
  };
  fits ? measure(int64_t{0}) : measure(__int128{0});
}

}  // namespace meshift
