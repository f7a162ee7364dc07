#include "planner/plan/rank_bytes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "placement/cuts.h"
#include "placement/unit_dims.h"
#include "planner/plan/crossing.h"
#include "planner/plan/expanded_plan.h"

namespace meshift {
namespace {

// By tensor dim: the mesh dims of the cuts that the step removes, and of those that it adds. In a
// plan with At, unit dims are tensor dims too.
std::vector<MovedMeshDims> MovedDimsOf(const Plan& plan, Sharding before, Sharding after) {
  std::vector<MovedMeshDims> moved;
  if (HasAt(plan.fields())) {
    const UnitDims units = UnitDimsOf(plan.fields());
    absl::StatusOr<Sharding> cut_before = units.Expand(before);
    absl::StatusOr<Sharding> cut_after = units.Expand(after);
    if (cut_before.ok() && cut_after.ok()) {
      before = *std::move(cut_before);
      after = *std::move(cut_after);
    }
  }
  for (int k = 0; k < static_cast<int>(before.shape().size()); ++k) {
    const StepCuts cuts = CutsOfStep(before, after, k);
    moved.push_back({cuts.before.mesh_dims, cuts.after.mesh_dims});
  }
  return moved;
}

// Calls fn(coordinate) for every member of the group over `dims` that `at` is in.
template <typename Fn>
void ForEachMember(const DeviceMesh& mesh, const MeshDims& dims, Coordinate at, const Fn& fn) {
  for (int d : dims) at[d] = 0;
  while (true) {
    fn(static_cast<const Coordinate&>(at));
    size_t i = dims.size();
    while (i > 0 && ++at[dims[i - 1]] == mesh.dim(dims[i - 1]).size) at[dims[--i]] = 0;
    if (i == 0) return;
  }
}

// The coordinate that receives the box of `me` in a permute.
Coordinate TakerOf(const DeviceMesh& mesh, absl::Span<const MovedMeshDims> moved,
                   const Coordinate& me) {
  Coordinate taker = me;
  const auto size_of = [&](int d) { return mesh.dim(d).size; };
  for (const auto& [sent, taken] : PermutePairs(moved, size_of)) taker[taken] = me[sent];
  return taker;
}

// The bytes that a rank sends in a reduction, a gather or a scatter on one mesh.
class BlocksOfRank {
 public:
  BlocksOfRank(const Step& step, const Sharding& before, int64_t rank, const Coordinate& at)
      : step_(step),
        op_(OpOnCuts(step.op)),
        before_(before),
        mesh_(before.mesh()),
        dims_(step.mesh_dims.begin(), step.mesh_dims.end()),
        rank_(rank),
        me_(at) {
    for (const int d : dims_) n_ *= mesh_.dim(d).size;
  }

  int64_t Sent() const {
    if (IsReduction(op_) && step_.reduce_order == ReduceOrder::kAscending) {
      if (Mine() == 0) return 0;
      return step_.reduce_stages ? SentInStages() : SentInOrder();
    }
    switch (op_) {
      case StepOp::kAllReduce:
        return MulDivCeil(BytesOf(Mine()), 2 * (n_ - 1), n_);
      case StepOp::kReduceScatter:
        return SentOfBoxes(step_.after);
      default:
        return SentOfBoxes(before_);
    }
  }

