#include "planner/verifier/bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/verifier/boxes.h"

namespace meshift::verifier_internal {
namespace {

// The cuts that a reduce_scatter adds or an all_gather removes.
const Cuts& ScatteredCuts(const StepView& view, const CutChange& cut) {
  return view.step.op == StepOp::kReduceScatter ? cut.after : cut.before;
}

// Whether each member's box on the scattered side is contiguous in the parent's row-major content,
// in the order of the cuts. The last changed tensor dim is cut, so the dims before it must have one
// index.
bool BoxesAreRuns(const StepView& view) {
  const State& scattered = view.step.op == StepOp::kReduceScatter ? view.after : view.before;
  for (int t = 0; t < view.change.cuts.back().tensor_dim; ++t) {
    if (LargestPiece(view.mesh_shape, scattered, t) > 1) return false;
  }
  return true;
}

// Whether, in every group, the ranks ascend in the order of their boxes. `order`: the cuts,
// outermost first. Groups without elements do not count. O(ranks log runs).
bool ListedRanksAscend(const StepView& view, const Cuts& order) {
  const MeshShape& mesh_shape = view.mesh_shape;
  const State& gathered = view.step.op == StepOp::kReduceScatter ? view.before : view.after;
  Cuts all;
  Cuts others;
  for (int d = 0; d < static_cast<int>(mesh_shape.sizes.size()); ++d) {
    if (mesh_shape.sizes[d] == 1) continue;
    all.push_back(d);
    if (!Contains(view.step.mesh_dims, d)) others.push_back(d);
  }
  std::vector<absl::Span<const int>> table_dims = {all};
  std::vector<std::vector<Interval>> parents;
  for (size_t t = 0; t < gathered.cuts.size(); ++t) {
    if (gathered.cuts[t].empty()) continue;
    parents.push_back(Pieces(mesh_shape, mesh_shape.shape[t], gathered.cuts[t], gathered.sizes[t]));
    table_dims.push_back(gathered.cuts[t]);
  }
  Walk groups(mesh_shape, others, table_dims);
  do {
    bool empty = false;
    for (size_t i = 0; i < parents.size(); ++i) {
      empty = empty || parents[i][groups.index(i + 1)].size() == 0;
    }
    if (empty) continue;
    Walk members(mesh_shape, order, {all});
    int64_t last = -1;
    do {
      const int64_t rank =
          mesh_shape.mesh.RankAt(static_cast<int64_t>(groups.index(0) + members.index(0)));
      if (rank < last) return false;
      last = rank;
    } while (members.Next());
  } while (groups.Next());
  return true;
}

bool IsPacked(const StepView& view) {
  if (view.step.sizes == StepSizes::kPadded || !BoxesAreRuns(view)) return true;
  Cuts order;
  for (const CutChange& cut : view.change.cuts) {
    const Cuts& scattered = ScatteredCuts(view, cut);
    order.insert(order.end(), scattered.begin(), scattered.end());
  }
  if (!view.mesh_shape.mesh.IsRowMajor()) return !ListedRanksAscend(view, order);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i] < order[i - 1]) return true;
  }
  return false;
}

// The bytes that a group's members hold together, without the smallest box, in the worst group.
Int128 BytesButSmallest(const StepView& view) {
  const MeshShape& mesh_shape = view.mesh_shape;
  const bool scatters = view.step.op == StepOp::kReduceScatter;
  const State& scattered = scatters ? view.after : view.before;
  struct Group {
    Int128 all = 1;
    Int128 least = 1;
  };
  std::vector<Group> groups = {{}};
  for (const CutChange& cut : view.change.cuts) {
    std::vector<Group> finer;
    for (const int64_t parent : cut.parents) {
      int64_t least = parent;
      for (const Interval& piece : Pieces(mesh_shape, parent, ScatteredCuts(view, cut),
                                          scatters ? cut.sizes_after : cut.sizes_before)) {
        least = std::min(least, piece.size());
      }
      for (const Group& group : groups) finer.push_back({group.all * parent, group.least * least});
    }
    groups = std::move(finer);
  }
  Int128 unchanged = 1;
  for (int t = 0; t < static_cast<int>(scattered.cuts.size()); ++t) {
    const bool changes = std::any_of(view.change.cuts.begin(), view.change.cuts.end(),
                                     [&](const CutChange& cut) { return cut.tensor_dim == t; });
    if (!changes) unchanged *= LargestPiece(mesh_shape, scattered, t);
  }
  Int128 most = 0;
  for (const Group& group : groups) most = std::max(most, group.all - group.least);
  return BytesOfElements(view.before.dtype, most * unchanged);
}

// Bytes sent in a reduction in two stages: scatter inside a block, then across blocks. A column is
// the set of members with the same index in their blocks. A member owns `own` elements of the
// result, and its column `column` elements of `whole`.
struct StageBytes {
  Int128 item;
  Int128 wide_item;  // bytes of an element of a block's sum
  Int128 blocks;
  Int128 block;
  Int128 AllReduce(Int128 whole, Int128 column, Int128 own) const {
    const Int128 scattered = (whole - column) * item + (column - own) * wide_item;
    const Int128 gathered = own * (blocks - 1) + column * (block - 1);
    return scattered + gathered * item;
  }
  // Every member owns as many elements as the largest part.
  Int128 ReduceScatter(Int128 own) const {
    return own * blocks * (block - 1) * item + own * (blocks - 1) * wide_item;
  }
};

