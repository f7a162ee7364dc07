#include "planner/verifier/crossing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/cast.h"

namespace meshift::verifier_internal {
namespace {

using Result = std::optional<Violation>;

Cuts AllDims(const MeshShape& mesh_shape) {
  Cuts dims;
  for (int d = 0; d < static_cast<int>(mesh_shape.sizes.size()); ++d) dims.push_back(d);
  return dims;
}

int64_t RanksInEither(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.IsRowMajor() && b.IsRowMajor()) return std::max(a.NumRanks(), b.NumRanks());
  int64_t ranks = a.NumRanks();
  for (int64_t p = 0; p < b.NumRanks(); ++p) {
    if (!a.PositionOf(b.RankAt(p))) ++ranks;
  }
  return ranks;
}

// One tensor dim: the intervals of the boxes before and after, by the coordinates of the mesh dims
// that cut it.
struct Axis {
  // The index that stands for the interval: the owners in one mesh dim all hold the same one.
  size_t Key(size_t i, bool is_owner_dim) const {
    return is_owner_dim && before[i].size() > 0 ? filled[0] : i;
  }

  std::vector<Interval> before;
  std::vector<Interval> after;
  // Indices into `before`. `filled`: the non-empty intervals before, ascending. `meets`: for each
  // interval after, the range [first, second) of `filled` that has an index in common with it.
  std::vector<size_t> filled;
  std::vector<std::pair<size_t, size_t>> meets;
};

Axis AxisOf(const StepView& view, size_t t) {
  const MeshShape& from = *view.from_mesh_shape;
  Axis axis{
      .before = Pieces(from, from.shape[t], view.before.cuts[t], view.before.sizes[t]),
      .after = Pieces(view.mesh_shape, from.shape[t], view.after.cuts[t], view.after.sizes[t]),
      .filled = {},
      .meets = {}};
  for (size_t i = 0; i < axis.before.size(); ++i) {
    const bool is_new = !from.IsOwnerDim(t) || axis.filled.empty();
    if (axis.before[i].size() > 0 && is_new) axis.filled.push_back(i);
  }
  for (const Interval& wanted : axis.after) {
    if (wanted.size() == 0) {
      axis.meets.emplace_back(0, 0);
      continue;
    }
    const auto first = std::partition_point(axis.filled.begin(), axis.filled.end(), [&](size_t i) {
      return axis.before[i].high <= wanted.low;
    });
    const auto last = std::partition_point(
        first, axis.filled.end(), [&](size_t i) { return axis.before[i].low < wanted.high; });
    axis.meets.emplace_back(first - axis.filled.begin(), last - axis.filled.begin());
  }
  return axis;
}

// Each mesh dim cuts at most one tensor dim, so every overlap of a piece and a box after is a
// message or a kept part of some rank. Hence each tensor dim shows by itself whether all of them
// are contiguous.
void FindContiguous(absl::Span<const Axis> axes, Traffic* traffic) {
  bool one_index = true;  // each part has one index along the earlier tensor dims
  for (const Axis& axis : axes) {
    int64_t longest = 0;
    for (size_t j = 0; j < axis.after.size(); ++j) {
      for (size_t k = axis.meets[j].first; k < axis.meets[j].second; ++k) {
        const Interval& piece = axis.before[axis.filled[k]];
        const int64_t common = Common(piece, axis.after[j]);
        longest = std::max(longest, common);
        if (!one_index && common < piece.size()) traffic->sent_contiguous = false;
        if (!one_index && common < axis.after[j].size()) traffic->received_contiguous = false;
      }
    }
    one_index = one_index && longest <= 1;
  }
}

// Chooses the sender of each message. A rank holds at most one piece, so the loads of the holders
// of one piece do not depend on other pieces.
class Holders {
 public:
  static constexpr int64_t kNone = -1;  // the key of an empty piece

