#include "planner/cost/cost.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "planner/cost/cross_cost.h"
#include "planner/graph/geometry.h"
#include "planner/plan/crossing.h"
#include "planner/plan/expanded_plan.h"

namespace meshift {
namespace {

// Work of pricing a step, without lists of ranks and pieces.
constexpr int64_t kPriceWork = 256;
// A mesh of more ranks, not in row-major order, has too many groups to list them for a bound.
constexpr int64_t kManyRanks = 256;

CostOptions OptionsOf(const Step& step) {
  CostOptions options{.ordered = step.reduce_order == ReduceOrder::kAscending,
                      .reduce_block = step.reduce_block.value_or(0)};
  if (step.sizes && *step.sizes != StepSizes::kEven) options.ragged = *step.sizes;
  return options;
}

}  // namespace

int64_t TimeParts::Sum() const {
  const int64_t in_turn = SaturatingAdd(SaturatingAdd(starts_ns, hops_ns), messages_ns);
  return SaturatingAdd(SaturatingAdd(in_turn, links_ns), copies_ns);
}

void Traffic::TakePacks(const Topology& topology) {
  if (send_packs) send_pack_bytes = bytes_sent;
  if (receive_packs) receive_pack_bytes = bytes_received;
  // Kept bytes are copied together with the packed ones.
  if (send_packs || bytes_kept > 0) {
    TakeCopy(CopyNs(topology, SaturatingAdd(send_pack_bytes, bytes_kept)));
  }
  if (receive_packs) TakeCopy(CopyNs(topology, bytes_received));
}

CostModel::CostModel(const Problem& problem, const Topology& topology, const CostOptions& options)
    : problem_(problem),
      topology_(topology),
      options_(options),
      times_(size_t{1} << problem.num_dims()),
      stages_(options.reduce_block > 0 ? times_.size() : 0) {
  SetBounds();
}

// All bytes that a rank receives come over a link of the innermost level, or are bounded as if they
// did. A tree all_reduce uses the links of all levels at once. An in-switch all_reduce brings a
// rank the sum of all contributions, for which other algorithms need up to twice the bytes.
void CostModel::SetBounds() {
  for (const TopologyProtocol& protocol : topology_.protocols()) {
    least_latency_percent_ = std::min(least_latency_percent_, protocol.latency_percent);
  }
  int64_t of_trees = 0;
  int64_t in_switches = 0;
  for (int i = 0; i < topology_.NumLevels(); ++i) {
    const TopologyLevel& level = topology_.level(i);
    if (i == 0) best_bandwidth_ = level.bandwidth_bytes_per_us;
    if (topology_.protocols().empty()) continue;
    of_trees = SaturatingAdd(of_trees, level.bandwidth_bytes_per_us);
    if (level.in_switch_bandwidth_bytes_per_us == 0) continue;
    in_switches = std::max(in_switches, level.in_switch_bandwidth_bytes_per_us);
    if (i > 0) in_switches = std::max(in_switches, best_bandwidth_);
  }
  const int64_t start = topology_.constants().collective_latency_ns;
  for (const TopologyProtocol& protocol : topology_.protocols()) {
    starts_.Add({start + protocol.start_ns, 100, protocol.bandwidth_percent});
  }
  if (topology_.protocols().empty()) starts_.Add({start, 100, 100});
  starts_.Seal();
  reduction_bandwidth_ = std::max({best_bandwidth_, of_trees, SaturatingMul(2, in_switches)});
}

int64_t CostModel::MaxBytes(int64_t ns) const {
  int64_t most = -1;
  for (size_t i = 0; i < starts_.size() && starts_[i].start <= ns; ++i) {
    // The inverse function rounds down, so `ns` may stand for one ns more.
    const int64_t left_ns = SaturatingAdd(ns - starts_[i].start, 1);
    const int64_t links_ns = MulDivFloor(left_ns, starts_[i].over, starts_[i].times) + 1;
    most = std::max(most, SaturatingAdd(MulDivFloor(links_ns, best_bandwidth_, 1000), 1));
  }
  return most;
}

int64_t CostModel::GroupSize(DimMask dims) const {
  int64_t size = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims, d)) size *= problem_.size(d);
  }
  return size;
}

