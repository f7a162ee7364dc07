// What the verifier reads out of a sharding, and what a step changes. Internal to the verifier.
//
//   State before = StateOf(step_before), after = StateOf(step.after);
//   Change change = ChangeOf(world, before, after);
//   change.moving;          // the mesh dims behind the longest common beginning of some cuts
//   change.cuts[0].parents; // the sizes that the boxes have which these mesh dims cut
//
// Mesh dims of size 1 neither cut nor hold parts: they count as replicated.
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

// Counts and bytes may pass 2^63 - 1 while they are added up: a group is below 2^31 ranks and a box
// below 2^63 bytes.
using Wide = __int128;

// One mesh and one shape: all that stays as it is throughout a plan.
struct World {
  explicit World(const Sharding& sharding);

  DeviceMesh mesh;
  absl::InlinedVector<int64_t, 6> sizes;  // of the mesh dims
  Shape shape;
  bool empty;  // the tensor has no element

  // The sizes of `mesh_dims`, multiplied.
  int64_t GroupSize(absl::Span<const int> mesh_dims) const;
  // "ddp,fsdp"
  std::string Names(absl::Span<const int> mesh_dims) const;
};

struct DimState {
  enum class Kind : uint8_t { kReplicated, kCut, kPartial };
  Kind kind = Kind::kReplicated;
  ReduceOp op = ReduceOp::kSum;  // of kPartial
  int tensor_dim = 0;            // of kCut

  bool IsReplicated() const { return kind == Kind::kReplicated; }
  bool IsCut() const { return kind == Kind::kCut; }
  bool IsPartial() const { return kind == Kind::kPartial; }
  std::string ToString() const;  // "R", "S(0)", "P(max)"
  friend bool operator==(const DimState&, const DimState&) = default;
};

using Sizes = Placement::Sizes;

// The bytes of so many elements; a part of a byte counts as one.
Wide BytesOfElements(DType dtype, Wide elements);

struct State {
  DType dtype = DType::kF32;
  absl::InlinedVector<DimState, 6> dims;  // per mesh dim
  absl::InlinedVector<Cuts, 5> cuts;      // per tensor dim, outermost first
  // Per tensor dim, the sizes of its outermost cut's pieces; empty: of ceil chunks, as all others.
  std::vector<Sizes> sizes;
  friend bool operator==(const State&, const State&) = default;
};

State StateOf(const Sharding& sharding);

// The cuts of one tensor dim that a step changes. A cut depends on the size of what it cuts alone,
// so what holds for one parent of a size holds for each.
struct CutChange {
  int tensor_dim = 0;
  Cuts before;         // behind the common beginning
  Cuts after;          // likewise
  Sizes sizes_before;  // of the first of them, where it is a ragged cut
  Sizes sizes_after;
  absl::InlinedVector<int64_t, 4> parents;  // the sizes > 0 of what they cut; descending
};

struct Change {
  absl::InlinedVector<CutChange, 2> cuts;  // of the tensor dims whose cuts change, ascending
  DimSet moving;                           // the mesh dims in them, ascending
};

Change ChangeOf(const World& world, const State& before, const State& after);

// The size of the largest piece of tensor dim `t`. O(cuts + sizes).
int64_t LargestPiece(const World& world, const State& state, int t);
// The elements of the largest local box, and of the smallest.
int64_t LargestLocal(const World& world, const State& state);
int64_t SmallestLocal(const World& world, const State& state);

bool Contains(absl::Span<const int> dims, int dim);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_STATE_H_