  // `key_at`: by position in `mesh`, the key of the piece that the rank holds.
  Holders(const DeviceMesh& mesh, absl::Span<const int64_t> key_at, const Topology& topology)
      : topology_(topology) {
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      if (key_at[p] != kNone) holders_.push_back({key_at[p], mesh.RankAt(p)});
    }
    std::sort(holders_.begin(), holders_.end());
    given_.resize(holders_.size());
    std::vector<Entry> entries(holders_.size());
    for (size_t h = 0; h < entries.size(); ++h) entries[h] = {0, h};
    // The holders of a piece that share a domain are consecutive, since holders_ is sorted by
    // piece, rank.
    by_given_.assign(topology.NumLevels(), entries);
  }

  // The rank that sends `bytes` of the piece to `receiver`.
  int64_t Choose(int64_t key, int64_t receiver, Int128 bytes) {
    const auto [begin, end] =
        std::equal_range(holders_.begin(), holders_.end(), Holder{key, 0},
                         [](const Holder& a, const Holder& b) { return a.key < b.key; });
    for (int level = 0;; ++level) {
      const int64_t domain = topology_.DomainOf(level, receiver);
      const auto first = std::partition_point(begin, end, [&](const Holder& holder) {
        return topology_.DomainOf(level, holder.rank) < domain;
      });
      const auto last = std::partition_point(first, end, [&](const Holder& holder) {
        return topology_.DomainOf(level, holder.rank) == domain;
      });
      if (first == last) continue;  // the last level has all ranks
      const size_t h = LeastGiven(level, first - holders_.begin(), last - holders_.begin());
      given_[h] += bytes;
      most_given_ = std::max(most_given_, given_[h]);
      return holders_[h].rank;
    }
  }

  Int128 most_given() const { return most_given_; }

 private:
  struct Holder {
    int64_t key;
    int64_t rank;
    friend bool operator<(const Holder& a, const Holder& b) {
      return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
    }
  };
  struct Entry {
    Int128 given;  // the load when the entry was pushed: at most the current load
    size_t holder;
    friend bool operator>(const Entry& a, const Entry& b) {
      return a.given != b.given ? a.given > b.given : a.holder > b.holder;
    }
  };

  // The one of holders [first, last) with the smallest load; of equal ones the lowest rank. They
  // are a heap with lazy updates: an entry is corrected when it reaches the top.
  size_t LeastGiven(int level, ptrdiff_t first, ptrdiff_t last) {
    const auto begin = by_given_[level].begin() + first;
    const auto end = by_given_[level].begin() + last;
    while (begin->given != given_[begin->holder]) {
      std::pop_heap(begin, end, std::greater<>());
      Entry& entry = *(end - 1);
      entry.given = given_[entry.holder];
      std::push_heap(begin, end, std::greater<>());
    }
    return begin->holder;
  }

  const Topology& topology_;
  std::vector<Holder> holders_;
  std::vector<Int128> given_;                 // the load, bytes to send, by holder
  std::vector<std::vector<Entry>> by_given_;  // by level: heaps over ranges of holders
  Int128 most_given_ = 0;
};

// Iterates over all messages of a crossing.
class Messages {
 public:
  Messages(const StepView& view, const Topology& topology)
      : view_(view), contributions_(view.from_mesh_shape->GroupSize(view.ReducedDims())) {
    for (size_t t = 0; t < view.before.cuts.size(); ++t) axes_.push_back(AxisOf(view, t));
    FindKeys();
    holders_.emplace(view.from_mesh_shape->mesh, key_at_, topology);
  }

  // The number of pairs of a receiver and a piece that it needs a part of. O(receivers).
  Int128 CountPairs() const;
  void Run(CrossingTraffic* traffic);

  // The first message: sender, receiver and elements. REQUIRES: there is one.
  std::tuple<int64_t, int64_t, int64_t> first() const { return first_; }