RankGroups CostModel::GroupsOver(DimMask dims) const {
  RankGroups groups{.size = GroupSize(dims)};
  if (topology_.NumLevels() == 1) return groups;  // the ranks do not matter
  if (!problem_.mesh().IsRowMajor()) {
    if (problem_.Charge(kRankLookupWork, problem_.mesh().NumRanks())) {
      groups.ranks = RanksOver(dims);
    }
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

GroupTimes CostModel::MakeTimes(const RankGroups& groups) const {
  return {topology_, ShapeOf(topology_, problem_.mesh().NumRanks(), groups, problem_.budget())};
}

int64_t LeastHopNs(const Topology& topology, int level) {
  int64_t least = INT64_MAX;
  for (; level < topology.NumLevels(); ++level) {
    least = std::min(least, topology.level(level).latency_ns);
  }
  return least;
}

int64_t CostModel::LeastHopNs(int level) const {
  return MulDivFloor(meshift::LeastHopNs(topology_, level), least_latency_percent_, 100);
}

// GroupTimes::Direct charges at least (n - s) / (n - 1) of a member's bytes to n - 1 others to the
// level, where s is the fewest members in one domain.
int64_t CostModel::BestBandwidth(int level, bool reduces) const {
  const TopologyLevel& links = topology_.level(level);
  int64_t direct = links.bandwidth_bytes_per_us;
  int64_t best = reduces ? std::max(direct, links.in_switch_bandwidth_bytes_per_us) : direct;
  if (level == 0) return best;
  if (links.direct_bandwidth_bytes_per_us > 0) {
    direct = std::min(direct, links.direct_bandwidth_bytes_per_us);
  }
  const int64_t ranks = problem_.mesh().NumRanks();
  if (options_.reduce_block > 0 || (!problem_.mesh().IsRowMajor() && ranks > kManyRanks)) {
    // That fraction is least for a group that fills two domains.
    const int64_t domain = std::min(topology_.level(level - 1).domain_size, ranks);
    return std::max(best, MulDivCeil(direct, 2 * domain - 1, domain));
  }
  for (DimMask dims = 1; dims < DimMask{1} << problem_.num_dims(); ++dims) {
    const GroupShape& shape = Times(dims).shape();
    const int64_t sharing = shape.sharing[level - 1];
    if (sharing == 0) continue;
    best = std::max(best, MulDivCeil(direct, shape.size - 1, shape.size - sharing));
  }
  return best;
}

Traffic CostModel::Measure(StepOp op, const State& before, const State& after) const {
  Traffic traffic;
  if (op == StepOp::kSlice || op == StepOp::kMask) {
    const int64_t copy_ns = CopyNs(problem_.MaxBytes(after));
    traffic.TakeCopy(copy_ns);
    if (op == StepOp::kMask) traffic.TakeCopy(copy_ns);
    return traffic;
  }
  if (op == StepOp::kCast) {
    traffic.TakeCopy(
        CopyNs(SaturatingAdd(problem_.MaxBytes(before), problem_.MaxBytes(after)) / 2));
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
    const CutChanges changes(problem_, cuts_before, cuts_after);
    dims = changes.from | changes.to;
  }
  const GroupTimes& times = Times(dims);
  const int64_t n = times.shape().size;
  const bool even = IsEven(problem_, cuts_before, cuts_after);
  if (options_.ordered && IsReduction(op)) {
    traffic.sizes = even ? StepSizes::kEven : StepSizes::kExact;
    MeasureOrdered(op, before, after, times, &traffic);
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
      traffic.Take(times.AllReduce(problem_.MaxBytes(before)));
      return traffic;
    case StepOp::kReduceScatter:
      return MeasureBlocks(/*gather=*/false, before, after, dims);
    case StepOp::kAllGather:
      return MeasureBlocks(/*gather=*/true, after, before, dims);
    default:
      break;
  }
  traffic.sizes = even ? StepSizes::kEven : StepSizes::kExact;
  MeasureMessages(op, cuts_before, cuts_after, even, problem_.item_bytes(before.stage()), &traffic);
  const int64_t bytes = std::max(traffic.bytes_sent, traffic.bytes_received);
  TakeMessages(times, bytes, traffic.messages, &traffic);
  traffic.TakePacks(topology_);
  return traffic;
}

TimeParts TimePartsOf(const Plan& plan, int index, const Topology& topology) {
  const Step& step = plan.steps()[index];
  const Sharding& before = index == 0 ? plan.from() : plan.steps()[index - 1].after;
  TimeParts parts;
  if (!IsCollective(step.op)) {
    parts.copies_ns = step.est_ns;
    parts.copies = 1;
    return parts;
  }
  if (IsCrossing(step)) {
    const Crossing crossing = Crossing::Of(before, step.after, topology);
    return MeasureCrossing(crossing, before, step.after, topology).time;
  }
  // A problem whose source and target are those of the step, with the owners of the whole plan.
  const absl::StatusOr<Problem> problem =
      Problem::Create(before, step.after, before.dtype(), /*ends_at_crossing=*/false,
                      UnitDimsOf(plan.fields()).On(before.mesh()));
  if (!problem.ok()) {  // not a step of a valid plan; even then the parts add up
    parts.links_ns = step.est_ns;
    return parts;
  }
  const CostModel model(*problem, topology, OptionsOf(step));
  return model.Measure(OpOnCuts(step.op), problem->source(), problem->target()).time;
}

}  // namespace meshift
