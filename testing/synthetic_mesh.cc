#include "testing/synthetic_mesh.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/status.h"
#include "testing/random.h"

namespace meshift::testkit {

absl::StatusOr<DeviceMesh> SyntheticMesh(const std::vector<int64_t>& sizes) {
  std::vector<DeviceMesh::Dim> dims;
  dims.reserve(sizes.size());
  for (const int64_t size : sizes) dims.push_back({fmt::format("d{}", dims.size()), size});
  return DeviceMesh::Create(std::move(dims));
}

absl::StatusOr<DeviceMesh> ShuffledMesh(const std::vector<int64_t>& sizes, uint64_t seed) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, SyntheticMesh(sizes));
  std::vector<int64_t> ranks = mesh.Ranks();
  Random(seed).Shuffle(ranks);
  return DeviceMesh::Create({mesh.dims().begin(), mesh.dims().end()}, std::move(ranks));
}

}  // namespace meshift::testkit
