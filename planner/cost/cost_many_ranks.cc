// Implements CountByBounds() of planner/cost/messages.h: counts the messages of the worst rank
// among too many ranks to list. Not for ragged cuts.
//
// Finds the worst rank by branch and bound over boxes of coordinates. A box is dropped if no rank
// in it can exceed the ranks examined so far; otherwise it is halved, first where the length of the
// pieces changes. Bounds are products over tensor dims (MovedBounds). Usually a few boxes are
// enough: almost all ranks differ only in the items that they keep, and most keep nothing.
#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "placement/most_pieces.h"
#include "placement/nested_cuts.h"
#include "planner/cost/cost.h"
#include "planner/cost/messages.h"

namespace meshift::cost_internal {
namespace {

using Digits = NestedCuts::Digits;
using Coordinates = std::array<int64_t, kMaxStateDims>;  // by mesh dim
// By mesh dim, some coordinates: for example those at which runs begin (NestedCuts).
using SomeCoordinates = std::array<absl::InlinedVector<int64_t, 16>, kMaxStateDims>;
using Items = __int128;

// The cuts of a tensor dim that move, before a step or after it.
struct Side {
  Side(const Problem& problem, const CutLists::List& list, int common, int64_t extent)
      : dims(list.dims.begin() + common, list.dims.begin() + list.size),
        cuts(extent, NestOf(problem, list, common, list.size)) {}

  Digits DigitsOf(const Coordinates& at) const {
    Digits digits = {};
    for (size_t i = 0; i < dims.size(); ++i) digits[i] = at[dims[i]];
    return digits;
  }
  Interval PieceAt(const Coordinates& at) const { return cuts.Piece(DigitsOf(at)); }
  void AppendRunBegins(SomeCoordinates* runs) const {
    for (size_t i = 0; i < dims.size(); ++i) {
      cuts.AppendRunBegins(static_cast<int>(i), &(*runs)[dims[i]]);
    }
  }

  absl::InlinedVector<int, kMaxStateDims> dims;
  NestedCuts cuts;
};

// Upper bounds for ranks along one tensor dim on which something moves. REQUIRES: no ragged cuts.
class MovedBounds {
 public:
  // `spread`: the mesh dims on which a sender's receivers may have any coordinate. On the others,
  // the fixed ones, they share the sender's.
  MovedBounds(const Problem& problem, const CutLists::List& before, const CutLists::List& after,
              int common, DimMask spread, int64_t extent)
      : spread_(spread),
        before_(problem, before, common, extent),
        after_(problem, after, common, extent) {
    DimMask fixed = 0;  // by position in the list
    for (size_t i = 0; i < after_.dims.size(); ++i) {
      if (IsFixed(after_.dims[i])) fixed |= DimMask{1} << i;
      keeps_what_it_sends_ = keeps_what_it_sends_ && IsFixed(after_.dims[i]);
    }
    sent_ = FindMostPieces(before_.cuts, after_.cuts, fixed);
    received_ = FindMostPieces(after_.cuts, before_.cuts, 0);
    splits_old_ =
        sent_.pieces > 1 || (fixed != 0 && FindMostPieces(before_.cuts, after_.cuts, 0).pieces > 1);
  }

  void AppendRunBegins(SomeCoordinates* runs) const {
    before_.AppendRunBegins(runs);
    after_.AppendRunBegins(runs);
  }
  // Adds the coordinates of some ranks that have the most messages along this dim.
  void AddBusy(SomeCoordinates* coordinates) const {
    for (size_t i = 0; i < before_.dims.size(); ++i) {
      (*coordinates)[before_.dims[i]].push_back(sent_.window[i]);
    }
    for (size_t i = 0; i < after_.dims.size(); ++i) {
      auto& list = (*coordinates)[after_.dims[i]];
      list.push_back(received_.window[i]);
      if (IsFixed(after_.dims[i])) list.push_back(sent_.parts[i]);
    }
  }

