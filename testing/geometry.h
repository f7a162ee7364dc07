// The region that each rank holds, derived from the placements by torch.chunk's rule, cut by cut.
// Shares no code with Sharding::LocalBox.
//
//   Region region = RegionAt(sharding, {1, 0});     // held by that coordinate of the mesh
//   ForEachRun(sharding.shape(), region, [](int64_t global, int64_t local, int64_t length) {...});
#ifndef MESHIFT_TESTING_GEOMETRY_H_
#define MESHIFT_TESTING_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "meshift/sharding.h"

namespace meshift::testkit {

// Per tensor dim the half-open interval [lo, hi).
struct Region {
  absl::InlinedVector<int64_t, 5> lo;
  absl::InlinedVector<int64_t, 5> hi;

  int64_t NumElements() const {
    int64_t count = 1;
    for (size_t d = 0; d < lo.size(); ++d) count *= hi[d] - lo[d];
    return count;
  }
};

// The region of the rank at `coordinate`. If an At leaves the rank out, all bounds are 0, and the
// region of a tensor without dims has one dim.
Region RegionAt(const Sharding& sharding, absl::Span<const int64_t> coordinate);

// The positions of a mesh, sorted by the regions that their ranks hold. The position with shard
// coordinate s, partial coordinate p and replica r is shards[s] + partials[p] + replicas[r]; each
// of the three runs over the row-major coordinates of the mesh dims with that placement. Replicas
// include the coordinates of each At; positions that an At leaves out are not listed.
struct Positions {
  std::vector<int64_t> shards;
  std::vector<int64_t> partials;
  std::vector<int64_t> replicas;
};
Positions PositionsOf(const Sharding& sharding);

// Calls visit(global, local, length) for each run of elements that are consecutive both in the
// row-major tensor and in the row-major content of `region`, in ascending order.
template <typename Visit>
void ForEachRun(absl::Span<const int64_t> shape, const Region& region, Visit visit) {
  const int rank = static_cast<int>(shape.size());
  if (region.NumElements() == 0) return;
  if (rank == 0) {
    visit(int64_t{0}, int64_t{0}, int64_t{1});
    return;
  }
  // Whole inner dims join the run.
  int inner = rank - 1;
  int64_t stride = 1;
  while (inner > 0 && region.lo[inner] == 0 && region.hi[inner] == shape[inner]) {
    stride *= shape[inner--];
  }
  const int64_t length = (region.hi[inner] - region.lo[inner]) * stride;
  absl::InlinedVector<int64_t, 5> strides(rank, stride);
  for (int d = inner - 1; d >= 0; --d) strides[d] = strides[d + 1] * shape[d + 1];
  int64_t global = 0;
  for (int d = 0; d <= inner; ++d) global += region.lo[d] * strides[d];
  absl::InlinedVector<int64_t, 5> index(region.lo);
  for (int64_t local = 0;; local += length) {
    visit(global, local, length);
    int d = inner - 1;
    while (d >= 0 && index[d] + 1 == region.hi[d]) {
      global -= (index[d] - region.lo[d]) * strides[d];
      index[d] = region.lo[d];
      --d;
    }
    if (d < 0) return;
    ++index[d];
    global += strides[d];
  }
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GEOMETRY_H_
