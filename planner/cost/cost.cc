#include "planner/cost/cost.h"

#include <algorithm>

#include "base/checked_math.h"
#include "planner/cost/cost_cuts.h"
#include "planner/graph/geometry.h"

namespace meshift {
namespace {

// Work of a step that is priced, besides lists of ranks and pieces.
constexpr int64_t kPriceWork = 256;
// Of a rank whose place in its group or its box is looked up.
constexpr int64_t kRankWork = 8;
// A mesh of more ranks in another order than row-major has too many groups to list for a bound.
constexpr int64_t kManyRanks = 256;

// Whether the box that `cuts` leave at a coordinate of the mesh is empty.
bool HoldsNothing(const Problem& problem, const CutLists& cuts, const Coordinate& coordinate) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    Interval interval{0, problem.extent(k)};
    for (int i = 0; i < cuts.of[k].size; ++i) {
      const int64_t index = coordinate[problem.mesh_dim(cuts.of[k][i])];
      interval = Cut(problem, cuts.of[k], i, interval, index);
    }
    if (interval.Length() == 0) return true;
  }
  return false;
}

}  // namespace

CostModel::CostModel(const Problem& problem, const Topology& topology, const CostOptions& options)
    : problem_(problem),
      topology_(topology),
      options_(options),
      shapes_(size_t{1} << problem.num_dims()),
      stages_(options.reduce_block > 0 ? shapes_.size() : 0) {}

int64_t CostModel::GroupSize(DimMask dims) const {
  int64_t size = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims, d)) size *= problem_.size(d);
  }
  return size;
}

int64_t CostModel::NumGroups(DimMask dims) const {
  return problem_.mesh().NumRanks() / GroupSize(dims);
}

const GroupShape& CostModel::ShapeAnew(DimMask dims) const {
  return shapes_[dims].emplace(MakeShape(GroupsOver(dims)));
}

RankGroups CostModel::GroupsOver(DimMask dims) const {
  RankGroups groups{.size = GroupSize(dims)};
  if (topology_.NumLevels() == 1) return groups;  // all lie alike
  if (!problem_.mesh().IsRowMajor()) {
    if (problem_.Charge(kRankWork, problem_.mesh().NumRanks())) groups.ranks = RanksOver(dims);
    return groups;
  }
  int64_t stride = 1;
  for (int d = problem_.num_dims() - 1; d >= 0; --d) {
    if (HasDim(dims, d)) groups.modes.push_back({problem_.size(d), stride});
    stride *= problem_.size(d);
  }
  return groups;
}

std::vector<std::vector<int64_t>> CostModel::RanksOver(DimMask dims) const {
  absl::InlinedVector<int, kMaxStateDims> mesh_dims;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims, d)) mesh_dims.push_back(problem_.mesh_dim(d));
  }
  return problem_.mesh().Groups(mesh_dims);
}

GroupShape CostModel::MakeShape(const RankGroups& groups) const {
  return ShapeOf(topology_, problem_.mesh().NumRanks(), groups, problem_.budget());
}

int64_t CostModel::LeastHopNs(int level) const {
  int64_t least = topology_.level(level).latency_ns;
  for (++level; level < topology_.NumLevels(); ++level) {
    least = std::min(least, topology_.level(level).latency_ns);
  }
  return least;
}

// DirectNs() charges a member's bytes to n - 1 others as if all messages were of one size: at least
// (n - s) / (n - 1) of them cross, where s is the fewest members that a domain holds.
int64_t CostModel::BestBandwidth(int level) const {
  const int64_t bandwidth = topology_.level(level).bandwidth_bytes_per_us;
  if (level == 0) return bandwidth;
  const int64_t ranks = problem_.mesh().NumRanks();
  // That part is least for a group that fills two domains.
  const int64_t domain = std::min(topology_.level(level - 1).domain_size, ranks);
  int64_t best = MulDivCeil(bandwidth, 2 * domain - 1, domain);
  if (options_.reduce_block > 0 || (!problem_.mesh().IsRowMajor() && ranks > kManyRanks)) {
    return best;
  }
  best = bandwidth;
  for (DimMask dims = 1; dims < DimMask{1} << problem_.num_dims(); ++dims) {
    const GroupShape& shape = Shape(dims);
    const int64_t sharing = shape.sharing[level - 1];
    if (sharing == 0) continue;
    best = std::max(best, MulDivCeil(bandwidth, shape.size - 1, shape.size - sharing));
  }
  return best;
}

int64_t CostModel::MaxTransferBytes(int64_t ns) const {
  if (ns < 0) return -1;
  const __int128 bytes =
      static_cast<__int128>(ns) * topology_.level(0).bandwidth_bytes_per_us / 1000;
  return bytes > INT64_MAX ? INT64_MAX : static_cast<int64_t>(bytes);
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

bool CostModel::RanksAscend(absl::Span<const int> order, const CutLists& parent) const {
  const DeviceMesh& mesh = problem_.mesh();
  if (mesh.IsRowMajor()) return std::is_sorted(order.begin(), order.end());
  if (!problem_.Charge(kRankWork, mesh.NumRanks())) return true;
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
// other in ascending order of ranks: so they do where they are one index long on all tensor dims
// before the last that is cut.
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
    open &= ExtentsAfter(problem_, k, cut).front() == 1;
  }
  return RanksAscend(order, parent);
}

