#include "planner/plan/crossing.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "placement/cuts.h"

namespace meshift {
namespace {

// The non-empty pieces that a sharding cuts one tensor dim into. Piece i is [begins[i], begins[i +
// 1]); the pieces are contiguous and cover the dim. No begins if the tensor has 0 elements.
struct Axis {
  std::vector<int64_t> begins;

  int64_t NumPieces() const { return static_cast<int64_t>(begins.size()) - 1; }
  // The piece that has `index`.
  int64_t PieceAt(int64_t index) const {
    return std::upper_bound(begins.begin(), begins.end(), index) - begins.begin() - 1;
  }
};

// The mesh dims that are P, in mesh order.
absl::InlinedVector<int, 4> PartialDims(const Sharding& sharding) {
  absl::InlinedVector<int, 4> dims;
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    if (sharding.placement(d).IsPartial()) dims.push_back(d);
  }
  return dims;
}

int64_t ContributionOf(const Sharding& sharding, absl::Span<const int> partial,
                       const Coordinate& coordinate) {
  int64_t index = 0;
  for (const int d : partial) index = index * sharding.mesh().dim(d).size + coordinate[d];
  return index;
}

std::vector<Axis> AxesOf(const Sharding& sharding) {
  const auto rank = sharding.shape().size();
  std::vector<Axis> axes(rank);
  if (NumElements(sharding.shape()) == 0) return axes;
  for (size_t k = 0; k < rank; ++k) {
    std::vector<int64_t>& begins = axes[k].begins;
    const CutList cuts = CutsOf(sharding, static_cast<int>(k));
    for (const Interval& piece : AllPieces(sharding.shape()[k], cuts.All())) {
      if (piece.Length() > 0) begins.push_back(piece.begin);
    }
    begins.push_back(sharding.shape()[k]);
  }
  return axes;
}

// The pieces of the value before, and the ranks that hold each.
class Holders {
 public:
  Holders(const Sharding& before, const Topology& topology);

  // The index of a piece, from the contribution and the piece's position along each axis. Indices
  // ascend with the contribution, then with the position.
  int64_t PieceAt(int64_t contribution, absl::Span<const int64_t> at) const {
    int64_t piece = contribution;
    for (size_t k = 0; k < axes_.size(); ++k) piece = piece * axes_[k].NumPieces() + at[k];
    return piece;
  }
  const std::vector<Axis>& axes() const { return axes_; }
  int64_t contributions() const { return contributions_; }
  // The piece that `rank` holds; -1 if it holds none.
  int64_t PieceOf(int64_t rank) const {
    const std::optional<int64_t> position = mesh_.PositionOf(rank);
    return position ? piece_of_[*position] : -1;
  }
  // Chooses the rank that sends `elements` of `piece` to `receiver`, and adds them to its load: of
  // the nearest holders the one with the smallest load. Returns an index into ranks().
  int64_t Send(int64_t piece, int64_t receiver, int64_t elements);
  // The ranks that hold a piece: by piece, then ascending.
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  // The one with the smaller load; the lower rank if the loads are equal. Indices into ranks_; -1
  // is none.
  int32_t Lesser(int32_t a, int32_t b) const {
    if (a < 0 || b < 0) return std::max(a, b);
    if (given_[a] != given_[b]) return given_[a] < given_[b] ? a : b;
    return std::min(a, b);
  }
  int32_t LeastIn(int64_t begin, int64_t end) const;