 private:
  // Sets key_at_: the piece of each rank of mesh 0. Pieces are numbered by the contribution, then
  // by their coordinates along the tensor dims.
  void FindKeys() {
    const MeshShape& from = *view_.from_mesh_shape;
    std::vector<absl::Span<const int>> table_dims(view_.before.cuts.begin(),
                                                  view_.before.cuts.end());
    const DimSet reduced = view_.ReducedDims();
    table_dims.emplace_back(reduced);
    key_at_.reserve(from.mesh.NumRanks());
    Walk walk(from, AllDims(from), table_dims);
    do {
      auto key = static_cast<int64_t>(walk.index(axes_.size()));
      bool empty = false;
      for (size_t t = 0; t < axes_.size(); ++t) {
        key = KeyOf(key, axes_[t].Key(walk.index(t), from.IsOwnerDim(t)), axes_[t]);
        empty = empty || axes_[t].before[walk.index(t)].size() == 0;
      }
      key_at_.push_back(empty ? Holders::kNone : key);
    } while (walk.Next());
  }

  // Iterates over the ranks of mesh 1 by position; the tables are those of the tensor dims.
  Walk Receivers() const {
    const std::vector<absl::Span<const int>> table_dims(view_.after.cuts.begin(),
                                                        view_.after.cuts.end());
    return {view_.mesh_shape, AllDims(view_.mesh_shape), table_dims};
  }

  // The bytes that the receiver gets of one contribution. `place`: the indices of its box on the
  // axes. `own_key`: the piece that it holds itself.
  Int128 Receive(int64_t receiver, absl::Span<const size_t> place, int64_t contribution,
                 int64_t own_key, CrossingTraffic* traffic);

  // Extends the number `base` of a piece on the axes so far by its index on the next axis; `base`
  // is the contribution at first.
  static int64_t KeyOf(int64_t base, size_t place, const Axis& axis) {
    return base * static_cast<int64_t>(axis.before.size()) + static_cast<int64_t>(place);
  }

  const StepView& view_;
  absl::InlinedVector<Axis, 5> axes_;
  int64_t contributions_;
  std::vector<int64_t> key_at_;  // by position in mesh 0
  std::optional<Holders> holders_;
  std::tuple<int64_t, int64_t, int64_t> first_;
};

Int128 Messages::CountPairs() const {
  Int128 all = 0;
  Walk walk = Receivers();
  do {
    Int128 pairs = contributions_;
    for (size_t t = 0; t < axes_.size(); ++t) {
      const auto& [first, last] = axes_[t].meets[walk.index(t)];
      pairs *= static_cast<Int128>(last - first);
    }
    all += pairs;
  } while (walk.Next());
  return all;
}

Int128 Messages::Receive(int64_t receiver, absl::Span<const size_t> place, int64_t contribution,
                         int64_t own_key, CrossingTraffic* traffic) {
  const size_t rank = axes_.size();
  absl::InlinedVector<size_t, 5> at(rank);  // indices into axes_[t].filled
  bool some = true;
  for (size_t t = 0; t < rank; ++t) {
    at[t] = axes_[t].meets[place[t]].first;
    some = some && at[t] < axes_[t].meets[place[t]].second;
  }
  Int128 received = 0;
  while (some) {
    int64_t key = contribution;
    int64_t elements = 1;
    for (size_t t = 0; t < rank; ++t) {
      const Axis& axis = axes_[t];
      const size_t piece = axis.filled[at[t]];
      key = KeyOf(key, piece, axis);
      elements *= Common(axis.before[piece], axis.after[place[t]]);
    }
    if (key != own_key) {
      ++traffic->messages;
      const Int128 bytes = BytesOfElements(view_.before.dtype, elements);
      const int64_t sender = holders_->Choose(key, receiver, bytes);
      if (traffic->messages == 1) first_ = {sender, receiver, elements};
      received += bytes;
    }
    some = false;
    for (size_t t = rank; t-- > 0 && !some;) {
      some = ++at[t] < axes_[t].meets[place[t]].second;
      if (!some) at[t] = axes_[t].meets[place[t]].first;
    }
  }
  return received;
}

