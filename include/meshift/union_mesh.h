// UnionMesh: the mesh of all ranks of two meshes, for redistributions from one to the other.
// RelabelRanks: the order of the target's ranks that moves the fewest bytes.
//
//   UnionMesh(*DeviceMesh::Parse("a=4"), *DeviceMesh::Parse("b=2@3,9"))->ToString();
//     // "ranks=5@0-3,9"
//
// Both only compute meshes, and send nothing. Pure functions; safe for concurrent use, with one
// WorkBudget per thread.
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

// RelabelRanks: chooses the rank at each position of the target mesh, so that the fewest bytes
// move.
//
//   const auto from = *Sharding::Parse("f32[8]", *DeviceMesh::Parse("a=2"), "S(0)");
//   const auto to = *Sharding::Parse("f32[8]", *DeviceMesh::Parse("b=2@1,0"), "S(0)");
//   RelabelRanks({{from, to}})->ToString();   // "b=2": each rank has its half already
//
// The exact solution that COSTA offers for matrices (Kabić et al., "COSTA: Communication-Optimal
// Shuffle and Transpose Algorithm with Process Relabeling", 2021), for any shardings.

// The source and the target sharding of a tensor, on any two meshes.
struct RelabelledTensor {
  Sharding from;
  Sharding to;
  int64_t count = 1;  // number of such tensors
};

inline constexpr int64_t kMaxRelabelledRanks = 4096;

// Returns the target's mesh dims with its ranks in the order that maximises the bytes that ranks
// already hold of their new parts, summed over the tensors. For a partial value, the rank's own
// contribution counts. Ties are broken in favour of ranks that keep their position. Deterministic.
// O(n^3 + tensors n^2) time, O(n^2) memory for n ranks of the target. INVALID_ARGUMENT: no tensors,
// different shapes in a pair, targets on different meshes, more than kMaxRelabelledRanks ranks, or
// more than 2^63 - 1 bytes on one rank. RESOURCE_EXHAUSTED: `budget` is given and does not suffice.
absl::StatusOr<DeviceMesh> RelabelRanks(absl::Span<const RelabelledTensor> tensors,
                                        WorkBudget* budget = nullptr);

// `a` if both are equal; otherwise one dim, "ranks", of the ranks of both, ascending. O(1) for two
// row-major meshes, else O(ranks log ranks). INVALID_ARGUMENT: 2^31 ranks or more.
absl::StatusOr<DeviceMesh> UnionMesh(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace meshift

#endif  // MESHIFT_UNION_MESH_H_
