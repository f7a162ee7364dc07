#include "planner/cost.h"

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "planner/geometry.h"

namespace meshift {
namespace {

// Groups on meshes of up to this many ranks are looked at one by one; on larger row-major ones a
// closed form must do.
constexpr int64_t kMaxListedRanks = 1024;
// Coordinates of one mesh dim that are looked at for the worst rank of an exchange.
constexpr int64_t kMaxCoordinates = 16;

bool Has(DimMask mask, int d) { return (mask >> d & 1) != 0; }

int64_t Log2Ceil(int64_t n) {
  int64_t log = 0;
  while ((int64_t{1} << log) < n) ++log;
  return log;
}

// The cuts that both have, from the outermost on.
CutLists CommonBeginning(const Problem& problem, const CutLists& a, const CutLists& b) {
  CutLists common;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    for (int i = 0; i < std::min(a.of[k].size, b.of[k].size) && a.of[k][i] == b.of[k][i]; ++i) {
      common.of[k].Append(a.of[k][i]);
    }
  }
  return common;
}

// Whether the box that `cuts` leave at a coordinate of the mesh is empty.
bool HoldsNothing(const Problem& problem, const CutLists& cuts, const Coordinate& coordinate) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    Interval interval{0, problem.extent(k)};
    for (int i = 0; i < cuts.of[k].size; ++i) {
      const int d = cuts.of[k][i];
      interval = Cut(interval, problem.size(d), coordinate[problem.mesh_dim(d)]);
    }
    if (interval.Length() == 0) return true;
  }
  return false;
}

// The least over the groups of a partition, for one level: members that share a domain.
int64_t FewestSharing(const std::vector<int64_t>& ranks, int64_t domain_size, bool* crosses) {
  int64_t fewest = static_cast<int64_t>(ranks.size());
  std::vector<int64_t> domains;
  domains.reserve(ranks.size());
  for (int64_t rank : ranks) domains.push_back(rank / domain_size);
  std::sort(domains.begin(), domains.end());
  for (size_t i = 0; i < domains.size();) {
    size_t j = i;
    while (j < domains.size() && domains[j] == domains[i]) ++j;
    fewest = std::min(fewest, static_cast<int64_t>(j - i));
    i = j;
  }
  *crosses = domains.front() != domains.back();
  return fewest;
}

}  // namespace

CostModel::CostModel(const Problem& problem, const Topology& topology)
    : problem_(problem), topology_(topology), shapes_(size_t{1} << problem.num_dims()) {}

int64_t CostModel::GroupSize(DimMask dims) const {
  int64_t size = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(dims, d)) size *= problem_.size(d);
  }
  return size;
}

int64_t CostModel::NumGroups(DimMask dims) const {
  return problem_.mesh().NumRanks() / GroupSize(dims);
}

const CostModel::GroupShape& CostModel::Shape(DimMask dims) const {
  if (!shapes_[dims]) shapes_[dims] = MakeShape(dims);
  return *shapes_[dims];
}

CostModel::GroupShape CostModel::MakeShape(DimMask dims) const {
  GroupShape shape;
  shape.size = GroupSize(dims);
  const DeviceMesh& mesh = problem_.mesh();
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(dims, d)) mesh_dims.push_back(problem_.mesh_dim(d));
  }
  std::vector<std::vector<int64_t>> groups;
  const int levels = topology_.NumLevels();
  if (levels > 1 && (mesh.NumRanks() <= kMaxListedRanks || !mesh.IsRowMajor())) {
    groups = mesh.Groups(mesh_dims);
  }
  int64_t inner = shape.size;  // members in a domain of the level below
  for (int level = 1; level < levels; ++level) {
    const int64_t domain = topology_.level(level - 1).domain_size;
    int64_t fewest = shape.size;
    bool crosses = false;
    if (!groups.empty()) {
      for (const std::vector<int64_t>& ranks : groups) {
        bool this_crosses = false;
        const int64_t sharing = FewestSharing(ranks, domain, &this_crosses);
        if (this_crosses) fewest = std::min(fewest, sharing);
        crosses |= this_crosses;
      }
    } else {
      // Row-major: members whose rank differs by less than a domain share one, as far as strides
      // divide the domain; else at least one member is alone.
      int64_t stride = 1;
      fewest = 1;
      for (int d = problem_.num_dims() - 1; d >= 0; --d) {
        if (Has(dims, d)) {
          const int64_t fit = std::max<int64_t>(domain / stride, 1);
          if (problem_.size(d) <= fit && domain % (stride * problem_.size(d)) == 0) {
            fewest *= problem_.size(d);
          } else {
            crosses = true;
            if (problem_.size(d) % fit == 0 && domain % stride == 0) fewest *= fit;
          }
        }
        stride *= problem_.size(d);
      }
    }
    shape.sharing.push_back(crosses ? fewest : 0);
    if (crosses) {
      const int64_t domains = CeilDiv(inner, fewest);
      shape.latency_ns += topology_.level(level).latency_ns * Log2Ceil(domains);
    }
  }
  // Inside the innermost domains.
  const int64_t in_domain = shape.sharing.empty() || shape.sharing[0] == 0
                                ? shape.size
                                : std::min(shape.size, topology_.level(0).domain_size);
  shape.latency_ns += topology_.level(0).latency_ns * Log2Ceil(in_domain);
  return shape;
}