  // The longest message along this dim. The first pieces are the longest.
  int64_t longest() const {
    return std::min(before_.cuts.LongestLength(), after_.cuts.LongestLength());
  }
  // Whether some message is shorter than its piece before; than its piece after.
  bool splits_old() const { return splits_old_; }
  bool splits_new() const { return received_.pieces > 1; }
  // Whether all mesh dims of the cuts after are fixed. If so, a rank that sends keeps the part that
  // each of its receivers takes, along this dim.
  bool KeepsWhatItSends() const { return keeps_what_it_sends_; }

  // Bounds for all ranks in a box of coordinates, ends included: the maxima of the length of the
  // piece after, of the length that receivers take of the piece before, and of the numbers of parts
  // sent and received; and the minimum of the length kept. Exact for a single rank.
  struct Bounds {
    int64_t after = 0;
    int64_t sent = 0;
    int64_t sent_messages = 0;
    int64_t received_messages = 0;
    int64_t own = 0;
  };
  // `one_run`: the coordinates of each mesh dim are in one run. Pieces begin later with each
  // coordinate.
  Bounds Over(const Coordinates& first, const Coordinates& last, bool one_run) const {
    const NestedCuts::Range old_range{before_.DigitsOf(first), before_.DigitsOf(last)};
    const NestedCuts::Range new_range{after_.DigitsOf(first), after_.DigitsOf(last)};
    const NestedCuts::Lengths old_lengths = before_.cuts.LengthsOf(old_range);
    const NestedCuts::Lengths new_lengths = after_.cuts.LengthsOf(new_range);
    Bounds bounds = {.after = new_lengths.most};
    if (before_.dims.empty()) {
      bounds.own = new_lengths.least;
    } else if (after_.dims.empty()) {
      bounds.own = old_lengths.least;
    } else if (one_run) {
      bounds.own = LeastOwn(first, last);
    }
    // Receivers share the sender's coordinates on fixed mesh dims. If these are the outermost cuts,
    // all pieces of the receivers are in the window [low.begin, high.end).
    NestedCuts::Range shared = after_.cuts.FullRange();
    Interval low{0, after_.cuts.extent()};
    Interval high = low;
    bool outermost = true;
    for (int i = 0; i < after_.cuts.depth(); ++i) {
      const bool is_fixed = IsFixed(after_.dims[i]);
      outermost &= is_fixed;
      if (is_fixed) {
        shared.first[i] = new_range.first[i];
        shared.last[i] = new_range.last[i];
      }
      if (!outermost) continue;
      low = Chunk(low, after_.cuts.size(i), shared.first[i]);
      high = Chunk(high, after_.cuts.size(i), shared.last[i]);
    }
    const Interval senders{before_.PieceAt(first).begin, before_.PieceAt(last).end};
    const Interval window = Intersect(senders, {low.begin, high.end});
    if (old_lengths.most > 0 && window.Length() > 0) {
      const NestedCuts::Sum taken = after_.cuts.Within(window, shared);
      bounds.sent = std::min({sent_.items, old_lengths.most, taken.items});
      bounds.sent_messages = std::min(sent_.pieces, taken.pieces);
    }
    if (new_lengths.most > 0) {
      const Interval receivers{after_.PieceAt(first).begin, after_.PieceAt(last).end};
      bounds.received_messages = std::min(
          received_.pieces, before_.cuts.Within(receivers, before_.cuts.FullRange()).pieces);
    }
    return bounds;
  }

  // The largest shift of a rank's pieces when its coordinate on d changes from `first` to `last`,
  // in units of 2^-40 of the extent. 0 if cuts are only added, or only removed.
  int64_t Reach(int d, int64_t first, int64_t last) const {
    if (before_.dims.empty() || after_.dims.empty()) return 0;
    Coordinates from = {};
    Coordinates to = {};
    from[d] = first;
    to[d] = last;
    int64_t reach = 0;
    for (const Side* side : {&before_, &after_}) {
      reach = std::max(reach, side->PieceAt(to).begin - side->PieceAt(from).begin);
    }
    constexpr int64_t kParts = int64_t{1} << 40;
    return static_cast<int64_t>(static_cast<__int128>(reach) * kParts / before_.cuts.extent());
  }

