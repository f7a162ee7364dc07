#include "planner/search/step_bounds.h"

#include <algorithm>

#include "base/checked_math.h"

namespace meshift {

StepBounds::StepBounds(const Problem& problem, const CostModel& model, CutTable& table)
    : problem_(problem),
      model_(model),
      table_(table),
      num_samples_(table.num_samples()),
      ragged_(problem.HasRagged()) {
  for (int k : problem.candidate_dims()) tensor_dims_[num_lists_++] = k;
  int64_t uncut = 1;  // items along the tensor dims that are never cut
  uint32_t facts = 0;
  for (int k = 0, i = 0; k < problem.tensor_rank(); ++k) {
    if (i < num_lists_ && tensor_dims_[i] == k) {
      uncut_facts_[i++] = facts;
    } else {
      uncut *= problem.extent(k);
      if (problem.extent(k) > 1) facts = kLong | kClosedBefore | kClosedAfter;
    }
  }
  group_sizes_[0] = 1;
  for (DimMask dims = 1; dims < DimMask{1} << problem.num_dims(); ++dims) {
    group_sizes_[dims] = group_sizes_[dims & (dims - 1)] * problem.size(__builtin_ctz(dims));
  }
  Product& empty = products_[0];
  empty = {};
  empty.wanted.fill(uncut);
  empty.after.fill(uncut);
  empty.kept.fill(uncut);
  empty.longest = uncut;
  empty.message = uncut;
  target_from_[num_lists_].fill(1);
  extent_from_[num_lists_] = 1;
  for (int i = num_lists_; i-- > 0;) {
    extent_from_[i] = extent_from_[i + 1] * problem.extent(tensor_dims_[i]);
    for (int s = 0; s < num_samples_; ++s) {
      target_from_[i][s] = target_from_[i + 1][s] * table_.Target(tensor_dims_[i])[s];
    }
  }
  for (int s = 0; s < num_samples_; ++s) target_[s] = uncut * target_from_[0][s];
}

void StepBounds::Start(const Lists& before) {
  if (started_ && before == before_) return;
  started_ = true;
  before_ = before;
  num_compared_ = 0;
  block_before_ = empty().longest;
  before_items_.fill(empty().longest);
  before_from_[num_lists_] = 1;
  for (int i = num_lists_; i-- > 0;) {
    const CutTable::Pieces& pieces = table_.Along(before[i], tensor_dims_[i]);
    before_pieces_[i] = &pieces;
    before_from_[i] = before_from_[i + 1] * pieces.length[0];
    block_before_ *= pieces.longest;
    for (int s = 0; s < num_samples_; ++s) before_items_[s] *= pieces.length[s];
  }
}

void StepBounds::Fill(int i, List after, Factor* factor) {
  const int k = tensor_dims_[i];
  const List before = before_[i];
  const CutTable::Pieces& a = *before_pieces_[i];
  const CutTable::Pieces& b = table_.Along(after, k);
  factor->after = &b;
  factor->message = std::min(a.longest, b.longest);
  factor->code = table_.Code(after, k);
  factor->across = table_.Across(after, k);
  factor->from = 0;
  factor->to = 0;
  factor->facts = 0;
  factor->facts_if_long = 0;
  factor->facts_if_closed = 0;
  factor->facts_if_closed_after = 0;
  if (a.longest > 1) factor->facts |= kClosedBefore;
  if (b.longest > 1) factor->facts |= kClosedAfter;
  for (int s = 0; s < num_samples_; ++s) {
    const int64_t begin = std::max(a.begin[s], b.begin[s]);
    factor->kept[s] = std::max<int64_t>(std::min(a.end[s], b.end[s]) - begin, 0);
  }
  if (before == after) {
    if (a.longest > 1) factor->facts |= kLong;
    return;
  }
  const List common = table_.Common(before, after);
  factor->from = table_.dims(before) & ~table_.dims(common);
  factor->to = table_.dims(after) & ~table_.dims(common);
  if (factor->from != 0) factor->facts_if_closed = kGatherPacks;
  if (factor->to != 0) factor->facts_if_closed_after = kScatterPacks;
  // The longest pieces before and after begin where their parent does, unless they are ragged.
  if (ragged_ && common == CutTable::kNoCuts) return;
  if (factor->message > 1) factor->facts |= kLong;
  if (b.longest < a.longest) factor->facts_if_long |= kSendPacks;
  if (a.longest < b.longest) factor->facts_if_long |= kReceivePacks;
  // A gather adds no cuts; a scatter removes none.
  if (factor->to == 0 && b.longest % GroupSize(factor->from) != 0) factor->facts |= kGatherPads;
  if (factor->from == 0 && a.longest % GroupSize(factor->to) != 0) factor->facts |= kScatterPads;
}

int64_t StepBounds::LeastNs(StepOp op, int stage, DimMask dims, const Product& product) const {
  const int64_t bytes = SaturatingMul(product.longest, problem_.item_bytes(stage));
  switch (op) {
    case StepOp::kCast:
    case StepOp::kMask:
    case StepOp::kRelabel:
      return model_.CopyNs(0);
    case StepOp::kSlice:
      return model_.CopyNs(bytes);
    case StepOp::kAllReduce: {
      const GroupTimes& times = model_.Times(dims);
      if (!model_.ordered()) return times.AllReduce(bytes).Ns();
      const int64_t n = GroupSize(dims);
      return SaturatingAdd(times.LeastStartNs(),
                           model_.TransferNs(MulDivFloor(bytes, 2 * (n - 1), n)));
    }
    case StepOp::kReduceScatter:
      return LeastScatterNs(stage, product);
    default:
      return LeastMoveNs(op, stage, product);
  }
}

int64_t StepBounds::LeastMoveNs(StepOp op, int stage, const Product& product) const {
  const int64_t item_bytes = problem_.item_bytes(stage);
  const DimMask dims = product.from | product.to;
  const int64_t moved = Moved(product);
  const GroupTimes& times = model_.Times(dims);
  if (op == StepOp::kAllGather) {
    const int64_t n = GroupSize(product.from);
    const int64_t block = SaturatingMul(block_before_, item_bytes);
    if (ragged_) return times.Blocks(SaturatingMul(moved, item_bytes)).Ns();
    int64_t ns = times.Blocks(SaturatingMul(n - 1, block)).Ns();
    if (block > 0 && (product.facts & (kGatherPacks | kGatherPads)) != 0) {
      ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(n, block)));
    }
    return block > 0 && (product.facts & kGatherPads) != 0 ? SaturatingAdd(ns, model_.CopyNs(block))
                                                           : ns;
  }
  if (op == StepOp::kPermute) {
    if (moved == 0) return times.Direct(0, 0).Ns();
    return SaturatingAdd(times.Direct(SaturatingMul(moved, item_bytes), 1).Ns(),
                         model_.MessageNs());
  }
  int64_t sent = 0;
  int64_t most_kept = 0;
  const bool sends_all = (product.to & ~product.from) == 0;
  const int64_t copies = sends_all ? GroupSize(product.from & ~product.to) : 0;
  for (int s = 0; s < num_samples_; ++s) {
    most_kept = std::max(most_kept, product.kept[s]);
    sent = std::max(sent, copies * before_items_[s] - product.kept[s]);
  }
  // A member sends at most one message to each other member.
  int64_t ns =
      times.Direct(SaturatingMul(std::max(sent, moved), item_bytes), GroupSize(dims) - 1).Ns();
  if (moved > 0) {
    ns = SaturatingAdd(ns, SaturatingMul(model_.MessageNs(), CeilDiv(moved, product.message)));
  }
  if (block_before_ == 0) return ns;  // all boxes are empty
  const bool send_packs = (product.facts & kSendPacks) != 0;
  if (most_kept > 0 || send_packs) {
    const int64_t packed = send_packs ? sent : 0;
    ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(most_kept + packed, item_bytes)));
  }
  if ((product.facts & kReceivePacks) != 0) {
    ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(moved, item_bytes)));
  }
  return ns;
}

int64_t StepBounds::LeastScatterNs(int stage, const Product& product) const {
  const int64_t n = GroupSize(product.to);
  const int64_t block = SaturatingMul(product.longest, problem_.item_bytes(stage));
  const int64_t received = SaturatingMul(n - 1, block);
  const GroupTimes& times = model_.Times(product.to);
  // An ordered reduction sends slices as messages. Its packing is not bounded here.
  if (model_.ordered()) {
    return SaturatingAdd(times.LeastStartNs(), model_.TransferNs(received));
  }
  if (ragged_) {
    // Without padding some member sends all blocks but the smallest, which has at most 1/n of them.
    const int64_t items = block_before_ - block_before_ / n;
    return times.Blocks(SaturatingMul(items, problem_.item_bytes(stage))).Ns();
  }
  int64_t ns = times.Blocks(received).Ns();
  if (block == 0) return ns;
  if ((product.facts & (kScatterPacks | kScatterPads)) != 0) {
    ns = SaturatingAdd(ns, model_.CopyNs(SaturatingMul(n, block)));
  }
  return (product.facts & kScatterPads) != 0 ? SaturatingAdd(ns, model_.CopyNs(block)) : ns;
}

}  // namespace meshift