bool CostModel::IsChosenGather(const State& before, const State& after) const {
  if (!options_.ragged || !problem_.HasRagged()) return false;
  const CutLists from = problem_.Cuts(before);
  const CutLists to = problem_.Cuts(after);
  bool ragged = false;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (CommonLength(from.of[k], to.of[k]) < to.of[k].size) return false;
    ragged |= to.of[k].size == 0 && from.of[k].outermost != CutSizes::kCeil;
  }
  return ragged;
}

Traffic CostModel::Measure(StepOp op, const State& before, const State& after) const {
  Traffic traffic;
  const TopologyConstants& constants = topology_.constants();
  if (op == StepOp::kSlice || op == StepOp::kMask) {
    const int64_t copy_ns = CopyNs(problem_.MaxBytes(after));
    traffic.est_ns = op == StepOp::kMask ? SaturatingAdd(copy_ns, copy_ns) : copy_ns;
    return traffic;
  }
  if (op == StepOp::kCast) {
    traffic.est_ns = CopyNs(SaturatingAdd(problem_.MaxBytes(before), problem_.MaxBytes(after)) / 2);
    return traffic;
  }
  if (!problem_.Charge(kPriceWork)) return traffic;
  const CutLists cuts_before = problem_.Cuts(before);
  const CutLists cuts_after = problem_.Cuts(after);
  DimMask dims = 0;
  if (IsReduction(op)) {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (before.IsPartial(d) && !after.IsPartial(d)) dims |= DimMask{1} << d;
    }
  } else {
    for (int k = 0; k < problem_.tensor_rank(); ++k) {
      const int common = CommonLength(cuts_before.of[k], cuts_after.of[k]);
      for (const CutLists::List* list : {&cuts_before.of[k], &cuts_after.of[k]}) {
        for (int i = common; i < list->size; ++i) dims |= DimMask{1} << (*list)[i];
      }
    }
  }
  const GroupShape& shape = Shape(dims);
  const int64_t n = shape.size;
  const int64_t start = constants.collective_latency_ns;
  const bool even = IsEven(problem_, cuts_before, cuts_after);
  if (options_.ordered && IsReduction(op)) {
    traffic.sizes = even ? StepSizes::kEven : StepSizes::kExact;
    MeasureOrdered(op, before, after, shape, &traffic);
    const std::optional<Stages>& stages = StagesOf(dims);
    if (!stages) return traffic;
    const Traffic staged = MeasureStages(op, before, after, *stages, even);
    return Choose(op, before, after, traffic, staged);
  }
  switch (op) {
    case StepOp::kAllReduce:
      traffic.sizes = StepSizes::kEven;
      traffic.bytes_sent = MulDivCeil(problem_.MaxBytes(before), 2 * (n - 1), n);
      traffic.bytes_received = traffic.bytes_sent;
      traffic.est_ns =
          SaturatingAdd(start + 2 * shape.latency_ns, RingNs(shape, traffic.bytes_sent));
      return traffic;
    case StepOp::kReduceScatter:
      return MeasureBlocks(/*gather=*/false, before, after, dims);
    case StepOp::kAllGather:
      return MeasureBlocks(/*gather=*/true, after, before, dims);
    default:
      break;
  }
  traffic.sizes = even ? StepSizes::kEven : StepSizes::kExact;
  const int64_t item_bytes = problem_.item_bytes(before.stage());
  if (!even || !MeasureEvenMessages(op, cuts_before, cuts_after, item_bytes, &traffic)) {
    MeasureMessages(op, cuts_before, cuts_after, item_bytes, &traffic);
  }
  const int64_t bytes = std::max(traffic.bytes_sent, traffic.bytes_received);
  traffic.est_ns =
      SaturatingAdd(start + shape.latency_ns + constants.message_latency_ns * traffic.messages,
                    DirectNs(shape, bytes, traffic.messages));
  if (traffic.send_packs) traffic.send_pack_bytes = traffic.bytes_sent;
  // What stays is copied along with what is packed.
  if (traffic.send_packs || traffic.bytes_kept > 0) {
    traffic.est_ns = SaturatingAdd(
        traffic.est_ns, CopyNs(SaturatingAdd(traffic.send_pack_bytes, traffic.bytes_kept)));
  }
  if (traffic.receive_packs) {
    traffic.receive_pack_bytes = traffic.bytes_received;
    traffic.est_ns = SaturatingAdd(traffic.est_ns, CopyNs(traffic.bytes_received));
  }
  return traffic;
}

}  // namespace meshift
