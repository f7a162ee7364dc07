// Meshes of given sizes for tests, with dims named d0, d1, ...
//
//   SyntheticMesh({8, 5, 1})->ToString();      // "d0=8,d1=5,d2=1"
//   ShuffledMesh({2, 2}, 1)->ToString();       // for example "d0=2,d1=2@2-3,0-1"
#ifndef MESHIFT_TESTING_SYNTHETIC_MESH_H_
#define MESHIFT_TESTING_SYNTHETIC_MESH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"

namespace meshift::testkit {

// A row-major mesh of ranks 0..n-1. INVALID_ARGUMENT if DeviceMesh::Create refuses the sizes.
absl::StatusOr<DeviceMesh> SyntheticMesh(const std::vector<int64_t>& sizes);

// The same mesh with ranks 0..n-1 in an order that depends only on `seed`.
absl::StatusOr<DeviceMesh> ShuffledMesh(const std::vector<int64_t>& sizes, uint64_t seed);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_SYNTHETIC_MESH_H_
