#include "planner/plan/rank_bytes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "placement/placement.h"
#include "placement/sharding.h"
#include "planner/plan/crossing.h"

namespace meshift {
namespace {

using MeshDims = absl::InlinedVector<int, 6>;

bool Contains(const MeshDims& dims, int d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

// The cuts of tensor dim k, but for mesh dims of size 1, which cut nothing.
MeshDims CutsOf(const Sharding& sharding, int k) {
  MeshDims dims;
  for (int d : sharding.CutsOf(k)) {
    if (sharding.mesh().dim(d).size > 1) dims.push_back(d);
  }
  return dims;
}

// The mesh dims of the cuts that only one side has: behind the common beginning of each tensor dim.
struct Moving {
  MeshDims before;  // moving cuts before the step
  MeshDims after;
  std::vector<std::pair<int, int>> pairs;  // before and after, of equal place: of a permute
};

Moving MovingOf(const Sharding& before, const Sharding& after) {
  Moving moving;
  for (int k = 0; k < static_cast<int>(before.shape().size()); ++k) {
    const MeshDims a = CutsOf(before, k);
    const MeshDims b = CutsOf(after, k);
    size_t common = 0;
    while (common < a.size() && common < b.size() && a[common] == b[common] &&
           before.placement(a[common]) == after.placement(b[common])) {
      ++common;
    }
    moving.before.insert(moving.before.end(), a.begin() + common, a.end());
    moving.after.insert(moving.after.end(), b.begin() + common, b.end());
    // Elsewhere than in a permute the two may differ in number.
    for (size_t i = common; i < std::min(a.size(), b.size()); ++i) {
      moving.pairs.emplace_back(a[i], b[i]);
    }
  }
  return moving;
}

// Calls fn(coordinate) for every member of the group over `dims` that `me` is in.
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

// The coordinate that a permute's member sends its box to: the one that takes it.
Coordinate TakerOf(const DeviceMesh& mesh, const Moving& moving, const Coordinate& me) {
  Coordinate taker = me;
  MeshDims only_before;
  MeshDims only_after;
  for (int d : moving.before) {
    if (!Contains(moving.after, d)) only_before.push_back(d);
  }
  for (int d : moving.after) {
    if (!Contains(moving.before, d)) only_after.push_back(d);
  }
  for (MeshDims* dims : {&only_before, &only_after}) {
    std::sort(dims->begin(), dims->end(), [&](int x, int y) {
      return std::pair(mesh.dim(x).size, x) < std::pair(mesh.dim(y).size, y);
    });
  }
  for (const auto& [before, after] : moving.pairs) taker[after] = me[before];
  for (size_t i = 0; i < std::min(only_before.size(), only_after.size()); ++i) {
    taker[only_before[i]] = me[only_after[i]];
  }
  return taker;
}

}  // namespace

int64_t BytesSent(const Plan& plan, int step_index, int64_t rank) {
  const Step& step = plan.steps()[step_index];
  if (!IsCollective(step.op)) return 0;
  const Sharding& before = step_index == 0 ? plan.from() : plan.steps()[step_index - 1].after;
  const Sharding& after = step.after;
  if (NumElements(before.shape()) == 0) return 0;
  if (IsCrossing(step)) {
    const Topology topology = Topology::Parse(plan.inputs().topology).value();
    return Bytes(before.dtype(), Crossing::Of(before, after, topology).SentBy(rank));
  }
  const DeviceMesh& mesh = before.mesh();
  const std::optional<Coordinate> coordinate = mesh.CoordinateOf(rank);
  if (!coordinate) return 0;
  const Coordinate me = *coordinate;
  const MeshDims dims(step.mesh_dims.begin(), step.mesh_dims.end());
  int64_t n = 1;
  for (int d : dims) n *= mesh.dim(d).size;
  const auto bytes = [&](int64_t elements) { return Bytes(before.dtype(), elements); };
  // The largest box among the members of the group.
  const auto largest = [&](const Sharding& sharding) {
    int64_t elements = 0;
    ForEachMember(mesh, dims, me, [&](const Coordinate& at) {
      elements = std::max(elements, sharding.BoxAt(at).NumElements());
    });
    return bytes(elements);
  };
  // What a member of a gather or a scatter sends: blocks of these boxes.
  const auto blocks = [&](const Sharding& cut) {
    if (step.sizes != StepSizes::kExact) return SaturatingMul(n - 1, largest(cut));
    int64_t elements = 0;
    ForEachMember(mesh, dims, me, [&](const Coordinate& at) {
      if (at != me) elements += cut.BoxAt(at).NumElements();
    });
    return bytes(elements);
  };
  const Box mine = before.BoxAt(me);
  if (IsReduction(step.op) && step.reduce_order == ReduceOrder::kAscending) {
    // What the other members own of its contribution, and its own part of the results to each.
    const int64_t elements = mine.NumElements();
    if (elements == 0) return 0;
    if (step.reduce_stages) {
      const int64_t block = *step.reduce_block;
      const int64_t blocks = n / block;
      const int64_t wide_item = Bytes(*step.accumulate_dtype, 1);
      if (step.op == StepOp::kReduceScatter) {
        const int64_t part = largest(after);  // in bytes
        const int64_t wide = part / bytes(1) * wide_item;
        return part * blocks * (block - 1) + wide * (blocks - 1);
      }
      int64_t index = 0;  // of this rank, by coordinates
      for (int d : dims) index = index * mesh.dim(d).size + me[d];
      const int64_t slice = CeilDiv(elements, n);
      const int64_t column_begin = index % block * blocks * slice;
      const int64_t column = std::clamp<int64_t>(elements - column_begin, 0, blocks * slice);
      const int64_t part =
          std::clamp<int64_t>(elements - column_begin - index / block * slice, 0, slice);
      return bytes(elements - column + part * (blocks - 1) + column * (block - 1)) +
             (column - part) * wide_item;
    }
    if (step.op == StepOp::kReduceScatter) return bytes(elements - after.BoxAt(me).NumElements());
    int64_t place = 0;
    ForEachMember(mesh, dims, me, [&](const Coordinate& at) {
      if (mesh.RankAt(at) < rank) ++place;
    });
    const int64_t slice = elements / n + (elements % n != 0 ? 1 : 0);
    const int64_t part = std::clamp<int64_t>(elements - place * slice, 0, slice);
    return bytes(elements - part + (n - 1) * part);
  }
  switch (step.op) {
    case StepOp::kAllReduce:
      return MulDivCeil(bytes(mine.NumElements()), 2 * (n - 1), n);
    case StepOp::kReduceScatter:
      return blocks(after);
    case StepOp::kAllGather:
      return blocks(before);
    default:
      break;
  }
  int64_t sent = 0;
  ForEachMessage(plan, step_index, rank, [&](int64_t, int64_t message) { sent += message; });
  return sent;
}

void ForEachMessage(const Plan& plan, int step_index, int64_t rank,
                    absl::FunctionRef<void(int64_t to, int64_t bytes)> fn) {
  const Step& step = plan.steps()[step_index];
  const Sharding& before = step_index == 0 ? plan.from() : plan.steps()[step_index - 1].after;
  const DeviceMesh& mesh = before.mesh();
  const std::optional<Coordinate> coordinate = mesh.CoordinateOf(rank);
  if (!coordinate) return;
  const Coordinate me = *coordinate;
  const Box mine = before.BoxAt(me);
  const auto emit = [&](const Coordinate& to, int64_t elements) {
    if (to != me && elements > 0) fn(mesh.RankAt(to), Bytes(before.dtype(), elements));
  };
  const Moving moving = MovingOf(before, step.after);
  if (step.op == StepOp::kPermute) {
    emit(TakerOf(mesh, moving, me), mine.NumElements());
    return;
  }
  // Those take from this rank who have its coordinates on all dims but the moving cuts.
  ForEachMember(mesh, moving.before, me, [&](const Coordinate& at) {
    emit(at, Intersect(mine, step.after.BoxAt(at)).NumElements());
  });
}

}  // namespace meshift