  const DeviceMesh mesh_;
  const Topology& topology_;
  std::vector<Axis> axes_;
  int64_t contributions_ = 1;
  std::vector<int64_t> piece_of_;  // by position in the mesh
  std::vector<int64_t> ranks_;
  std::vector<int64_t>
      begins_;  // by piece: index of its first holder in ranks_; one more at the end
  std::vector<int64_t> given_;  // the loads: elements to send, by index in ranks_
  // A tournament tree over ranks_: leaf n + i is i; an inner node is the lesser of its two
  // children.
  std::vector<int32_t> tree_;
};

Holders::Holders(const Sharding& before, const Topology& topology)
    : mesh_(before.mesh()), topology_(topology), axes_(AxesOf(before)) {
  const absl::InlinedVector<int, 4> partial = PartialDims(before);
  contributions_ = ContributionsOf(before);
  int64_t pieces = 1;
  for (const Axis& axis : axes_) pieces *= axis.begins.empty() ? 0 : axis.NumPieces();
  const int64_t num_ranks = mesh_.NumRanks();
  piece_of_.assign(num_ranks, -1);
  std::vector<std::pair<int64_t, int64_t>> held;  // piece, rank
  held.reserve(num_ranks);
  absl::InlinedVector<int64_t, 5> at(axes_.size());
  for (int64_t position = 0; pieces > 0 && position < num_ranks; ++position) {
    const Coordinate coordinate = mesh_.CoordinateAt(position);
    const Box box = before.BoxAt(coordinate);
    if (box.IsEmpty()) continue;
    for (size_t k = 0; k < axes_.size(); ++k) at[k] = axes_[k].PieceAt(box.offset[k]);
    piece_of_[position] = PieceAt(ContributionOf(before, partial, coordinate), at);
    held.emplace_back(piece_of_[position], mesh_.RankAt(position));
  }
  std::sort(held.begin(), held.end());
  begins_.assign(pieces * contributions_ + 1, 0);
  for (const auto& [piece, rank] : held) {
    ranks_.push_back(rank);
    ++begins_[piece + 1];
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  given_.assign(ranks_.size(), 0);
  const auto leaves = static_cast<int64_t>(ranks_.size());
  if (leaves == pieces * contributions_) return;  // there is never a choice
  tree_.assign(2 * leaves, -1);
  for (int64_t i = 0; i < leaves; ++i) tree_[leaves + i] = static_cast<int32_t>(i);
  for (int64_t i = leaves - 1; i > 0; --i) tree_[i] = Lesser(tree_[2 * i], tree_[2 * i + 1]);
}

int32_t Holders::LeastIn(int64_t begin, int64_t end) const {
  if (end - begin == 1) return static_cast<int32_t>(begin);
  int32_t least = -1;
  const auto leaves = static_cast<int64_t>(ranks_.size());
  for (begin += leaves, end += leaves; begin < end; begin /= 2, end /= 2) {
    if (begin % 2 == 1) least = Lesser(least, tree_[begin++]);
    if (end % 2 == 1) least = Lesser(least, tree_[--end]);
  }
  return least;
}

int64_t Holders::Send(int64_t piece, int64_t receiver, int64_t elements) {
  auto begin = ranks_.begin() + begins_[piece];
  auto end = ranks_.begin() + begins_[piece + 1];
  if (end - begin == 1) {
    given_[begins_[piece]] = SaturatingAdd(given_[begins_[piece]], elements);
    return begins_[piece];
  }
  for (int level = 0; level + 1 < topology_.NumLevels(); ++level) {
    // A domain is a range of consecutive ranks.
    const int64_t size = topology_.level(level).domain_size;
    const int64_t first = receiver / size * size;
    const auto near = std::lower_bound(begin, end, first);
    const auto near_end = std::lower_bound(near, end, first + size);
    if (near == near_end) continue;
    begin = near;
    end = near_end;
    break;
  }
  const int32_t sender = LeastIn(begin - ranks_.begin(), end - ranks_.begin());
  given_[sender] = SaturatingAdd(given_[sender], elements);
  for (int64_t i = (static_cast<int64_t>(ranks_.size()) + sender) / 2; i > 0; i /= 2) {
    tree_[i] = Lesser(tree_[2 * i], tree_[2 * i + 1]);
  }
  return sender;
}

// Calls fn(position, elements) for each piece that has an element in `box`, in order.
template <typename Fn>
void ForEachPieceIn(const std::vector<Axis>& axes, const Box& box, const Fn& fn) {
  struct Range {
    int64_t first, last;  // pieces, both inclusive
  };
  const size_t rank = axes.size();
  absl::InlinedVector<Range, 5> ranges(rank);
  absl::InlinedVector<int64_t, 5> at(rank);
  for (size_t k = 0; k < rank; ++k) {
    ranges[k] = {axes[k].PieceAt(box.offset[k]), axes[k].PieceAt(box.offset[k] + box.size[k] - 1)};
    at[k] = ranges[k].first;
  }
  while (true) {
    int64_t elements = 1;
    for (size_t k = 0; k < rank; ++k) {
      elements *= std::min(axes[k].begins[at[k] + 1], box.offset[k] + box.size[k]) -
                  std::max(axes[k].begins[at[k]], box.offset[k]);
    }
    fn(at, elements);
    size_t k = rank;
    while (k > 0 && ++at[k - 1] > ranges[k - 1].last) {
      --k;
      at[k] = ranges[k].first;
    }
    if (k == 0) return;
  }
}

}  // namespace

int64_t ContributionsOf(const Sharding& sharding) {
  int64_t contributions = 1;
  for (const int d : PartialDims(sharding)) contributions *= sharding.mesh().dim(d).size;
  return contributions;
}

DistinctBoxes::DistinctBoxes(const Sharding& sharding) {
  for (Axis& axis : AxesOf(sharding)) begins_.push_back(std::move(axis.begins));
}

int64_t DistinctBoxes::CountIn(const Box& box) const {
  if (box.IsEmpty()) return 0;
  int64_t count = 1;
  for (size_t k = 0; k < begins_.size(); ++k) {
    const auto at = [&](int64_t index) {
      return std::upper_bound(begins_[k].begin(), begins_[k].end(), index) - begins_[k].begin();
    };
    count = SaturatingMul(count, at(box.offset[k] + box.size[k] - 1) - at(box.offset[k]) + 1);
  }
  return count;
}

int64_t Crossing::CountMessages(const Sharding& before, const Sharding& after) {
  const DistinctBoxes boxes(before);
  int64_t count = 0;
  for (const int64_t receiver : after.mesh().Ranks()) {
    count = SaturatingAdd(count, boxes.CountIn(after.LocalBox(receiver)));
  }
  return SaturatingMul(count, ContributionsOf(before));
}

Crossing Crossing::Of(const Sharding& before, const Sharding& after, const Topology& topology) {
  Crossing crossing(before, after);
  std::vector<int64_t> receivers = after.mesh().Ranks();
  std::sort(receivers.begin(), receivers.end());
  std::vector<int64_t> senders = before.mesh().Ranks();
  std::sort(senders.begin(), senders.end());
  std::set_union(senders.begin(), senders.end(), receivers.begin(), receivers.end(),
                 std::back_inserter(crossing.ranks_));
  crossing.kept_.assign(crossing.ranks_.size(), 0);
  Holders holders(before, topology);
  crossing.contributions_ = holders.contributions();
  std::vector<int32_t> holder_index;  // by index in holders.ranks(): the index in ranks_
  for (const int64_t rank : holders.ranks()) {
    holder_index.push_back(static_cast<int32_t>(crossing.IndexOf(rank)));
  }
  std::vector<int32_t> from;  // indices in ranks_, by message
  std::vector<int32_t> to;
  const int64_t most = CountMessages(before, after);
  crossing.messages_.reserve(most);
  from.reserve(most);
  to.reserve(most);
  for (const int64_t receiver : receivers) {
    const Box box = after.LocalBox(receiver);
    if (box.IsEmpty()) continue;
    const int64_t own = holders.PieceOf(receiver);
    const auto index = static_cast<int32_t>(crossing.IndexOf(receiver));
    for (int64_t c = 0; c < holders.contributions(); ++c) {
      ForEachPieceIn(holders.axes(), box, [&](absl::Span<const int64_t> at, int64_t elements) {
        const int64_t piece = holders.PieceAt(c, at);
        if (piece == own) {
          crossing.kept_[index] = elements;
          return;
        }
        const int64_t sender = holders.Send(piece, receiver, elements);
        crossing.messages_.push_back({.sender = holders.ranks()[sender],
                                      .receiver = receiver,
                                      .contribution = c,
                                      .elements = elements});
        from.push_back(holder_index[sender]);
        to.push_back(index);
      });
    }
  }
  crossing.Count(topology, from, to);
  crossing.SetPacking();
  return crossing;
}

int64_t Crossing::IndexOf(int64_t rank) const {
  const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return it == ranks_.end() || *it != rank ? -1 : it - ranks_.begin();
}

void Crossing::Count(const Topology& topology, absl::Span<const int32_t> senders,
                     absl::Span<const int32_t> receivers) {
  const size_t n = ranks_.size();
  num_levels_ = topology.NumLevels();
  sent_.assign(n * num_levels_, 0);
  received_.assign(n * num_levels_, 0);
  to_begin_.assign(n + 1, 0);
  from_begin_.assign(n + 1, 0);
  // Numbers the domains of each level in the order of the ranks. The last level has one domain.
  std::vector<int32_t> domains(n * num_levels_, 0);
  for (int level = 0; level + 1 < num_levels_; ++level) {
    for (size_t i = 1; i < n; ++i) {
      const bool same =
          topology.DomainOf(level, ranks_[i]) == topology.DomainOf(level, ranks_[i - 1]);
      domains[i * num_levels_ + level] = domains[(i - 1) * num_levels_ + level] + (same ? 0 : 1);
    }
  }
  for (size_t m = 0; m < messages_.size(); ++m) {
    const int64_t from = int64_t{senders[m]} * num_levels_;
    const int64_t to = int64_t{receivers[m]} * num_levels_;
    int level = 0;
    while (domains[from + level] != domains[to + level]) ++level;
    sent_[from + level] = SaturatingAdd(sent_[from + level], messages_[m].elements);
    received_[to + level] = SaturatingAdd(received_[to + level], messages_[m].elements);
    ++to_begin_[receivers[m] + 1];
    ++from_begin_[senders[m] + 1];
  }
  most_across_.assign(num_levels_, 0);
  for (size_t i = 0; i < n; ++i) {
    int64_t sent = 0;
    int64_t received = 0;
    for (int level = num_levels_ - 1; level >= 0; --level) {
      sent = SaturatingAdd(sent, sent_[i * num_levels_ + level]);
      received = SaturatingAdd(received, received_[i * num_levels_ + level]);
      most_across_[level] = std::max({most_across_[level], sent, received});
    }
    most_sent_ = std::max(most_sent_, sent);
    most_received_ = std::max(most_received_, received);
    most_kept_ = std::max(most_kept_, kept_[i]);
    most_messages_ =
        std::max({most_messages_, int64_t{to_begin_[i + 1]}, int64_t{from_begin_[i + 1]}});
  }
  std::partial_sum(to_begin_.begin(), to_begin_.end(), to_begin_.begin());
  std::partial_sum(from_begin_.begin(), from_begin_.end(), from_begin_.begin());
  from_.resize(messages_.size());
  std::vector<int32_t> next(from_begin_.begin(), from_begin_.end() - 1);
  for (size_t m = 0; m < messages_.size(); ++m) {
    from_[next[senders[m]]++] = static_cast<int32_t>(m);
  }
}

void Crossing::SetPacking() {
  // Every combination of one overlap per tensor dim is a message or a kept part.
  if (NumElements(before_.shape()) == 0) return;
  const std::vector<Axis> old_axes = AxesOf(before_);
  const std::vector<Axis> new_axes = AxesOf(after_);
  bool is_long = false;  // an overlap longer than 1 along some tensor dim before k
  for (size_t k = 0; k < old_axes.size(); ++k) {
    const std::vector<int64_t>& a = old_axes[k].begins;
    const std::vector<int64_t>& b = new_axes[k].begins;
    int64_t longest = 0;
    for (size_t i = 0, j = 0; i + 1 < a.size() && j + 1 < b.size();) {
      const int64_t length = std::min(a[i + 1], b[j + 1]) - std::max(a[i], b[j]);
      longest = std::max(longest, length);
      send_packs_ |= is_long && length < a[i + 1] - a[i];
      receive_packs_ |= is_long && length < b[j + 1] - b[j];
      const int64_t end = std::min(a[i + 1], b[j + 1]);
      if (a[i + 1] == end) ++i;
      if (b[j + 1] == end) ++j;
    }
    is_long |= longest > 1;
  }
}

absl::Span<const CrossingMessage> Crossing::MessagesTo(int64_t rank) const {
  const int64_t i = IndexOf(rank);
  if (i < 0) return {};
  return absl::MakeConstSpan(messages_).subspan(to_begin_[i], to_begin_[i + 1] - to_begin_[i]);
}

absl::Span<const int32_t> Crossing::MessagesFrom(int64_t rank) const {
  const int64_t i = IndexOf(rank);
  if (i < 0) return {};
  return absl::MakeConstSpan(from_).subspan(from_begin_[i], from_begin_[i + 1] - from_begin_[i]);
}

Box Crossing::PartOf(const CrossingMessage& message) const {
  return Intersect(before_.LocalBox(message.sender), after_.LocalBox(message.receiver));
}

std::optional<Box> Crossing::KeptBy(int64_t rank, int64_t* contribution) const {
  const int64_t i = IndexOf(rank);
  if (i < 0 || kept_[i] == 0) return std::nullopt;
  if (contribution != nullptr) {
    *contribution =
        ContributionOf(before_, PartialDims(before_), *before_.mesh().CoordinateOf(rank));
  }
  return Intersect(before_.LocalBox(rank), after_.LocalBox(rank));
}

int64_t Crossing::SentBy(int64_t rank, int level) const {
  const int64_t i = IndexOf(rank);
  return i < 0 ? 0 : sent_[i * num_levels_ + level];
}

int64_t Crossing::SentBy(int64_t rank) const {
  int64_t sent = 0;
  for (int level = 0; level < num_levels_; ++level) {
    sent = SaturatingAdd(sent, SentBy(rank, level));
  }
  return sent;
}

int64_t Crossing::ReceivedBy(int64_t rank) const {
  const int64_t i = IndexOf(rank);
  if (i < 0) return 0;
  int64_t received = 0;
  for (int level = 0; level < num_levels_; ++level) {
    received = SaturatingAdd(received, received_[i * num_levels_ + level]);
  }
  return received;
}

}  // namespace meshift
