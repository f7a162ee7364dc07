#include "planner/inter_mesh/cross_ends.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "placement/cuts.h"
#include "placement/unit_dims.h"

namespace meshift {
namespace {

// The most tensor dims that get new cuts.
constexpr size_t kMaxTensorDims = 4;
// Up to this many replicated mesh dims, all their subsets are tried; of more, each alone and all.
constexpr size_t kMaxSubsetDims = 3;
// On meshes of up to kMaxAssignedRanks ranks, where planning is fast, each mesh dim may cut any
// tensor dim. If that gives more than kMaxAssignments ways, only runs of neighbouring mesh dims
// cut.
constexpr int64_t kMaxAssignedRanks = 64;
constexpr int64_t kMaxAssignments = 32;

// The mesh dims of size > 1 whose placement is of `kind`.
MeshDims DimsThatAre(const Sharding& sharding, Placement::Kind kind) {
  MeshDims dims;
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    if (sharding.mesh().dim(d).size > 1 && sharding.placement(d).kind() == kind) dims.push_back(d);
  }
  return dims;
}

// The tensor dims that can be cut: those with cuts first, then the longest; ascending. Only one dim
// of size 1: a cut of any of them gives the same rank the whole tensor.
std::vector<int> TensorDims(const Sharding& sharding) {
  std::vector<int> dims;
  bool whole = false;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    if (sharding.shape()[k] > 1 || (sharding.shape()[k] == 1 && !whole)) dims.push_back(k);
    whole |= sharding.shape()[k] == 1;
  }
  std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
    const auto key = [&](int k) {
      return std::pair(sharding.CutsOf(k).empty() ? 1 : 0, -sharding.shape()[k]);
    };
    return key(a) < key(b);
  });
  if (dims.size() > kMaxTensorDims) dims.resize(kMaxTensorDims);
  std::sort(dims.begin(), dims.end());
  return dims;
}