int64_t CostModel::CopyNs(int64_t bytes) const {
  const TopologyConstants& c = topology_.constants();
  return c.copy_latency_ns + MulDivCeil(bytes, 1000, c.copy_bandwidth_bytes_per_us);
}

int64_t CostModel::RingNs(const GroupShape& shape, int64_t bytes) const {
  int64_t ns = MulDivCeil(bytes, 1000, topology_.level(0).bandwidth_bytes_per_us);
  for (size_t i = 0; i < shape.sharing.size(); ++i) {
    if (shape.sharing[i] == 0) continue;
    // The members that share a domain share the crossing: each brings a link.
    ns = std::max(ns, MulDivCeil(CeilDiv(bytes, shape.sharing[i]), 1000,
                                 topology_.level(static_cast<int>(i) + 1).bandwidth_bytes_per_us));
  }
  return ns;
}

int64_t CostModel::DirectNs(const GroupShape& shape, int64_t bytes, int64_t messages) const {
  int64_t ns = MulDivCeil(bytes, 1000, topology_.level(0).bandwidth_bytes_per_us);
  for (size_t i = 0; i < shape.sharing.size(); ++i) {
    if (shape.sharing[i] == 0 || messages == 0) continue;
    const int64_t crossing = std::min(messages, shape.size - shape.sharing[i]);
    ns = std::max(ns, MulDivCeil(MulDivCeil(bytes, crossing, messages), 1000,
                                 topology_.level(static_cast<int>(i) + 1).bandwidth_bytes_per_us));
  }
  return ns;
}

bool CostModel::IsEven(const CutLists& before, const CutLists& after) const {
  const CutLists parent = CommonBeginning(problem_, before, after);
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return true;
  }
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    for (const CutLists* lists : {&before, &after}) {
      int64_t pieces = 1;
      for (int i = parent.of[k].size; i < lists->of[k].size; ++i) {
        pieces *= problem_.size(lists->of[k][i]);
      }
      if (pieces == 1) continue;
      for (int64_t extent : ExtentsAfter(problem_, k, parent)) {
        if (extent % pieces != 0) return false;
      }
    }
  }
  return true;
}

bool CostModel::RanksAscend(absl::Span<const int> order, const CutLists& parent) const {
  const DeviceMesh& mesh = problem_.mesh();
  if (mesh.IsRowMajor()) return std::is_sorted(order.begin(), order.end());
  // Every group that has something, its members in the order of the cuts.
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;
  for (int d : order) mesh_dims.push_back(problem_.mesh_dim(d));
  std::sort(mesh_dims.begin(), mesh_dims.end());
  int64_t members = 1;
  for (int d : order) members *= problem_.size(d);
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    Coordinate coordinate = mesh.CoordinateAt(position);
    bool first = true;
    for (int d : order) first &= coordinate[problem_.mesh_dim(d)] == 0;
    if (!first || HoldsNothing(problem_, parent, coordinate)) continue;
    int64_t last = -1;
    for (int64_t member = 0; member < members; ++member) {
      int64_t left = member;
      for (size_t i = order.size(); i-- > 0;) {
        coordinate[problem_.mesh_dim(order[i])] = left % problem_.size(order[i]);
        left /= problem_.size(order[i]);
      }
      const int64_t rank = mesh.RankAt(coordinate);
      if (rank <= last) return false;
      last = rank;
    }
  }
  return true;
}