void Messages::Run(CrossingTraffic* traffic) {
  const DeviceMesh& from = view_.from_mesh_shape->mesh;
  const DeviceMesh& to = view_.mesh_shape.mesh;
  const size_t rank = axes_.size();
  // The indices of the ranks' boxes on the axes, `rank` for each rank.
  std::vector<size_t> places;
  places.reserve(rank * to.NumRanks());
  // Rank and position, without ranks whose boxes are empty: CountPairs() does not count them.
  std::vector<std::pair<int64_t, int64_t>> receivers;
  receivers.reserve(to.NumRanks());
  Walk walk = Receivers();
  for (int64_t position = 0; position < to.NumRanks(); ++position) {
    bool receives = true;
    for (size_t t = 0; t < rank; ++t) {
      const size_t place = walk.index(t);
      places.push_back(place);
      receives = receives && axes_[t].meets[place].first < axes_[t].meets[place].second;
    }
    if (receives) receivers.emplace_back(to.RankAt(position), position);
    walk.Next();
  }
  std::sort(receivers.begin(), receivers.end());

  for (const auto& [receiver, position] : receivers) {
    const size_t* place = places.data() + position * static_cast<int64_t>(rank);
    const std::optional<int64_t> own = from.PositionOf(receiver);
    const int64_t own_key = own ? key_at_[*own] : Holders::kNone;
    Int128 received = 0;
    for (int64_t contribution = 0; contribution < contributions_; ++contribution) {
      received += Receive(receiver, {place, rank}, contribution, own_key, traffic);
    }
    traffic->bytes.received = std::max(traffic->bytes.received, received);
  }
  traffic->contributions = contributions_;
  traffic->bytes.sent = holders_->most_given();
  FindContiguous(axes_, &traffic->bytes);
}

// An exchange may add the contributions of a partial value, in ascending order. If it does not,
// CheckCrossingData checks that none is lost.
Result CheckReductionFields(const StepView& view) {
  const Step& step = view.step;
  ReductionFields right;
  if (step.op == StepOp::kExchange && step.reduce_op) {
    right = FieldsOfReduction(*view.from_mesh_shape, view.before, view.ReducedDims());
  }
  const std::optional<ReduceOrder>& order = step.reduce_order;
  if (right.op && order != ReduceOrder::kAscending) {
    return MakeViolation("reduce_order",
                         "reduce_order is {}; a step to another mesh needs ascending",
                         order ? Name(*order) : "null");
  }
  if (!right.op && order) {
    return MakeViolation("reduce_order", "reduce_order is {}; {} reduces nothing", Name(*order),
                         Name(step.op));
  }
  if (step.reduce_stages) {
    return MakeViolation("reduce_stages", "reduce_stages is {}; {} to another mesh has none",
                         *step.reduce_stages, Name(step.op));
  }
  if (step.reduce_block && !right.op) {
    return MakeViolation("reduce_block", "reduce_block is {}; {} is not in ascending order",
                         *step.reduce_block, Name(step.op));
  }
  if (auto broken = ExpectName("reduce_op", "reduce_op", step.reduce_op, right.op)) return broken;
  return ExpectNumber("divisor", "divisor", step.divisor, right.divisor);
}

}  // namespace

Result CheckCrossingOp(const Step& step, const Sharding& to, DType dtype_before) {
  if (static_cast<int>(step.op) >= kNumStepOps) {
    return MakeViolation("op", "op {} is not known", static_cast<int>(step.op));
  }
  if (step.op != StepOp::kExchange && step.op != StepOp::kRelabel) {
    return MakeViolation(
        "mesh",
        "the step is on mesh {}, but the value is still on mesh 0; only exchange and relabel take "
        "it there, not {}",
        step.mesh, Name(step.op));
  }
  if (step.after.mesh() != to.mesh() || step.after.shape() != to.shape()) {
    return MakeViolation("after", "'{}' is not a sharding of {} on {}", step.after.ToString(),
                         to.tensor().ToString(), to.mesh().ToString());
  }
  if (step.after.dtype() != dtype_before) {
    return MakeViolation("dtype", "the dtype is {} after {}; it must stay {}",
                         Name(step.after.dtype()), Name(step.op), Name(dtype_before));
  }
  if (!step.mesh_dims.empty()) {
    return MakeViolation("mesh_dims", "{} to another mesh has no mesh dims; this one has {}",
                         Name(step.op), step.mesh_dims.size());
  }
  return std::nullopt;
}

