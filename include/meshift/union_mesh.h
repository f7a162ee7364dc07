// A mesh of all the ranks of two: what those need who serve both sides of a redistribution from one
// mesh to another.
//
//   UnionMesh(*DeviceMesh::Parse("a=4"), *DeviceMesh::Parse("b=2@3,9"))->ToString();
//     // "ranks=5@0-3,9"
#ifndef MESHIFT_UNION_MESH_H_
#define MESHIFT_UNION_MESH_H_

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"

namespace meshift {

// The first mesh where they are equal; else one dim, "ranks", of all ranks of either, ascending.
// O(1) of two row-major meshes, O(ranks log ranks) else. INVALID_ARGUMENT: 2^31 ranks together.
absl::StatusOr<DeviceMesh> UnionMesh(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace meshift

#endif  // MESHIFT_UNION_MESH_H_
