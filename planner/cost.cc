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

bool CostModel::RanksAscend(absl::Span<const int> order) const {
  const DeviceMesh& mesh = problem_.mesh();
  if (mesh.IsRowMajor()) return std::is_sorted(order.begin(), order.end());
  // Every group, its members in the order of the cuts.
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;
  for (int d : order) mesh_dims.push_back(problem_.mesh_dim(d));
  std::sort(mesh_dims.begin(), mesh_dims.end());
  int64_t members = 1;
  for (int d : order) members *= problem_.size(d);
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    Coordinate coordinate = mesh.CoordinateAt(position);
    bool first = true;
    for (int d : order) first &= coordinate[problem_.mesh_dim(d)] == 0;
    if (!first) continue;
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
  return RanksAscend(order);
}

Traffic CostModel::Measure(StepOp op, const State& before, const State& after) const {
  Traffic traffic;
  const TopologyConstants& constants = topology_.constants();
  if (op == StepOp::kSlice || op == StepOp::kMask) {
    traffic.est_ns = CopyNs(problem_.MaxBytes(after)) +
                     (op == StepOp::kMask ? CopyNs(problem_.MaxBytes(after)) : 0);
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

// The worst rank's messages of an all_to_all, a permute or an exchange.
//
// Along one tensor dim a rank's interval depends on the coordinates of that dim's cuts alone, so a
// box's volume is a product over tensor dims, and so are sums over all receivers (or senders) whose
// coordinates vary freely. Only the rank itself is enumerated: its coordinates on the moving dims,
// and the lengths that the parent box can have.
void CostModel::MeasureMessages(StepOp op, const State& before, const State& after,
                                Traffic* traffic) const {
  const CutLists cuts_before = problem_.Cuts(before);
  const CutLists cuts_after = problem_.Cuts(after);
  const CutLists parent = CommonBeginning(problem_, cuts_before, cuts_after);
  const DimMask moving = MovingDims(problem_, before, after);
  DimMask cut_before = 0;  // moving dims that are cuts before: holders of other coordinates send
  DimMask cut_after = 0;
  int64_t still = 1;  // elements along tensor dims that nothing moves
  // Tensor dims on which something moves.
  struct MovedDim {
    absl::InlinedVector<int, kMaxStateDims> before;
    absl::InlinedVector<int, kMaxStateDims> after;
    Extents extents;
    int64_t extent = 0;
  };
  absl::InlinedVector<MovedDim, 4> moved;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return;
    MovedDim dim;
    for (int i = parent.of[k].size; i < cuts_before.of[k].size; ++i) {
      dim.before.push_back(cuts_before.of[k][i]);
      cut_before |= DimMask{1} << cuts_before.of[k][i];
    }
    for (int i = parent.of[k].size; i < cuts_after.of[k].size; ++i) {
      dim.after.push_back(cuts_after.of[k][i]);
      cut_after |= DimMask{1} << cuts_after.of[k][i];
    }
    dim.extents = ExtentsAfter(problem_, k, parent);
    if (dim.before.empty() && dim.after.empty()) {
      still *= dim.extents.front();
    } else {
      moved.push_back(std::move(dim));
    }
  }
  int64_t copies = 1;  // receivers alike but for dims that cut nothing after
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(cut_before & ~cut_after, d)) copies *= problem_.size(d);
  }

  std::array<int64_t, kMaxStateDims> at = {};  // the rank's coordinates
  const auto piece = [&](const absl::InlinedVector<int, kMaxStateDims>& cuts, int64_t extent,
                         const std::array<int64_t, kMaxStateDims>& coordinate) {
    Interval interval{0, extent};
    for (int d : cuts) interval = Cut(interval, problem_.size(d), coordinate[d]);
    return interval;
  };
  // Sums over the coordinates of `free` dims among `cuts` of the overlap with `mine`.
  const auto sum_overlaps = [&](const absl::InlinedVector<int, kMaxStateDims>& cuts, DimMask free,
                                int64_t extent, const Interval& mine, int64_t* elements,
                                int64_t* messages) {
    absl::InlinedVector<int, kMaxStateDims> loop;
    for (int d : cuts) {
      if (Has(free, d)) loop.push_back(d);
    }
    std::array<int64_t, kMaxStateDims> other = at;
    for (int d : loop) other[d] = 0;
    *elements = 0;
    *messages = 0;
    while (true) {
      const int64_t overlap = Overlap(mine, piece(cuts, extent, other));
      *elements += overlap;
      *messages += overlap > 0 ? 1 : 0;
      size_t i = loop.size();
      while (i > 0 && ++other[loop[i - 1]] == problem_.size(loop[i - 1])) other[loop[--i]] = 0;
      if (i == 0) return;
    }
  };

  const auto bytes = [&](__int128 elements) {
    const __int128 product = elements * (still * problem_.item_bytes());
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  };
  const auto visit = [&] {
    __int128 sent = copies;  // elements; never more than 2^31 ranks times 2^63
    int64_t sent_messages = copies;
    __int128 received = 1;
    int64_t received_messages = 1;
    int64_t own = 1;
    int64_t volume = 1;
    for (const MovedDim& dim : moved) {
      const Interval mine_before = piece(dim.before, dim.extent, at);
      const Interval mine_after = piece(dim.after, dim.extent, at);
      own *= Overlap(mine_before, mine_after);
      volume *= mine_before.Length();
      int64_t elements = 0;
      int64_t messages = 0;
      sum_overlaps(dim.after, cut_before, dim.extent, mine_before, &elements, &messages);
      sent *= elements;
      sent_messages *= messages;
      sum_overlaps(dim.before, cut_before, dim.extent, mine_after, &elements, &messages);
      received *= elements;
      received_messages *= messages;
    }
    const int64_t self = own > 0 ? 1 : 0;
    if (op == StepOp::kPermute) {
      // One box out, one box in; nothing where the rank keeps its own.
      bool stays = true;
      const auto sorted = [&](DimMask mask) {
        absl::InlinedVector<int, kMaxStateDims> dims;
        for (int d = 0; d < problem_.num_dims(); ++d) {
          if (Has(mask, d)) dims.push_back(d);
        }
        std::stable_sort(dims.begin(), dims.end(),
                         [&](int a, int b) { return problem_.size(a) < problem_.size(b); });
        return dims;
      };
      for (const MovedDim& dim : moved) {
        for (size_t i = 0; i < dim.before.size(); ++i) {
          stays &= at[dim.before[i]] == at[dim.after[i]];
        }
      }
      const auto only_after = sorted(cut_after & ~cut_before);
      const auto only_before = sorted(cut_before & ~cut_after);
      for (size_t i = 0; i < only_after.size(); ++i) {
        stays &= at[only_after[i]] == at[only_before[i]];
      }
      if (stays || volume == 0) return;
      traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(volume));
      traffic->bytes_received = traffic->bytes_sent;
      traffic->messages = 1;
      return;
    }
    traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(sent - own));
    traffic->bytes_received = std::max(traffic->bytes_received, bytes(received - own));
    traffic->messages =
        std::max({traffic->messages, sent_messages - self, received_messages - self});
  };

  // Coordinates of a large mesh dim that are worth a look: the ends and the middle.
  const auto coordinates = [&](int d) {
    const int64_t n = problem_.size(d);
    absl::InlinedVector<int64_t, kMaxCoordinates> list;
    for (int64_t i = 0; i < n; ++i) {
      if (n <= kMaxCoordinates || i < 4 || i >= n - 4) list.push_back(i);
      if (n > kMaxCoordinates && i == 4) {
        list.push_back(n / 2);
        i = n - 5;
      }
    }
    return list;
  };
  const std::function<void(int)> each_coordinate = [&](int d) {
    while (d < problem_.num_dims() && !Has(moving, d)) ++d;
    if (d == problem_.num_dims()) {
      visit();
      return;
    }
    for (int64_t i : coordinates(d)) {
      at[d] = i;
      each_coordinate(d + 1);
    }
    at[d] = 0;
  };
  const std::function<void(size_t)> each_extent = [&](size_t k) {
    if (k == moved.size()) {
      each_coordinate(0);
      return;
    }
    for (int64_t extent : moved[k].extents) {
      moved[k].extent = extent;
      each_extent(k + 1);
    }
  };
  each_extent(0);
}

}  // namespace meshift