 private:
  bool IsFixed(int d) const { return !HasDim(spread_, d); }
  // In a run all pieces have the length of the first, and the offset from the piece before to the
  // piece after is linear in the coordinates. So it is least and greatest at corners, and the
  // overlap is least at one of these two.
  int64_t LeastOwn(const Coordinates& first, const Coordinates& last) const {
    const auto offset = [&](const Coordinates& at) {
      return after_.PieceAt(at).begin - before_.PieceAt(at).begin;
    };
    const int64_t at_first = offset(first);
    int64_t least = at_first;
    int64_t most = at_first;
    for (int d = 0; d < kMaxStateDims; ++d) {
      if (first[d] == last[d]) continue;
      Coordinates at = first;
      at[d] = last[d];
      const int64_t by = offset(at) - at_first;
      (by < 0 ? least : most) += by;
    }
    const Interval old_piece{0, before_.PieceAt(first).Length()};
    const int64_t length = after_.PieceAt(first).Length();
    return std::min(CommonIndices(old_piece, {least, least + length}),
                    CommonIndices(old_piece, {most, most + length}));
  }

  const DimMask spread_;
  Side before_;
  Side after_;
  bool keeps_what_it_sends_ = true;
  MostPieces sent_;      // parts of a piece before that receivers take
  MostPieces received_;  // parts of a piece after
  bool splits_old_ = false;
};

using MovingBounds = MovingTensorDims<MovedBounds>;

// A box of ranks: their coordinates on the mesh dims that move, ends included.
struct Ranks {
  Coordinates first = {};
  Coordinates last = {};
};

void SortUnique(absl::InlinedVector<int64_t, 16>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

// Work of bounding a box of ranks.
constexpr int64_t kBoxWork = 16;

// The most ranks with busy coordinates that are examined before any box.
constexpr int64_t kMaxBusy = 200;

// The maxima over the ranks examined so far.
class WorstRank {
 public:
  WorstRank(const Moves& moves, const SomeCoordinates& runs) : moves_(moves), runs_(runs) {}

  // Raises the maxima below to those of all ranks, for one choice of lengths. Ranks with `busy`
  // coordinates are examined first, as incumbents.
  void Examine(const MovingBounds::Choice& choice, const SomeCoordinates& busy) {
    choice_ = &choice;
    Items longest = 1;
    for (const MovedBounds* dim : choice) longest *= dim->longest();
    kept_ = std::max(kept_, longest);
    Ranks all;
    for (const int d : moves_.mesh_dims) all.last[d] = moves_.problem.size(d) - 1;
    Examine(all.first);
    Examine(all.last);
    int64_t left = kMaxBusy;
    Coordinates at = {};
    ExamineAll(busy, 0, &at, &left);
    Examine(all);
  }

  Items sent() const { return sent_; }
  Items received() const { return received_; }
  Items kept() const { return kept_; }
  int64_t messages() const { return messages_; }

 private:
  // Upper bounds for a box of ranks.
  struct Most {
    Items sent;
    Items received;
    int64_t messages;
  };
  Most MostOf(const Ranks& ranks, bool one_run) const {
    if (!moves_.problem.Charge(kBoxWork)) return {0, 0, 0};
    Items sent = moves_.copies;
    Items own = 1;
    Items sent_and_kept = 1;  // over the tensor dims with KeepsWhatItSends()
    Items after = 1;
    Items own_of_all = 1;
    int64_t sent_messages = moves_.copies;
    int64_t received_messages = 1;
    for (const MovedBounds* dim : *choice_) {
      const MovedBounds::Bounds bounds = dim->Over(ranks.first, ranks.last, one_run);
      sent_messages *= bounds.sent_messages;
      received_messages *= bounds.received_messages;
      after *= bounds.after;
      own_of_all *= bounds.own;
      if (dim->KeepsWhatItSends()) {
        sent_and_kept *= bounds.sent;
      } else {
        sent *= bounds.sent;
        own *= bounds.own;
      }
    }
    // A rank that sends nothing keeps nothing either.
    return {
        (sent - own) * sent_and_kept, after - own_of_all,
        std::max(sent_messages - (own > 0 ? 1 : 0), received_messages - (own_of_all > 0 ? 1 : 0))};
  }

  void Examine(const Coordinates& rank) {
    const Most most = MostOf({rank, rank}, /*one_run=*/true);
    sent_ = std::max(sent_, most.sent);
    received_ = std::max(received_, most.received);
    messages_ = std::max(messages_, most.messages);
  }

  // Examines the ranks of every combination of these coordinates, at most *left of them.
  void ExamineAll(const SomeCoordinates& coordinates, size_t i, Coordinates* at, int64_t* left) {
    if (i == moves_.mesh_dims.size()) {
      --*left;
      return Examine(*at);
    }
    const int d = moves_.mesh_dims[i];
    for (const int64_t coordinate : coordinates[d]) {
      if (*left == 0) return;
      (*at)[d] = coordinate;
      ExamineAll(coordinates, i + 1, at, left);
    }
  }

  // Bounds a box of ranks, and halves it if needed. REQUIRES: its first and last rank were
  // examined; if `was_one_run`, all corners.
  void Examine(const Ranks& ranks, bool was_one_run = false) {
    // Split between two runs; if there is one run, on the mesh dim that shifts pieces most.
    int split = -1;
    int64_t at = 0;
    int64_t most_runs = 0;
    int64_t longest = -1;
    for (const int d : moves_.mesh_dims) {
      const auto& runs = runs_[d];
      const int64_t first = ranks.first[d];
      const int64_t last = ranks.last[d];
      if (first == last) continue;
      const auto begin = std::upper_bound(runs.begin(), runs.end(), first);
      const auto end = std::upper_bound(runs.begin(), runs.end(), last);
      if (end - begin > most_runs) {
        most_runs = end - begin;
        split = d;
        at = begin[most_runs / 2];
      }
      if (most_runs > 0) continue;
      for (const MovedBounds* dim : *choice_) {
        const int64_t reach = dim->Reach(d, first, last);
        if (reach <= longest) continue;
        longest = reach;
        split = d;
        at = first + (last - first + 1) / 2;
      }
    }
    if (split < 0) return;
    const Most most = MostOf(ranks, most_runs == 0);
    if (most.sent <= sent_ && most.received <= received_ && most.messages <= messages_) return;
    if (most_runs == 0 && !was_one_run) {
      SomeCoordinates corners;
      for (const int d : moves_.mesh_dims) {
        corners[d] = {ranks.first[d]};
        if (ranks.last[d] > ranks.first[d]) corners[d].push_back(ranks.last[d]);
      }
      int64_t left = INT64_MAX;
      Coordinates at_corner = {};
      ExamineAll(corners, 0, &at_corner, &left);
      if (most.sent <= sent_ && most.received <= received_ && most.messages <= messages_) return;
    }
    Ranks low = ranks;
    Ranks high = ranks;
    low.last[split] = at - 1;
    high.first[split] = at;
    Examine(low.last);
    Examine(high.first);
    Examine(high, most_runs == 0);
    Examine(low, most_runs == 0);
  }

  const Moves& moves_;
  const SomeCoordinates& runs_;
  const MovingBounds::Choice* choice_ = nullptr;
  Items sent_ = 0;
  Items received_ = 0;
  Items kept_ = 0;
  int64_t messages_ = 0;
};

}  // namespace

void CountByBounds(const Moves& moves, Traffic* traffic) {
  const MovingBounds moving(moves);
  moving.SetPacks(traffic);
  SomeCoordinates runs;
  for (const auto& dims : moving.dims()) {
    for (const MovedBounds& dim : dims) dim.AppendRunBegins(&runs);
  }
  for (const int d : moves.mesh_dims) SortUnique(&runs[d]);
  WorstRank worst(moves, runs);
  moving.ForEachChoice([&](const MovingBounds::Choice& choice) {
    SomeCoordinates busy;
    for (const MovedBounds* dim : choice) dim->AddBusy(&busy);
    for (const int d : moves.mesh_dims) {
      busy[d].push_back(moves.problem.size(d) - 1);
      SortUnique(&busy[d]);
    }
    worst.Examine(choice, busy);
    return true;
  });
  traffic->bytes_sent = moves.Bytes(worst.sent());
  traffic->bytes_received = moves.Bytes(worst.received());
  traffic->bytes_kept = moves.Bytes(worst.kept());
  traffic->messages = worst.messages();
}

}  // namespace meshift::cost_internal
