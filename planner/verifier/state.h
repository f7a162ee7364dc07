// Converts shardings to the verifier's own form, and computes the cuts that a step changes.
//
//   State before = StateOf(plan.from()), after = StateOf(plan.steps()[0].after);
//   Change change = ChangeOf(mesh_shape, before, after);
//   change.moving;          // the mesh dims of all cuts that the step removes or adds
//   change.cuts[0].parents; // the sizes of the intervals that these cuts divide
//
// Cuts in the common prefix of a tensor dim's cuts before and after count as unchanged. If
// the sizes of its first cut's pieces change, all its cuts count as changed. Mesh dims of size 1
// count as replicated. Sizes are in elements. Internal to the verifier.
//
// A mesh dim is owned if it is At or a ragged cut with one size above 0, or if it is a ceil cut of
// pieces of one row and OwnerDims says that these count. It cuts an *owner dim*: a tensor dim of
// size 1 in front of the tensor's own. Each mesh dim has one. The owner's size is 1, all others are
// 0. Where At has several coordinates, their pieces are all [0, 1).
#ifndef MESHIFT_PLANNER_VERIFIER_STATE_H_
#define MESHIFT_PLANNER_VERIFIER_STATE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift::verifier_internal {

// For counts and bytes, whose sums may exceed 2^63 - 1: a group has fewer than 2^31 ranks, and a
// box fewer than 2^63 bytes.
using Int128 = __int128;

// Whether mesh dim d of the sharding is owned, if ceil cuts of pieces of one row count.
bool IsOwned(const Sharding& sharding, int d);

// The owner dims of a plan: those of mesh 0, then those of mesh 1. None if nothing is owned.
struct OwnerDims {
  int num_before = 0;  // of the other mesh, before those of this one
  int num = 0;         // of all meshes
  DimSet ceil;         // the mesh dims whose ceil cuts of pieces of one row are owned
};

// The mesh and the tensor's shape, which are the same at each step on one mesh.
struct MeshShape {
  explicit MeshShape(const Sharding& sharding, OwnerDims owners = {});

  DeviceMesh mesh;
  absl::InlinedVector<int64_t, 6> sizes;  // of the mesh dims
  Shape shape;                            // the owner dims, then the tensor's
  bool empty;                             // the tensor has 0 elements
  OwnerDims owners;

  // The owner dim of mesh dim d. REQUIRES: owners.num > 0.
  int OwnerDim(int d) const { return owners.num_before + d; }
  bool IsOwnerDim(size_t tensor_dim) const { return static_cast<int>(tensor_dim) < owners.num; }
  // "tensor dim 2", or for an owner dim "the owner".
  std::string DimText(int tensor_dim) const;

  // The product of the sizes of `mesh_dims`.
  int64_t GroupSize(absl::Span<const int> mesh_dims) const;
  // "ddp,fsdp"
  std::string Names(absl::Span<const int> mesh_dims) const;
};

struct DimState {
  enum class Kind : uint8_t { kReplicated, kCut, kPartial };
  Kind kind = Kind::kReplicated;
  ReduceOp op = ReduceOp::kSum;  // for kPartial
  int tensor_dim = 0;            // for kCut: without the owner dims
  bool owned = false;            // kCut of an owner dim

  bool IsReplicated() const { return kind == Kind::kReplicated; }
  bool IsCut() const { return kind == Kind::kCut; }
  bool IsPartial() const { return kind == Kind::kPartial; }
  std::string ToString() const;  // "R", "S(0)", "P(max)", "At"
  friend bool operator==(const DimState&, const DimState&) = default;
};

using Sizes = Placement::Sizes;

// The bytes of `elements`; a part of a byte counts as one.
Int128 BytesOfElements(DType dtype, Int128 elements);

struct State {
  DType dtype = DType::kF32;
  absl::InlinedVector<DimState, 6> dims;  // per mesh dim
  absl::InlinedVector<Cuts, 5> cuts;      // per dim of MeshShape::shape, outermost first
  // Per tensor dim, the sizes of its outermost cut's pieces; empty for ceil chunks. All other cuts
  // are ceil chunks.
  std::vector<Sizes> sizes;
  // Owners as they are written: the cuts of each tensor dim, and the sizes of the first one. Empty
  // without owner dims.
  std::vector<std::pair<Cuts, Sizes>> written;
  // Two notations of one layout are equal.
  friend bool operator==(const State& a, const State& b) {
    return a.dtype == b.dtype && a.dims == b.dims && a.cuts == b.cuts && a.sizes == b.sizes;
  }
};

// REQUIRES: `mesh_shape` is of the sharding's mesh; if it has no owner dims, nothing is owned.
State StateOf(const Sharding& sharding, const MeshShape& mesh_shape);

// The number of coordinates of mesh dim d that hold anything. REQUIRES: state.dims[d].owned.
int64_t NumOwners(const MeshShape& mesh_shape, const State& state, int d);

// The cuts of one tensor dim that a step changes. A cut depends only on the size of its parent, the
// interval that it divides, so a fact about one parent holds for all parents of that size.
struct CutChange {
  int tensor_dim = 0;
  Cuts before;                              // those removed: beyond the common prefix
  Cuts after;                               // those added: beyond the common prefix
  Sizes sizes_before;                       // of before[0], if it is a ragged cut
  Sizes sizes_after;                        // of after[0], if it is a ragged cut
  absl::InlinedVector<int64_t, 4> parents;  // the sizes > 0 of their parents, descending
};

struct Change {
  absl::InlinedVector<CutChange, 2> cuts;  // the tensor dims whose cuts change, ascending
  DimSet moving;                           // the mesh dims of these cuts, ascending
};

Change ChangeOf(const MeshShape& mesh_shape, const State& before, const State& after);

// The size of the largest piece of tensor dim `t`. O(cuts + sizes).
int64_t LargestPiece(const MeshShape& mesh_shape, const State& state, int t);
// The elements of the largest, and of the smallest, local box.
int64_t LargestLocal(const MeshShape& mesh_shape, const State& state);
int64_t SmallestLocal(const MeshShape& mesh_shape, const State& state);

bool Contains(absl::Span<const int> dims, int dim);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_STATE_H_