bool Contains(const MeshDims& dims, int d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

struct AddedCut {
  int mesh_dim;
  int tensor_dim;
};

// Adds to `list`: `base` in `dtype`, with P replaced by R except on the mesh dims `kept`, and with
// the cuts `added` after the existing ones, in this order.
void Add(const Sharding& base, DType dtype, const MeshDims& kept, absl::Span<const AddedCut> added,
         std::vector<Sharding>* list) {
  std::vector<Placement> placements(base.placements().begin(), base.placements().end());
  std::vector<Cuts> lists;
  for (int t = 0; t < static_cast<int>(base.shape().size()); ++t) {
    lists.emplace_back(base.CutsOf(t).begin(), base.CutsOf(t).end());
  }
  for (int d = 0; d < static_cast<int>(placements.size()); ++d) {
    if (placements[d].IsPartial() && !Contains(kept, d)) placements[d] = Placement::Replicate();
  }
  for (const AddedCut& cut : added) {
    placements[cut.mesh_dim] = Placement::Shard(cut.tensor_dim);
    lists[cut.tensor_dim].push_back(cut.mesh_dim);
  }
  absl::StatusOr<Sharding> sharding =
      Sharding::Create(base.mesh(), {dtype, base.shape()}, std::move(placements), std::move(lists));
  if (!sharding.ok()) return;
  if (std::find(list->begin(), list->end(), *sharding) == list->end()) {
    list->push_back(*std::move(sharding));
  }
}

// The same, where all of `cuts` cut tensor dim k.
void Add(const Sharding& base, DType dtype, const MeshDims& kept, int k, const MeshDims& cuts,
         std::vector<Sharding>* list) {
  absl::InlinedVector<AddedCut, 6> added;
  for (const int d : cuts) added.push_back({d, k});
  Add(base, dtype, kept, added, list);
}

// Adds shardings where the first or the last of `dims` together cut one tensor dim, and the others
// none. These are the ends of a mesh of two dims, however its dims are factored. They are few
// because the search for each takes longer with each mesh dim.
void AddRuns(const Sharding& bare, DType dtype, const MeshDims& kept, const MeshDims& dims,
             std::vector<Sharding>* list) {
  for (const int k : TensorDims(bare)) {
    for (auto at = dims.begin(); at != dims.end(); ++at) {
      Add(bare, dtype, kept, k, MeshDims(dims.begin(), at), list);
      Add(bare, dtype, kept, k, MeshDims(at, dims.end()), list);
    }
  }
}

// On a small mesh: adds shardings where each of `dims` cuts any tensor dim or none, in mesh order
// and in reverse order. Owners may stay.
void AddAssignments(const Sharding& base, DType dtype, const MeshDims& kept, const MeshDims& dims,
                    std::vector<Sharding>* list) {
  if (base.mesh().NumRanks() > kMaxAssignedRanks) return;
  const std::vector<int> tensor_dims = TensorDims(base);
  const auto cuts = static_cast<int64_t>(tensor_dims.size());
  std::vector<std::optional<Placement>> owners;  // by mesh dim
  for (int d = 0; d < base.mesh().NumDims(); ++d) owners.push_back(AsAt(base, d));
  const auto choices = [&](int d) { return cuts + (owners[d] ? 2 : 1); };
  int64_t ways = 1;
  for (size_t i = 0; i < dims.size() && ways <= kMaxAssignments; ++i) ways *= choices(dims[i]);
  std::vector<Placement> placements(base.placements().begin(), base.placements().end());
  for (const int d : dims) placements[d] = Placement::Replicate();
  const absl::StatusOr<Sharding> bare = Sharding::Create(base.mesh(), base.tensor(), placements);
  if (!bare.ok()) return;
  if (ways > kMaxAssignments) {
    AddRuns(*bare, dtype, kept, dims, list);
    return;
  }
  for (int64_t way = 0; way < ways; ++way) {
    absl::InlinedVector<AddedCut, 6> added;
    int64_t left = way;
    for (const int d : dims) {
      const int64_t choice = left % choices(d);
      left /= choices(d);
      placements[d] = choice > cuts ? *owners[d] : Placement::Replicate();
      if (choice > 0 && choice <= cuts) added.push_back({d, tensor_dims[choice - 1]});
    }
    const absl::StatusOr<Sharding> owned = Sharding::Create(base.mesh(), base.tensor(), placements);
    if (!owned.ok()) continue;
    Add(*owned, dtype, kept, added, list);
    std::reverse(added.begin(), added.end());
    Add(*owned, dtype, kept, added, list);
  }
}

MeshDims Joined(const MeshDims& a, const MeshDims& b) {
  MeshDims joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

// The mesh dims that are cut or owned.
MeshDims CutDims(const Sharding& sharding) {
  return Joined(DimsThatAre(sharding, Placement::Kind::kShard),
                DimsThatAre(sharding, Placement::Kind::kAt));
}

std::vector<MeshDims> Subsets(const MeshDims& dims) {
  std::vector<MeshDims> subsets;
  if (dims.size() > kMaxSubsetDims) {
    for (const int d : dims) subsets.push_back({d});
    subsets.push_back(dims);
    return subsets;
  }
  for (uint32_t mask = 1; mask < uint32_t{1} << dims.size(); ++mask) {
    MeshDims subset;
    for (size_t i = 0; i < dims.size(); ++i) {
      if ((mask >> i & 1) != 0) subset.push_back(dims[i]);
    }
    subsets.push_back(std::move(subset));
  }
  return subsets;
}

}  // namespace

std::vector<Sharding> CrossSources(const Sharding& from, DType dtype) {
  std::vector<Sharding> list;
  Add(from, dtype, {}, 0, {}, &list);
  const MeshDims partial = DimsThatAre(from, Placement::Kind::kPartial);
  const MeshDims idle = DimsThatAre(from, Placement::Kind::kReplicate);
  for (const int k : TensorDims(from)) {
    Add(from, dtype, {}, k, partial, &list);
    // Sliced before the reduction.
    Add(from, dtype, {}, k, idle, &list);
    Add(from, dtype, {}, k, Joined(idle, partial), &list);
  }
  MeshDims all = Joined(Joined(idle, partial), CutDims(from));
  std::sort(all.begin(), all.end());
  AddAssignments(from, dtype, {}, all, &list);
  return list;
}

std::vector<Sharding> PartialSources(const Sharding& from, DType dtype, bool at_once) {
  std::vector<Sharding> list;
  const MeshDims partial = DimsThatAre(from, Placement::Kind::kPartial);
  if (partial.empty() || NumElements(from.shape()) == 0) return list;
  const MeshDims idle = DimsThatAre(from, Placement::Kind::kReplicate);
  Add(from, dtype, partial, 0, {}, &list);
  for (const int k : TensorDims(from)) Add(from, dtype, partial, k, idle, &list);
  MeshDims others = Joined(idle, CutDims(from));
  std::sort(others.begin(), others.end());
  AddAssignments(from, dtype, partial, others, &list);
  if (at_once || partial.size() == 1) return list;
  for (const MeshDims& kept : Subsets(partial)) {
    MeshDims reduced;
    bool averaged = false;  // averages must cross whole, since they are divided once
    for (const int d : partial) {
      if (Contains(kept, d)) continue;
      reduced.push_back(d);
      averaged |= from.placement(d).op() == ReduceOp::kAvg;
    }
    if (averaged || reduced.empty()) continue;
    Add(from, dtype, kept, 0, {}, &list);
    for (const int k : TensorDims(from)) Add(from, dtype, kept, k, reduced, &list);
  }
  return list;
}

std::vector<Sharding> CrossTargets(const Sharding& to, DType dtype) {
  std::vector<Sharding> list;
  Add(to, dtype, {}, 0, {}, &list);
  MeshDims replicated = DimsThatAre(to, Placement::Kind::kReplicate);
  MeshDims masked;
  for (const int d : DimsThatAre(to, Placement::Kind::kPartial)) {
    // P(avg) cannot be masked from a cut: each rank needs the whole value, as a replica does.
    const bool everywhere = to.placement(d).op() == ReduceOp::kAvg;
    (everywhere ? replicated : masked).push_back(d);
  }
  std::sort(replicated.begin(), replicated.end());
  const std::vector<MeshDims> gathered = Subsets(replicated);
  for (const int k : TensorDims(to)) {
    Add(to, dtype, {}, k, masked, &list);
    for (const MeshDims& dims : gathered) Add(to, dtype, {}, k, Joined(masked, dims), &list);
  }
  MeshDims all = Joined(Joined(masked, replicated), CutDims(to));
  std::sort(all.begin(), all.end());
  AddAssignments(to, dtype, {}, all, &list);
  return list;
}

}  // namespace meshift
