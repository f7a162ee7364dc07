#include "testing/geometry.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"

namespace meshift::testkit {

Region RegionAt(const Sharding& sharding, absl::Span<const int64_t> coordinate) {
  Region region;
  const size_t rank = sharding.shape().size();
  region.lo.resize(rank);
  region.hi.resize(rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t lo = 0;
    int64_t hi = sharding.shape()[d];
    for (const int mesh_dim : sharding.CutsOf(static_cast<int>(d))) {
      const int64_t i = coordinate[mesh_dim];
      const Placement::Sizes& sizes = sharding.placement(mesh_dim).sizes();
      if (!sizes.empty()) {
        for (int64_t before = 0; before < i; ++before) lo += sizes[before];
        hi = lo + sizes[i];
        continue;
      }
      const int64_t n = sharding.mesh().dim(mesh_dim).size;
      const int64_t chunk = (hi - lo + n - 1) / n;
      // The piece may begin after the end. (chunk * i cannot overflow: it is less than extent + n,
      // times i / n.)
      const int64_t begin = std::min(hi, lo + chunk * i);
      hi = std::min(hi, begin + chunk);
      lo = begin;
    }
    region.lo[d] = lo;
    region.hi[d] = hi;
  }
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    const Placement& placement = sharding.placement(d);
    if (!placement.IsAt()) continue;
    const Placement::Sizes& owners = placement.coordinates();
    if (std::count(owners.begin(), owners.end(), coordinate[d]) == 0) {
      region.lo.assign(std::max<size_t>(rank, 1), 0);
      region.hi = region.lo;
    }
  }
  return region;
}

Positions PositionsOf(const Sharding& sharding) {
  const DeviceMesh& mesh = sharding.mesh();
  Positions positions{{0}, {0}, {0}};
  std::vector<int64_t> strides(mesh.NumDims());
  int64_t stride = 1;
  for (int d = mesh.NumDims() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= mesh.dim(d).size;
  }
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const Placement& placement = sharding.placement(d);
    if (placement.IsAt()) {
      // The owners are replicas; the others hold nothing and are left out.
      const int64_t first = placement.coordinates().front();
      for (int64_t& base : positions.shards) base += first * strides[d];
      std::vector<int64_t> longer;
      for (const int64_t base : positions.replicas) {
        for (const int64_t i : placement.coordinates()) {
          longer.push_back(base + (i - first) * strides[d]);
        }
      }
      positions.replicas = std::move(longer);
      continue;
    }
    std::vector<int64_t>& list = placement.IsShard()     ? positions.shards
                                 : placement.IsPartial() ? positions.partials
                                                         : positions.replicas;
    std::vector<int64_t> longer;
    longer.reserve(list.size() * mesh.dim(d).size);
    for (const int64_t base : list) {
      for (int64_t i = 0; i < mesh.dim(d).size; ++i) longer.push_back(base + i * strides[d]);
    }
    list = std::move(longer);
  }
  return positions;
}

}  // namespace meshift::testkit
