#include "meshift/union_mesh.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace meshift {

absl::StatusOr<DeviceMesh> UnionMesh(const DeviceMesh& a, const DeviceMesh& b) {
  if (a == b) return a;
  if (a.IsRowMajor() && b.IsRowMajor()) {
    return DeviceMesh::Create({{"ranks", std::max(a.NumRanks(), b.NumRanks())}});
  }
  std::vector<int64_t> ranks = a.Ranks();
  const std::vector<int64_t> others = b.Ranks();
  ranks.insert(ranks.end(), others.begin(), others.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const auto size = static_cast<int64_t>(ranks.size());
  return DeviceMesh::Create({{"ranks", size}}, std::move(ranks));
}

}  // namespace meshift
