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
#ifndef MESHIFT_PLANNER_VERIFIER_STATE_H_
#define MESHIFT_PLANNER_VERIFIER_STATE_H_

#include <cstdint>
#include <string>
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

// The mesh and the tensor's shape, which are the same at each step on one mesh.
struct MeshShape {
  explicit MeshShape(const Sharding& sharding);

  DeviceMesh mesh;
  absl::InlinedVector<int64_t, 6> sizes;  // of the mesh dims
  Shape shape;
  bool empty;  // the tensor has 0 elements

  // The product of the sizes of `mesh_dims`.
  int64_t GroupSize(absl::Span<const int> mesh_dims) const;
  // "ddp,fsdp"
  std::string Names(absl::Span<const int> mesh_dims) const;
};

struct DimState {
  enum class Kind : uint8_t { kReplicated, kCut, kPartial };
  Kind kind = Kind::kReplicated;
  ReduceOp op = ReduceOp::kSum;  // for kPartial
  int tensor_dim = 0;            // for kCut

  bool IsReplicated() const { return kind == Kind::kReplicated; }
  bool IsCut() const { return kind == Kind::kCut; }
  bool IsPartial() const { return kind == Kind::kPartial; }
  std::string ToString() const;  // "R", "S(0)", "P(max)"
  friend bool operator==(const DimState&, const DimState&) = default;
};

using Sizes = Placement::Sizes;

// The bytes of `elements`; a part of a byte counts as one.
Int128 BytesOfElements(DType dtype, Int128 elements);

struct State {
  DType dtype = DType::kF32;
  absl::InlinedVector<DimState, 6> dims;  // per mesh dim
  absl::InlinedVector<Cuts, 5> cuts;      // per tensor dim, outermost first
  // Per tensor dim, the sizes of its outermost cut's pieces; empty for ceil chunks. All other cuts
  // are ceil chunks.
  std::vector<Sizes> sizes;
  friend bool operator==(const State&, const State&) = default;
};

State StateOf(const Sharding& sharding);

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