 private:
  int64_t BytesOf(int64_t elements) const { return Bytes(before_.dtype(), elements); }
  int64_t Mine() const { return before_.BoxAt(me_).NumElements(); }
  // The elements of the largest box among the members of the group.
  int64_t LargestElements(const Sharding& sharding) const {
    int64_t elements = 0;
    ForEachMember(mesh_, dims_, me_, [&](const Coordinate& at) {
      elements = std::max(elements, sharding.BoxAt(at).NumElements());
    });
    return elements;
  }
  // A gather or scatter of exact sizes sends as many bytes as the boxes of the other members have,
  // any other n - 1 times those of the largest box. `cut`: before a gather, after a scatter.
  int64_t SentOfBoxes(const Sharding& cut) const {
    if (step_.sizes != StepSizes::kExact) {
      return SaturatingMul(n_ - 1, BytesOf(LargestElements(cut)));
    }
    int64_t elements = 0;
    ForEachMember(mesh_, dims_, me_, [&](const Coordinate& at) {
      if (at != me_) elements += cut.BoxAt(at).NumElements();
    });
    return BytesOf(elements);
  }
  // A reduction in order: the rank sends each owner its slice of the contribution; in an all_reduce
  // then its own slice of the result to each other member.
  int64_t SentInOrder() const {
    const int64_t elements = Mine();
    if (op_ == StepOp::kReduceScatter) {
      return BytesOf(elements - step_.after.BoxAt(me_).NumElements());
    }
    int64_t place = 0;
    ForEachMember(mesh_, dims_, me_, [&](const Coordinate& at) {
      if (mesh_.RankAt(at) < rank_) ++place;
    });
    const int64_t slice = CeilDiv(elements, n_);
    const int64_t part = std::clamp<int64_t>(elements - place * slice, 0, slice);
    return BytesOf(elements - part + (n_ - 1) * part);
  }
  // A reduction in stages: contributions within the block, then the block's sums, which have the
  // accumulator's dtype.
  int64_t SentInStages() const {
    const int64_t block = *step_.reduce_block;
    const int64_t blocks = n_ / block;
    const int64_t wide_item = Bytes(*step_.accumulate_dtype, 1);
    if (op_ == StepOp::kReduceScatter) {
      const int64_t part = LargestElements(step_.after);
      return BytesOf(part * blocks * (block - 1)) + part * wide_item * (blocks - 1);
    }
    int64_t index = 0;  // of this rank in its group, by coordinates
    for (const int d : dims_) index = index * mesh_.dim(d).size + me_[d];
    const int64_t elements = Mine();
    const int64_t slice = CeilDiv(elements, n_);
    const int64_t column_begin = index % block * blocks * slice;
    const int64_t column = std::clamp<int64_t>(elements - column_begin, 0, blocks * slice);
    const int64_t part =
        std::clamp<int64_t>(elements - column_begin - index / block * slice, 0, slice);
    return BytesOf(elements - column + part * (blocks - 1) + column * (block - 1)) +
           (column - part) * wide_item;
  }

  const Step& step_;
  const StepOp op_;
  const Sharding& before_;
  const DeviceMesh& mesh_;
  const MeshDims dims_;
  const int64_t rank_;
  const Coordinate& me_;
  int64_t n_ = 1;  // members of the group
};

const Sharding& Before(const Plan& plan, int step_index) {
  return step_index == 0 ? plan.from() : plan.steps()[step_index - 1].after;
}

}  // namespace

int64_t BytesSent(const Plan& plan, int step_index, int64_t rank) {
  const Step& step = plan.steps()[step_index];
  if (!IsCollective(step.op)) return 0;
  const Sharding& before = Before(plan, step_index);
  if (NumElements(before.shape()) == 0) return 0;
  if (IsCrossing(step)) {
    return Bytes(before.dtype(),
                 Crossing::Of(before, step.after, plan.options().topology).SentBy(rank));
  }
  const std::optional<Coordinate> at = before.mesh().CoordinateOf(rank);
  if (!at) return 0;
  if (IsReduction(step.op) || OpOnCuts(step.op) == StepOp::kAllGather) {
    return BlocksOfRank(step, before, rank, *at).Sent();
  }
  int64_t sent = 0;
  ForEachMessage(plan, step_index, rank, [&](int64_t, int64_t bytes) { sent += bytes; });
  return sent;
}

void ForEachMessage(const Plan& plan, int step_index, int64_t rank,
                    absl::FunctionRef<void(int64_t to, int64_t bytes)> fn) {
  const Step& step = plan.steps()[step_index];
  const Sharding& before = Before(plan, step_index);
  const DeviceMesh& mesh = before.mesh();
  const std::optional<Coordinate> coordinate = mesh.CoordinateOf(rank);
  if (!coordinate) return;
  const Coordinate& me = *coordinate;
  const Box mine = before.BoxAt(me);
  if (mine.IsEmpty()) return;
  const auto emit = [&](const Coordinate& to, int64_t elements) {
    if (to != me && elements > 0) fn(mesh.RankAt(to), Bytes(before.dtype(), elements));
  };
  const std::vector<MovedMeshDims> moved = MovedDimsOf(plan, before, step.after);
  if (step.op == StepOp::kPermute) {
    emit(TakerOf(mesh, moved, me), mine.NumElements());
    return;
  }
  // The receivers differ from this rank only in the mesh dims of the cuts that the step removes.
  MeshDims dims;
  for (const MovedMeshDims& of : moved) dims.insert(dims.end(), of.before.begin(), of.before.end());
  ForEachMember(mesh, dims, me, [&](const Coordinate& at) {
    const Box taken = step.after.BoxAt(at);
    emit(at, taken.IsEmpty() ? 0 : CommonElements(mine, taken));
  });
}

}  // namespace meshift