// Whether, in every group, the pieces of `cut` in the parent's box lie one behind the
// other in ascending order of ranks. REQUIRES: the pieces are even.
bool CostModel::IsConsecutive(const CutLists& parent, const CutLists& cut) const {
  absl::InlinedVector<int, kMaxStateDims> order;
  bool open = true;  // every tensor dim so far is cut into pieces of length 1, or is that short
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return true;
    int64_t pieces = 1;
    for (int i = parent.of[k].size; i < cut.of[k].size; ++i) {
      pieces *= problem_.size(cut.of[k][i]);
      order.push_back(cut.of[k][i]);
    }
    if (pieces > 1 && !open) return false;
    for (int64_t extent : ExtentsAfter(problem_, k, parent)) {
      if (extent != pieces) open = false;
    }
  }
  return RanksAscend(order, parent);
}

Traffic CostModel::Measure(StepOp op, const State& before, const State& after) const {
  Traffic traffic;
  const TopologyConstants& constants = topology_.constants();
  if (op == StepOp::kSlice || op == StepOp::kMask) {
    traffic.est_ns = CopyNs(problem_.MaxBytes(after)) +
                     (op == StepOp::kMask ? CopyNs(problem_.MaxBytes(after)) : 0);
    return traffic;
  }
  if (op == StepOp::kCast) {
    traffic.est_ns = CopyNs(SaturatingAdd(problem_.MaxBytes(before), problem_.MaxBytes(after)) / 2);
    return traffic;
  }
  const CutLists cuts_before = problem_.Cuts(before);
  const CutLists cuts_after = problem_.Cuts(after);
  DimMask dims = MovingDims(problem_, before, after);
  if (IsReduction(op)) {
    dims = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (before.IsPartial(d) && !after.IsPartial(d)) dims |= DimMask{1} << d;
    }
  }
  const GroupShape& shape = Shape(dims);
  const int64_t n = shape.size;
  const int64_t start = constants.collective_latency_ns;
  const int64_t bytes_before = problem_.MaxBytes(before);
  const int64_t bytes_after = problem_.MaxBytes(after);
  const bool even = IsEven(cuts_before, cuts_after);
  switch (op) {
    case StepOp::kAllReduce:
      traffic.sizes = StepSizes::kEven;
      traffic.bytes_sent = MulDivCeil(bytes_before, 2 * (n - 1), n);
      traffic.bytes_received = traffic.bytes_sent;
      traffic.est_ns = start + 2 * shape.latency_ns + RingNs(shape, traffic.bytes_sent);
      return traffic;
    case StepOp::kReduceScatter:
    case StepOp::kAllGather: {
      const bool gather = op == StepOp::kAllGather;
      const CutLists& parent = gather ? cuts_after : cuts_before;
      const CutLists& cut = gather ? cuts_before : cuts_after;
      const int64_t block = gather ? bytes_before : bytes_after;
      const bool packed = !even || !IsConsecutive(parent, cut);
      traffic.sizes = even ? StepSizes::kEven : StepSizes::kPadded;
      traffic.bytes_sent = SaturatingMul(n - 1, block);
      traffic.bytes_received = traffic.bytes_sent;
      traffic.est_ns = start + shape.latency_ns + RingNs(shape, traffic.bytes_sent);
      if (packed) {
        int64_t& whole = gather ? traffic.receive_pack_bytes : traffic.send_pack_bytes;
        int64_t& own = gather ? traffic.send_pack_bytes : traffic.receive_pack_bytes;
        whole = SaturatingMul(n, block);
        traffic.est_ns += CopyNs(whole);
        if (!even) {
          own = block;
          traffic.est_ns += CopyNs(own);
        }
      }
      return traffic;
    }
    default:
      break;
  }
  traffic.sizes = even ? StepSizes::kEven : StepSizes::kExact;
  MeasureMessages(op, before, after, &traffic);
  const int64_t bytes = std::max(traffic.bytes_sent, traffic.bytes_received);
  traffic.est_ns = start + shape.latency_ns + constants.message_latency_ns * traffic.messages +
                   DirectNs(shape, bytes, traffic.messages);
  if (op != StepOp::kPermute) {
    traffic.send_pack_bytes = traffic.bytes_sent;
    traffic.receive_pack_bytes = traffic.bytes_received;
    traffic.est_ns += CopyNs(traffic.bytes_sent) + CopyNs(traffic.bytes_received);
  }
  return traffic;
}

