// Collectives whose members have a block each: gathers, scatters, and reductions in order.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/cost_cuts.h"
#include "planner/graph/geometry.h"

namespace meshift {

using cost_internal::IsRaggedBehind;

int64_t CostModel::ItemsButSmallest(const CutLists& parent, const CutLists& cut) const {
  // Boxes are products, so the largest difference is that of some choice of the parent's extents.
  struct Choice {
    int64_t whole;
    int64_t least;
  };
  __int128 most = 0;
  std::vector<Choice> products = {{1, 1}};
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const CutLists::List& list = cut.of[k];
    std::vector<Choice> next;
    for (const int64_t extent : ExtentsAfter(problem_, k, parent)) {
      // The lengths, 0 among them, of the pieces of this extent.
      std::vector<int64_t> lengths = {extent};
      for (int i = parent.of[k].size; i < list.size; ++i) {
        // Of ceil chunks the last is the shortest, and those that are other than it, but for one
        // between it and empty ones, are as the first.
        const int64_t n = problem_.size(list[i]);
        const bool ceil = i > 0 || list.outermost == CutSizes::kCeil;
        const int64_t step = ceil ? std::max<int64_t>(n - 1, 1) : 1;
        std::vector<int64_t> pieces;
        const int64_t num_lengths = std::ssize(lengths);
        if (!problem_.Charge(num_lengths, CeilDiv(n, step))) return 0;
        for (const int64_t length : lengths) {
          for (int64_t j = 0; j < n; j += step) {
            pieces.push_back(Cut(problem_, list, i, {0, length}, j).Length());
          }
        }
        std::sort(pieces.begin(), pieces.end());
        pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
        lengths = std::move(pieces);
      }
      if (!problem_.Charge(2, std::ssize(products))) return 0;
      for (const Choice& product : products) {
        next.push_back(
            {SaturatingMul(product.whole, extent), SaturatingMul(product.least, lengths.front())});
      }
      // Of a tensor dim that nothing cuts, the longest is the worst.
      if (list.size == parent.of[k].size) break;
    }
    products = std::move(next);
  }
  for (const Choice& product : products) {
    most = std::max<__int128>(most, product.whole - product.least);
  }
  return static_cast<int64_t>(most);
}

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
      traffic.bytes_sent =
          SaturatingMul(ItemsButSmallest(parent, cut), problem_.item_bytes(cut_state.stage()));
      // A broadcast from, or a reduction to, each member.
      traffic.TakeMessages(SaturatingMul(n, MessageNs()));
    }
    traffic.bytes_received = traffic.bytes_sent;
    traffic.Take(times.Blocks(traffic.bytes_sent));
    if (padded || !IsConsecutive(parent, cut)) {
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
  // Ceil chunks hardly differ, so that padding costs little.
  const Traffic padded = measure(StepSizes::kPadded);
  bool ragged = false;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    ragged |= IsRaggedBehind(parent.of[k], cut.of[k]);
  }
  if (!ragged || options_.ragged == StepSizes::kPadded) return padded;
  const Traffic exact = measure(StepSizes::kExact);
  if (options_.ragged == StepSizes::kExact) return exact;
  return gather ? Choose(StepOp::kAllGather, cut_state, parent_state, padded, exact)
                : Choose(StepOp::kReduceScatter, parent_state, cut_state, padded, exact);
}

// Slices go to their owners, who combine them; an all_reduce gathers the results. Who owns most of
// a value sends most of an all_reduce, who owns least, most of a reduce_scatter.
void CostModel::MeasureOrdered(StepOp op, const State& before, const State& after,
                               const GroupTimes& times, Traffic* traffic) const {
  const int64_t n = times.shape().size;
  const int64_t item = problem_.item_bytes(before.stage());
  const int64_t items = problem_.MaxItems(before);
  const int64_t own = op == StepOp::kAllReduce ? CeilDiv(items, n) : problem_.MaxItems(after);
  const auto bytes = [item](int64_t count) { return SaturatingMul(count, item); };
  const auto take_messages = [&](int64_t sent) {
    traffic->Take(times.Direct(sent, n - 1));
    traffic->TakeMessages(MessageNs() * (n - 1));
  };
  const int64_t received = bytes(SaturatingMul(n - 1, own));
  traffic->receive_pack_bytes = bytes(SaturatingMul(n, own));
  traffic->bytes_received = received;
  // A rank's own slice is put among the others; then all are read.
  traffic->TakeCopy(CopyNs(bytes(own)));
  traffic->TakeCopy(CopyNs(traffic->receive_pack_bytes));
  if (op == StepOp::kAllReduce) {
    const int64_t scattered = bytes(items - own);
    traffic->bytes_sent = SaturatingAdd(scattered, received);
    traffic->bytes_received = SaturatingAdd(received, scattered);
    take_messages(std::max(scattered, received));
    if (items % n == 0) {
      traffic->Take(times.Blocks(received));
    } else {
      take_messages(received);
    }
    return;
  }
  const CutLists parent = problem_.Cuts(before);
  const CutLists cut = problem_.Cuts(after);
  traffic->bytes_sent = bytes(ItemsButSmallest(parent, cut));
  take_messages(std::max(traffic->bytes_sent, received));
  if (!IsConsecutive(parent, cut)) {
    traffic->send_pack_bytes = traffic->bytes_sent;
    traffic->TakeCopy(CopyNs(traffic->bytes_sent));
  }
}

}  // namespace meshift