Result CheckCrossingFields(const StepView& view) {
  const Step& step = view.step;
  for (size_t d = 0; d < view.after.dims.size(); ++d) {
    if (!view.after.dims[d].IsPartial()) continue;
    return MakeViolation(
        "after", "mesh dim {} is {} after the {} to another mesh; it must be R or a shard",
        view.Name(static_cast<int>(d)), view.after.dims[d].ToString(), Name(step.op));
  }
  if (!step.tensor_dims.empty()) {
    return MakeViolation("tensor_dims",
                         "tensor_dims are [{}]; for a step to another mesh they must be []",
                         fmt::join(step.tensor_dims, ","));
  }
  std::optional<int64_t> size;
  std::optional<int64_t> groups;
  std::optional<StepSizes> sizes;
  std::optional<DType> wire;
  if (step.op == StepOp::kExchange) {
    size = RanksInEither(view.from_mesh_shape->mesh, view.mesh_shape.mesh);
    groups = 1;
    sizes = StepSizes::kExact;
    wire = view.before.dtype;
  }
  if (auto broken = ExpectNumber("group", "group_size", step.group_size, size)) return broken;
  if (auto broken = ExpectNumber("group", "groups", step.groups, groups)) return broken;
  if (auto broken = CheckReductionFields(view)) return broken;
  if (auto broken = ExpectName("sizes", "sizes", step.sizes, sizes)) return broken;
  if (auto broken = ExpectName("dtype", "wire_dtype", step.wire_dtype, wire)) return broken;
  std::optional<DType> accumulate;
  if (view.Reduces()) accumulate = AccumulateDType(view.before.dtype);
  return ExpectName("dtype", "accumulate_dtype", step.accumulate_dtype, accumulate);
}

Result CheckCrossingData(const StepView& view, const Topology& topology, CrossingTraffic* traffic) {
  const DimSet partial = view.ReducedDims();
  if (!partial.empty() && !view.Reduces()) {
    return MakeViolation("data", "mesh dim {} is {} before the step: contributions would be lost",
                         view.from_mesh_shape->mesh.dim(partial[0]).name,
                         view.before.dims[partial[0]].ToString());
  }
  Messages messages(view, topology);
  if (const Int128 pairs = messages.CountPairs(); pairs > kMaxPairs) {
    return MakeViolation(
        "scale",
        "{} pairs of a receiver and a piece that it needs are too many to verify; the limit is {}",
        static_cast<int64_t>(std::min<Int128>(pairs, INT64_MAX)), kMaxPairs);
  }
  messages.Run(traffic);
  const bool sends = traffic->messages > 0;
  if (sends == (view.step.op == StepOp::kExchange)) return std::nullopt;
  if (!sends) {
    return MakeViolation(
        "op",
        "the exchange sends nothing, since every rank holds its box already; it must be a relabel");
  }
  const auto [sender, receiver, elements] = messages.first();
  return MakeViolation("data",
                       "a relabel sends nothing; rank {} needs {} element(s) that rank {} has",
                       receiver, elements, sender);
}

StepBytes BytesOfCrossing(const StepView& view, const CrossingTraffic& traffic) {
  StepBytes bytes;
  bytes.in = BytesOfElements(view.before.dtype, LargestLocal(*view.from_mesh_shape, view.before));
  bytes.out = BytesOfElements(view.after.dtype, LargestLocal(view.mesh_shape, view.after));
  bytes.sent = traffic.bytes.sent;
  if (!traffic.bytes.sent_contiguous) bytes.to_send = traffic.bytes.sent;
  if (!traffic.bytes.received_contiguous) bytes.to_receive = traffic.bytes.received;
  // Each contribution to the rank's box has its own place.
  if (view.Reduces()) bytes.to_receive += RoundUp16(traffic.contributions * bytes.out);
  return bytes;
}

}  // namespace meshift::verifier_internal
