#include "planner/verifier_bytes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/verifier_boxes.h"

namespace meshift::verifier_internal {
namespace {

// The cuts that a reduce_scatter adds or an all_gather takes away.
const Cuts& ScatteredCuts(const StepView& view, const CutChange& cut) {
  return view.step.op == StepOp::kReduceScatter ? cut.after : cut.before;
}

// Whether the members' boxes on the scattered side, all of one size, are each one run of the
// parent's row-major content. The last changed tensor dim is cut, so those before it must have one
// index.
bool BoxesAreRuns(const StepView& view) {
  const State& scattered = view.step.op == StepOp::kReduceScatter ? view.after : view.before;
  for (int t = 0; t < view.change.cuts.back().tensor_dim; ++t) {
    if (LargestPiece(view.world, view.world.shape[t], scattered.cuts[t]) > 1) return false;
  }
  return true;
}

// Whether all groups' ranks ascend as their boxes do: by `order`, outermost first. Groups without
// elements do not matter. O(ranks log runs).
bool ListedRanksAscend(const StepView& view, const Cuts& order) {
  const World& world = view.world;
  const State& gathered = view.step.op == StepOp::kReduceScatter ? view.before : view.after;
  Cuts all;
  Cuts others;
  for (int d = 0; d < static_cast<int>(world.sizes.size()); ++d) {
    if (world.sizes[d] == 1) continue;
    all.push_back(d);
    if (!Contains(view.step.mesh_dims, d)) others.push_back(d);
  }
  std::vector<absl::Span<const int>> channels = {all};
  std::vector<std::vector<Interval>> parents;
  for (size_t t = 0; t < gathered.cuts.size(); ++t) {
    if (gathered.cuts[t].empty()) continue;
    parents.push_back(Pieces(world, world.shape[t], gathered.cuts[t]));
    channels.push_back(gathered.cuts[t]);
  }
  Walk groups(world, others, channels);
  do {
    bool empty = false;
    for (size_t i = 0; i < parents.size(); ++i) {
      empty = empty || parents[i][groups.index(i + 1)].size() == 0;
    }
    if (empty) continue;
    Walk members(world, order, {all});
    int64_t last = -1;
    do {
      const int64_t rank =
          world.mesh.RankAt(static_cast<int64_t>(groups.index(0) + members.index(0)));
      if (rank < last) return false;
      last = rank;
    } while (members.Next());
  } while (groups.Next());
  return true;
}

bool IsPacked(const StepView& view) {
  if (!IsEven(view) || !BoxesAreRuns(view)) return true;
  Cuts order;
  for (const CutChange& cut : view.change.cuts) {
    const Cuts& scattered = ScatteredCuts(view, cut);
    order.insert(order.end(), scattered.begin(), scattered.end());
  }
  if (!view.world.mesh.IsRowMajor()) return !ListedRanksAscend(view, order);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i] < order[i - 1]) return true;
  }
  return false;
}

Wide RoundUp16(Wide bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

StepBytes BytesOf(const StepView& view) {
  const World& world = view.world;
  const Step& step = view.step;
  StepBytes bytes;
  bytes.in = BytesOfElements(view.before.dtype, LargestLocal(world, view.before));
  bytes.out = BytesOfElements(view.after.dtype, LargestLocal(world, view.after));
  const Wide n = world.GroupSize(step.mesh_dims);
  switch (step.op) {
    case StepOp::kAllReduce:
      bytes.sent = (2 * bytes.in * (n - 1) + n - 1) / n;
      break;
    case StepOp::kReduceScatter:
      bytes.sent = (n - 1) * bytes.out;
      if (IsPacked(view)) {
        bytes.to_send = n * bytes.out;
        if (step.sizes == StepSizes::kPadded) bytes.to_receive = bytes.out;
      }
      break;
    case StepOp::kAllGather:
      bytes.sent = (n - 1) * bytes.in;
      if (IsPacked(view)) {
        bytes.to_receive = n * bytes.in;
        if (step.sizes == StepSizes::kPadded) bytes.to_send = bytes.in;
      }
      break;
    case StepOp::kAllToAll:
    case StepOp::kExchange: {
      const Traffic traffic = TrafficOfExchange(world, view.before, view.after, view.change);
      bytes.sent = bytes.to_send = traffic.sent;
      bytes.to_receive = traffic.received;
      break;
    }
    case StepOp::kPermute:
      bytes.sent =
          TrafficOfPermute(world, view.before, view.change, *SourcesOfPermute(world, view.change))
              .sent;
      break;
    default:
      break;
  }
  return bytes;
}

Wide WorkspaceOf(const StepBytes& bytes, bool first, bool last) {
  return (first ? 0 : RoundUp16(bytes.in)) + RoundUp16(bytes.to_send) +
         RoundUp16(bytes.to_receive) + (last ? 0 : RoundUp16(bytes.out));
}

}  // namespace meshift::verifier_internal
