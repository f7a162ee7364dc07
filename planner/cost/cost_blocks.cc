// Implements CostModel::MeasureBlocks() and MeasureOrdered(): the prices of all_gather,
// reduce_scatter and ordered reductions in one stage, in which each member owns one slice.
// cost_stages.cc has ordered reductions in two stages. planner/cost/cost.h has the limits.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/graph/geometry.h"

namespace meshift {

namespace {

// Whether the box of `cuts` at a coordinate of the mesh is empty.
bool HoldsNothing(const Problem& problem, const CutLists& cuts, const Coordinate& coordinate) {
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    Interval piece{0, problem.extent(k)};
    for (int i = 0; i < cuts.of[k].size; ++i) {
      const int64_t index = coordinate[problem.mesh_dim(cuts.of[k][i])];
      piece = CutOf(problem, cuts.of[k], i).Piece(piece, index);
    }
    if (piece.Length() == 0) return true;
  }
  return false;
}

// Whether the ranks of every group with a nonempty box ascend in the order of these mesh dims.
bool RanksAscend(const Problem& problem, absl::Span<const int> order, const CutLists& parent) {
  const DeviceMesh& mesh = problem.mesh();
  if (mesh.IsRowMajor()) return std::is_sorted(order.begin(), order.end());
  if (!problem.Charge(kRankLookupWork, mesh.NumRanks())) return true;
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    Coordinate at = mesh.CoordinateAt(position);
    if (HoldsNothing(problem, parent, at)) continue;
    // The next member of its group, in the order of the cuts.
    size_t i = order.size();
    for (; i > 0; --i) {
      int64_t& coordinate = at[problem.mesh_dim(order[i - 1])];
      if (++coordinate < problem.size(order[i - 1])) break;
      coordinate = 0;
    }
    if (i > 0 && mesh.RankAt(at) < mesh.RankAt(position)) return false;
  }
  return true;
}

// Whether, in every group, the pieces of `cut` are contiguous in the parent's box in ascending
// order of ranks: they must have length 1 on all tensor dims before the last one that is cut.
bool IsConsecutive(const Problem& problem, const CutLists& parent, const CutLists& cut) {
  absl::InlinedVector<int, kMaxStateDims> order;
  bool open = true;  // pieces have length 1 along every tensor dim so far
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (problem.extent(k) == 0) return true;
    if (parent.of[k].size < cut.of[k].size && !open) return false;
    for (int i = parent.of[k].size; i < cut.of[k].size; ++i) order.push_back(cut.of[k][i]);
    open = open && PieceLengths(problem.extent(k), NestOf(problem, cut.of[k])).front() == 1;
  }
  return RanksAscend(problem, order, parent);
}

// The most items that the members of a group hold together, without the smallest box.
int64_t ItemsButSmallest(const Problem& problem, const CutLists& parent, const CutLists& cut) {
  // Boxes are products over tensor dims. The maximum is over all choices of the parent's lengths.
  struct Choice {
    int64_t whole;
    int64_t least;
  };
  std::vector<Choice> products = {{1, 1}};
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    const CutLists::List& list = cut.of[k];
    const int common = parent.of[k].size;
    const Nest cuts = NestOf(problem, list, common, list.size);
    std::vector<Choice> next;
    for (const int64_t whole : PieceLengths(problem.extent(k), NestOf(problem, list, 0, common))) {
      const int64_t least = PieceLengths(whole, cuts).back();
      if (!problem.Charge(2, std::ssize(products))) return 0;
      for (const Choice& product : products) {
        next.push_back({SaturatingMul(product.whole, whole), SaturatingMul(product.least, least)});
      }
      // On a tensor dim without further cuts the longest length is the worst.
      if (cuts.empty()) break;
    }
    products = std::move(next);
  }
  int64_t most = 0;
  for (const Choice& product : products) most = std::max(most, product.whole - product.least);
  return most;
}

// The members that have a block, at most.
int64_t NumBlocks(const Problem& problem, const CutLists& parent, const CutLists& cut) {
  int64_t blocks = 1;
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    if (k < problem.num_unit_dims()) continue;
    for (int i = parent.of[k].size; i < cut.of[k].size; ++i) {
      const Cut piece = CutOf(problem, cut.of[k], i);
      int64_t owners = piece.begins.empty() ? piece.size : 0;
      for (size_t j = 1; j < piece.begins.size(); ++j) {
        owners += piece.begins[j] > piece.begins[j - 1] ? 1 : 0;
      }
      blocks = SaturatingMul(blocks, owners);
    }
  }
  return blocks;
}

}  // namespace

