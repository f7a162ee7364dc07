#include "planner/cost/moved_bounds.h"

#include <algorithm>

#include "planner/cost/most_pieces.h"

namespace meshift {
namespace {

using Digits = NestedCuts::Digits;
using Dims = MovedBounds::Dims;
using Coordinates = MovedBounds::Coordinates;

NestedCuts CutsOf(const Problem& problem, const Dims& dims, int64_t extent) {
  absl::InlinedVector<int64_t, kMaxStateDims> sizes;
  for (const int d : dims) sizes.push_back(problem.size(d));
  return NestedCuts(extent, sizes);
}

Digits DigitsOf(const Dims& dims, const Coordinates& at) {
  Digits digits = {};
  for (size_t i = 0; i < dims.size(); ++i) digits[i] = at[dims[i]];
  return digits;
}

NestedCuts::Range RangeOf(const Dims& dims, const Coordinates& first, const Coordinates& last) {
  return {DigitsOf(dims, first), DigitsOf(dims, last)};
}

}  // namespace

MovedBounds::MovedBounds(const Problem& problem, const CutLists::List& before,
                         const CutLists::List& after, int common, DimMask spread, int64_t extent)
    : spread_(spread),
      before_(before.dims.begin() + common, before.dims.begin() + before.size),
      after_(after.dims.begin() + common, after.dims.begin() + after.size),
      old_cuts_(CutsOf(problem, before_, extent)),
      new_cuts_(CutsOf(problem, after_, extent)) {
  DimMask fixed = 0;  // by place in the list
  for (size_t i = 0; i < after_.size(); ++i) {
    if (IsFixed(after_[i])) {
      fixed |= DimMask{1} << i;
    } else {
      keeps_what_it_sends_ = false;
    }
  }
  const MostPieces sent = FindMostPieces(old_cuts_, new_cuts_, fixed);
  most_sent_ = sent.items;
  most_sent_messages_ = sent.pieces;
  busy_sender_ = sent.window;
  shared_ = sent.parts;
  const MostPieces received = FindMostPieces(new_cuts_, old_cuts_, 0);
  most_received_messages_ = received.pieces;
  busy_receiver_ = received.window;
  // The first pieces are the longest.
  longest_ = std::min(old_cuts_.First(), new_cuts_.First());
  splits_new_ = most_received_messages_ > 1;
  splits_old_ =
      most_sent_messages_ > 1 || (fixed != 0 && FindMostPieces(old_cuts_, new_cuts_, 0).pieces > 1);
}

void MovedBounds::AddRuns(Runs* runs) const {
  const auto add = [runs](const Dims& dims, const NestedCuts& cuts) {
    for (size_t i = 0; i < dims.size(); ++i) cuts.AddRuns(static_cast<int>(i), &(*runs)[dims[i]]);
  };
  add(before_, old_cuts_);
  add(after_, new_cuts_);
}

void MovedBounds::AddBusy(Runs* coordinates) const {
  for (size_t i = 0; i < before_.size(); ++i) (*coordinates)[before_[i]].push_back(busy_sender_[i]);
  for (size_t i = 0; i < after_.size(); ++i) {
    (*coordinates)[after_[i]].push_back(busy_receiver_[i]);
    if (IsFixed(after_[i])) (*coordinates)[after_[i]].push_back(shared_[i]);
  }
}

int64_t MovedBounds::Before(const Coordinates& at) const {
  return old_cuts_.Piece(DigitsOf(before_, at)).Length();
}

// With each coordinate, pieces are further behind.
MovedBounds::Bounds MovedBounds::Over(const Coordinates& first, const Coordinates& last,
                                      bool one_run) const {
  const NestedCuts::Range old_range = RangeOf(before_, first, last);
  const NestedCuts::Range new_range = RangeOf(after_, first, last);
  const NestedCuts::Lengths old_lengths = old_cuts_.LengthsOf(old_range);
  const NestedCuts::Lengths new_lengths = new_cuts_.LengthsOf(new_range);
  const Interval senders{old_cuts_.Piece(old_range.first).begin,
                         old_cuts_.Piece(old_range.last).end};
  Bounds bounds = {.after = new_lengths.most};
  if (before_.empty()) {
    bounds.own = new_lengths.least;
  } else if (after_.empty()) {
    bounds.own = old_lengths.least;
  } else if (one_run) {
    bounds.own = LeastOwn(first, last);
  }
  // A sender's receivers share its coordinates on the mesh dims that are fixed: where these are
  // outermost, they are all between pieces of theirs.
  NestedCuts::Range shared = new_cuts_.Everywhere();
  Interval low{0, new_cuts_.extent()};
  Interval high = low;
  bool outermost = true;
  for (int i = 0; i < new_cuts_.depth(); ++i) {
    outermost &= IsFixed(after_[i]);
    if (IsFixed(after_[i])) {
      shared.first[i] = new_range.first[i];
      shared.last[i] = new_range.last[i];
    }
    if (!outermost) continue;
    low = Cut(low, new_cuts_.size(i), shared.first[i]);
    high = Cut(high, new_cuts_.size(i), shared.last[i]);
  }
  const Interval window{std::max(senders.begin, low.begin), std::min(senders.end, high.end)};
  if (old_lengths.most > 0 && window.Length() > 0) {
    const NestedCuts::Sum taken = new_cuts_.Within(window, shared);
    bounds.sent = std::min({most_sent_, old_lengths.most, taken.items});
    bounds.sent_messages = std::min(most_sent_messages_, taken.pieces);
  }
  if (new_lengths.most > 0) {
    const Interval receivers{new_cuts_.Piece(new_range.first).begin,
                             new_cuts_.Piece(new_range.last).end};
    bounds.received_messages = std::min(most_received_messages_,
                                        old_cuts_.Within(receivers, old_cuts_.Everywhere()).pieces);
  }
  return bounds;
}

// In a run, pieces are as long as the first, and where one begins behind the other is linear: it is
// least, and most, at corners, and what they have in common is least at one of these.
int64_t MovedBounds::LeastOwn(const Coordinates& first, const Coordinates& last) const {
  const auto behind = [&](const Coordinates& at) {
    return new_cuts_.Piece(DigitsOf(after_, at)).begin -
           old_cuts_.Piece(DigitsOf(before_, at)).begin;
  };
  const int64_t at_first = behind(first);
  int64_t least = at_first;
  int64_t most = at_first;
  DimMask done = 0;
  for (const Dims* dims : {&before_, &after_}) {
    for (const int d : *dims) {
      if (HasDim(done, d) || first[d] == last[d]) continue;
      done |= DimMask{1} << d;
      Coordinates at = first;
      at[d] = last[d];
      const int64_t by = behind(at) - at_first;
      (by < 0 ? least : most) += by;
    }
  }
  const Interval old_piece{0, Before(first)};
  const int64_t length = new_cuts_.Piece(DigitsOf(after_, first)).Length();
  return std::min(Overlap(old_piece, {least, least + length}),
                  Overlap(old_piece, {most, most + length}));
}

int64_t MovedBounds::Reach(int d, int64_t first, int64_t last) const {
  if (before_.empty() || after_.empty()) return 0;
  int64_t reach = 0;
  const auto look = [&](const Dims& dims, const NestedCuts& cuts) {
    const auto at = std::find(dims.begin(), dims.end(), d);
    if (at == dims.end()) return;
    Digits from = {};
    Digits to = {};
    from[at - dims.begin()] = first;
    to[at - dims.begin()] = last;
    reach = std::max(reach, cuts.Piece(to).begin - cuts.Piece(from).begin);
  };
  look(before_, old_cuts_);
  look(after_, new_cuts_);
  constexpr int64_t kParts = int64_t{1} << 40;
  return static_cast<int64_t>(static_cast<__int128>(reach) * kParts / old_cuts_.extent());
}

}  // namespace meshift