namespace {

// One tensor dim on which something moves, for one length of the parent box along it. Pieces are in
// ascending order; a piece's index is the row-major index of its cuts' coordinates.
class MovedDim {
 public:
  using Dims = absl::InlinedVector<int, kMaxStateDims>;

  // `before`, `after`: the moving cuts. `spread`: the mesh dims whose coordinates a sender's
  // receivers may differ in.
  MovedDim(const Problem& problem, Dims before, Dims after, DimMask spread, int64_t extent)
      : problem_(problem), before_(std::move(before)), after_(std::move(after)) {
    for (int d : after_) {
      if (!Has(spread, d)) fixed_.push_back(d);
    }
    const std::vector<Interval> old_pieces = Pieces(before_, extent);
    const std::vector<Interval> new_pieces = Pieces(after_, extent);
    const int64_t num_fixed = NumPieces(fixed_);
    sent_.resize(old_pieces.size() * num_fixed);
    sent_messages_.resize(old_pieces.size() * num_fixed);
    received_messages_.resize(new_pieces.size());
    for (size_t b = 0, a = 0; b < old_pieces.size() && a < new_pieces.size();) {
      if (const int64_t overlap = Overlap(old_pieces[b], new_pieces[a]); overlap > 0) {
        const size_t at = b * num_fixed + FixedIndex(static_cast<int64_t>(a));
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
    old_pieces_ = old_pieces;
    new_pieces_ = new_pieces;
  }

  const Dims& before() const { return before_; }
  const Dims& after() const { return after_; }

  // For the rank at these coordinates, along this dim: its piece before, its piece after, what both
  // have in common, and how much of the former receivers take, in how many parts.
  struct View {
    int64_t before, after, own, sent, sent_messages, received_messages;
  };
  View At(const std::array<int64_t, kMaxStateDims>& at) const {
    const size_t b = Index(before_, at);
    const size_t a = Index(after_, at);
    const size_t s = b * NumPieces(fixed_) + Index(fixed_, at);
    return {old_pieces_[b].Length(),
            new_pieces_[a].Length(),
            Overlap(old_pieces_[b], new_pieces_[a]),
            sent_[s],
            sent_messages_[s],
            received_messages_[a]};
  }

 private:
  int64_t NumPieces(const Dims& dims) const {
    int64_t count = 1;
    for (int d : dims) count *= problem_.size(d);
    return count;
  }
  size_t Index(const Dims& dims, const std::array<int64_t, kMaxStateDims>& at) const {
    int64_t index = 0;
    for (int d : dims) index = index * problem_.size(d) + at[d];
    return static_cast<size_t>(index);
  }
  // Of the new piece `index`: the index over fixed_.
  size_t FixedIndex(int64_t index) const {
    std::array<int64_t, kMaxStateDims> at = {};
    for (size_t i = after_.size(); i-- > 0;) {
      at[after_[i]] = index % problem_.size(after_[i]);
      index /= problem_.size(after_[i]);
    }
    return Index(fixed_, at);
  }
  std::vector<Interval> Pieces(const Dims& dims, int64_t extent) const {
    std::vector<Interval> pieces = {{0, extent}};
    for (int d : dims) {
      std::vector<Interval> next;
      next.reserve(pieces.size() * problem_.size(d));
      for (const Interval& piece : pieces) {
        for (int64_t i = 0; i < problem_.size(d); ++i) {
          next.push_back(Cut(piece, problem_.size(d), i));
        }
      }
      pieces = std::move(next);
    }
    return pieces;
  }

  const Problem& problem_;
  Dims before_;
  Dims after_;
  Dims fixed_;  // of after_: where a sender's receivers share its coordinate
  std::vector<Interval> old_pieces_;
  std::vector<Interval> new_pieces_;
  std::vector<int64_t> sent_;  // by old piece and fixed coordinates
  std::vector<int64_t> sent_messages_;
  std::vector<int64_t> received_messages_;  // by new piece
};

// Coordinates of a mesh dim that are looked at: of a large one the ends and the middle.
absl::InlinedVector<int64_t, kMaxCoordinates> WorthALook(int64_t n) {
  absl::InlinedVector<int64_t, kMaxCoordinates> list;
  for (int64_t i = 0; i < n; ++i) {
    if (n > kMaxCoordinates && i == 4) {
      list.push_back(n / 2);
      i = n - 4;
    }
    list.push_back(i);
  }
  return list;
}

// Calls fn() with every combination of those coordinates of `dims` in *at.
template <typename Fn>
void ForEachCoordinate(const Problem& problem, absl::Span<const int> dims,
                       std::array<int64_t, kMaxStateDims>* at, const Fn& fn) {
  absl::InlinedVector<absl::InlinedVector<int64_t, kMaxCoordinates>, 4> lists;
  for (int d : dims) lists.push_back(WorthALook(problem.size(d)));
  absl::InlinedVector<size_t, kMaxStateDims> index(dims.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) (*at)[dims[i]] = lists[i][0];
  while (true) {
    fn();
    size_t i = dims.size();
    while (i > 0 && ++index[i - 1] == lists[i - 1].size()) {
      --i;
      index[i] = 0;
      (*at)[dims[i]] = lists[i][0];
    }
    if (i == 0) return;
    (*at)[dims[i - 1]] = lists[i - 1][index[i - 1]];
  }
}

}  // namespace

// The worst rank's messages of an all_to_all, a permute or an exchange.
//
// Along one tensor dim a rank's interval depends on the coordinates of that dim's cuts alone, so a
// box's volume is a product over tensor dims, and so is a sum over all receivers whose coordinates
// vary freely. Only the rank itself is enumerated: its coordinates on the moving dims, and the
// lengths that the parent box can have.
void CostModel::MeasureMessages(StepOp op, const State& before, const State& after,
                                Traffic* traffic) const {
  const CutLists cuts_before = problem_.Cuts(before);
  const CutLists cuts_after = problem_.Cuts(after);
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
  int64_t still = problem_.item_bytes(before.stage());
  absl::InlinedVector<absl::InlinedVector<MovedDim, 2>, 4> moved;  // by tensor dim and extent
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    MovedDim::Dims dims_before;
    MovedDim::Dims dims_after;
    for (int i = parent.of[k].size; i < cuts_before.of[k].size; ++i) {
      dims_before.push_back(cuts_before.of[k][i]);
    }
    for (int i = parent.of[k].size; i < cuts_after.of[k].size; ++i) {
      dims_after.push_back(cuts_after.of[k][i]);
    }
    const Extents extents = ExtentsAfter(problem_, k, parent);
    if (dims_before.empty() && dims_after.empty()) {
      still *= extents.front();
      continue;
    }
    moved.emplace_back();
    for (int64_t extent : extents) {
      moved.back().emplace_back(problem_, dims_before, dims_after, cut_before, extent);
    }
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

  const auto bytes = [still](__int128 elements) {
    const __int128 product = elements * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  };
  std::array<int64_t, kMaxStateDims> at = {};
  absl::InlinedVector<const MovedDim*, 4> chosen(moved.size());
  const auto visit = [&] {
    __int128 sent = copies;  // elements; never more than 2^31 ranks times 2^63
    __int128 received = 1;
    int64_t sent_messages = copies;
    int64_t received_messages = 1;
    int64_t own = 1;
    int64_t volume = 1;
    for (const MovedDim* dim : chosen) {
      const MovedDim::View view = dim->At(at);
      sent *= view.sent;
      sent_messages *= view.sent_messages;
      received *= view.after;
      received_messages *= view.received_messages;
      own *= view.own;
      volume *= view.before;
    }
    if (op != StepOp::kPermute) {
      const int64_t self = own > 0 ? 1 : 0;
      traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(sent - own));
      traffic->bytes_received = std::max(traffic->bytes_received, bytes(received - own));
      traffic->messages =
          std::max({traffic->messages, sent_messages - self, received_messages - self});
      return;
    }
    // One box out, one box in; nothing where the rank keeps its own.
    bool stays = true;
    for (const MovedDim* dim : chosen) {
      for (size_t i = 0; i < dim->before().size(); ++i) {
        stays &= at[dim->before()[i]] == at[dim->after()[i]];
      }
    }
    for (size_t i = 0; i < only_after.size(); ++i) {
      stays &= at[only_after[i]] == at[only_before[i]];
    }
    if (stays || volume == 0) return;
    traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(volume));
    traffic->bytes_received = traffic->bytes_sent;
    traffic->messages = 1;
  };
  // Every combination of the parent's lengths.
  absl::InlinedVector<size_t, 4> index(moved.size(), 0);
  while (true) {
    for (size_t i = 0; i < moved.size(); ++i) chosen[i] = &moved[i][index[i]];
    ForEachCoordinate(problem_, moving, &at, visit);
    size_t i = moved.size();
    while (i > 0 && ++index[i - 1] == moved[i - 1].size()) index[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace meshift