Traffic CostModel::MeasureBlocks(bool gather, const State& parent_state, const State& cut_state,
                                 DimMask dims) const {
  const GroupTimes& times = Times(dims);
  const int64_t n = times.shape().size;
  const CutLists parent = problem_.Cuts(parent_state);
  const CutLists cut = problem_.Cuts(cut_state);
  const int64_t block = problem_.MaxBytes(cut_state);
  const auto measure = [&](StepSizes sizes) {
    const bool padded = sizes == StepSizes::kPadded;
    const bool exact = sizes == StepSizes::kExact;
    Traffic traffic;
    traffic.sizes = sizes;
    traffic.bytes_sent = SaturatingMul(n - 1, block);
    if (exact) {
      traffic.bytes_sent = SaturatingMul(ItemsButSmallest(problem_, parent, cut),
                                         problem_.item_bytes(cut_state.stage()));
      // The engine calls a broadcast from, or a reduction to, each member that has a block.
      traffic.TakeMessages(SaturatingMul(NumBlocks(problem_, parent, cut), MessageNs()));
    }
    traffic.bytes_received = traffic.bytes_sent;
    traffic.Take(times.Blocks(traffic.bytes_sent));
    if (padded || !IsConsecutive(problem_, parent, cut)) {
      int64_t& all = gather ? traffic.receive_pack_bytes : traffic.send_pack_bytes;
      int64_t& own = gather ? traffic.send_pack_bytes : traffic.receive_pack_bytes;
      all = exact ? problem_.MaxBytes(parent_state) : SaturatingMul(n, block);
      traffic.TakeCopy(CopyNs(all));
      if (padded) {
        own = block;
        traffic.TakeCopy(CopyNs(own));
      }
    }
    return traffic;
  };
  if (IsEven(problem_, parent, cut)) return measure(StepSizes::kEven);
  const Traffic padded = measure(StepSizes::kPadded);
  if (!HasUnlikeBlocks(problem_, parent, cut)) return padded;
  // The option is about ragged cuts, not about owners.
  bool owned = false;
  for (int k = 0; k < problem_.num_unit_dims(); ++k) owned |= cut.of[k].size > parent.of[k].size;
  if (!owned && options_.ragged == StepSizes::kPadded) return padded;
  const Traffic exact = measure(StepSizes::kExact);
  if (!owned && options_.ragged == StepSizes::kExact) return exact;
  return gather ? Choose(StepOp::kAllGather, cut_state, parent_state, padded, exact)
                : Choose(StepOp::kReduceScatter, parent_state, cut_state, padded, exact);
}

// Each rank sends slices to their owners, which combine them. An all_reduce then gathers the
// results. The owner of the largest slice sends most in an all_reduce, the owner of the smallest
// one in a reduce_scatter.
void CostModel::MeasureOrdered(StepOp op, const State& before, const State& after,
                               const GroupTimes& times, Traffic* traffic) const {
  const int64_t n = times.shape().size;
  const int64_t item = problem_.item_bytes(before.stage());
  const int64_t items = problem_.MaxItems(before);
  const int64_t own = op == StepOp::kAllReduce ? CeilDiv(items, n) : problem_.MaxItems(after);
  const auto bytes = [item](int64_t count) { return SaturatingMul(count, item); };
  const int64_t received = bytes(SaturatingMul(n - 1, own));
  traffic->receive_pack_bytes = bytes(SaturatingMul(n, own));
  traffic->bytes_received = received;
  // A rank copies its own slice next to the received ones, then reads all of them.
  traffic->TakeCopy(CopyNs(bytes(own)));
  traffic->TakeCopy(CopyNs(traffic->receive_pack_bytes));
  if (op == StepOp::kAllReduce) {
    const int64_t scattered = bytes(items - own);
    traffic->bytes_sent = SaturatingAdd(scattered, received);
    traffic->bytes_received = SaturatingAdd(received, scattered);
    TakeMessages(times, std::max(scattered, received), n - 1, traffic);
    if (items % n == 0) {
      traffic->Take(times.Blocks(received));
    } else {
      TakeMessages(times, received, n - 1, traffic);
    }
    return;
  }
  const CutLists parent = problem_.Cuts(before);
  const CutLists cut = problem_.Cuts(after);
  traffic->bytes_sent = bytes(ItemsButSmallest(problem_, parent, cut));
  TakeMessages(times, std::max(traffic->bytes_sent, received), n - 1, traffic);
  if (!IsConsecutive(problem_, parent, cut)) {
    traffic->send_pack_bytes = traffic->bytes_sent;
    traffic->TakeCopy(CopyNs(traffic->bytes_sent));
  }
}

}  // namespace meshift
