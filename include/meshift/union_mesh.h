// A mesh of all the ranks of two: what those need who serve both sides of a redistribution from one
// mesh to another.
//
//   UnionMesh(*DeviceMesh::Parse("a=4"), *DeviceMesh::Parse("b=2@3,9"))->ToString();
//     // "ranks=5@0-3,9"
#ifndef MESHIFT_UNION_MESH_H_
#define MESHIFT_UNION_MESH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class WorkBudget;  // base/work_budget.h

// Which rank takes which place of a target mesh, where that is left open: so that the fewest bytes
// move.
//
//   const auto from = *Sharding::Parse("f32[8]", *DeviceMesh::Parse("a=2"), "S(0)");
//   const auto to = *Sharding::Parse("f32[8]", *DeviceMesh::Parse("b=2@1,0"), "S(0)");
//   RelabelRanks({{from, to}})->ToString();   // "b=2": each rank has its half already
//
// The exact solution that COSTA offers for matrices (Kabić et al., "COSTA: Communication-Optimal
// Shuffle and Transpose Algorithm with Process Relabeling", 2021), for any shardings.

// A tensor as it lies, and as it is to lie. The meshes may be any two.
struct RelabelledTensor {
  Sharding from;
  Sharding to;
  int64_t count = 1;  // of such tensors
};

inline constexpr int64_t kMaxRelabelledRanks = 4096;

// The target's mesh dims with its ranks in the order in which ranks hold the most bytes of their
// parts already, summed over the tensors; of a partial value what counts is a rank's own
// contribution. Of several best orders, one that leaves the most ranks where they are.
// Deterministic. O(n^3 + tensors n^2) time, O(n^2) memory for n ranks of the target.
// INVALID_ARGUMENT: no tensors, shapes of a pair that differ, targets on different meshes, more
// than kMaxRelabelledRanks ranks, or more than 2^63 - 1 bytes on one rank; RESOURCE_EXHAUSTED where
// `budget` is given, and its work does not do.
absl::StatusOr<DeviceMesh> RelabelRanks(absl::Span<const RelabelledTensor> tensors,
                                        WorkBudget* budget = nullptr);

// The first mesh where they are equal; else one dim, "ranks", of all ranks of either, ascending.
// O(1) of two row-major meshes, O(ranks log ranks) else. INVALID_ARGUMENT: 2^31 ranks together.
absl::StatusOr<DeviceMesh> UnionMesh(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace meshift

#endif  // MESHIFT_UNION_MESH_H_