void CountStaged(const StepView& view, StepBytes* bytes) {
  const DType dtype = view.before.dtype;
  const DType wide = *view.step.accumulate_dtype;
  const Int128 block = *view.step.reduce_block;
  const Int128 n = view.mesh_shape.GroupSize(view.step.mesh_dims);
  const StageBytes stages{BytesOfElements(dtype, 1), BytesOfElements(wide, 1), n / block, block};
  const Int128 kept = stages.item + (wide == dtype ? 0 : stages.wide_item);
  if (view.step.op == StepOp::kReduceScatter) {
    const Int128 part = LargestLocal(view.mesh_shape, view.after);
    bytes->sent = stages.ReduceScatter(part);
    bytes->to_send = n / block * (block - 1) * part * stages.item;
    bytes->to_receive = n * part * kept;
    return;
  }
  const Int128 whole = LargestLocal(view.mesh_shape, view.before);
  const Int128 slice = (whole + n - 1) / n;
  const auto owned = [&](Int128 from, Int128 count) {
    return std::max<Int128>(0, std::min(whole, from + count) - from);
  };
  // The first column is the longest. Its first member owns the most of it, its last one the least.
  const Int128 column = owned(0, stages.blocks * slice);
  bytes->sent =
      std::max(stages.AllReduce(whole, column, owned(0, slice)),
               stages.AllReduce(whole, column, owned((stages.blocks - 1) * slice, slice)));
  bytes->to_receive = n * slice * kept;
}

// In order: every member gets its part of all contributions; an all_reduce then spreads the
// results. The member with the largest part sends the most in an all_reduce, the one with the
// smallest part in a reduce_scatter.
void CountOrdered(const StepView& view, StepBytes* bytes) {
  if (view.step.reduce_stages) return CountStaged(view, bytes);
  const Int128 n = view.mesh_shape.GroupSize(view.step.mesh_dims);
  if (view.step.op == StepOp::kAllReduce) {
    const Int128 whole = LargestLocal(view.mesh_shape, view.before);
    const Int128 part = (whole + n - 1) / n;
    bytes->sent = BytesOfElements(view.before.dtype, whole - part + (n - 1) * part);
    bytes->to_receive = BytesOfElements(view.before.dtype, n * part);
    return;
  }
  bytes->sent = BytesButSmallest(view);
  bytes->to_receive = n * bytes->out;
  if (IsPacked(view)) bytes->to_send = bytes->sent;
}

}  // namespace

Int128 RoundUp16(Int128 bytes) { return (bytes + 15) / 16 * 16; }

StepBytes BytesOf(const StepView& view) {
  const MeshShape& mesh_shape = view.mesh_shape;
  const Step& step = view.step;
  StepBytes bytes;
  bytes.in = BytesOfElements(view.before.dtype, LargestLocal(mesh_shape, view.before));
  bytes.out = BytesOfElements(view.after.dtype, LargestLocal(mesh_shape, view.after));
  const Int128 n = mesh_shape.GroupSize(step.mesh_dims);
  if (step.reduce_order == ReduceOrder::kAscending) {
    CountOrdered(view, &bytes);
    return bytes;
  }
  const bool exact = step.sizes == StepSizes::kExact;
  switch (step.op) {
    case StepOp::kAllReduce:
      bytes.sent = (2 * bytes.in * (n - 1) + n - 1) / n;
      break;
    case StepOp::kReduceScatter:
      bytes.sent = exact ? BytesButSmallest(view) : (n - 1) * bytes.out;
      if (IsPacked(view)) {
        bytes.to_send = exact ? bytes.in : n * bytes.out;
        if (step.sizes == StepSizes::kPadded) bytes.to_receive = bytes.out;
      }
      break;
    case StepOp::kAllGather:
      bytes.sent = exact ? BytesButSmallest(view) : (n - 1) * bytes.in;
      if (IsPacked(view)) {
        bytes.to_receive = exact ? bytes.out : n * bytes.in;
        if (step.sizes == StepSizes::kPadded) bytes.to_send = bytes.in;
      }
      break;
    case StepOp::kAllToAll:
    case StepOp::kExchange: {
      const Traffic traffic = TrafficOfExchange(mesh_shape, view.before, view.after, view.change);
      bytes.sent = traffic.sent;
      if (!traffic.sent_contiguous) bytes.to_send = traffic.sent;
      if (!traffic.received_contiguous) bytes.to_receive = traffic.received;
      break;
    }
    case StepOp::kPermute:
      bytes.sent = TrafficOfPermute(mesh_shape, view.before, view.change,
                                    *SourcesOfPermute(mesh_shape, view.change))
                       .sent;
      break;
    default:
      break;
  }
  return bytes;
}

Int128 WorkspaceOf(const StepBytes& bytes, bool first, bool last, Int128 scratch) {
  Int128 used = (first ? 0 : RoundUp16(bytes.in)) + (last ? 0 : RoundUp16(bytes.out));
  Int128 left = first ? 0 : scratch;
  for (const Int128 piece : {RoundUp16(bytes.to_send), RoundUp16(bytes.to_receive)}) {
    (piece <= left ? left : used) += piece <= left ? -piece : piece;
  }
  return used;
}

}  // namespace meshift::verifier_internal
