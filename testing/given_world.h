// The regions of all ranks on both sides of a redistribution, and the reduction between the sides.
// Private to //testing.
//
//   const World world(source, target, PathOf(source, target, std::nullopt));
//   ForEachElement(world, [](size_t s, int64_t source, size_t t, int64_t target) {...});
#ifndef MESHIFT_TESTING_GIVEN_WORLD_H_
#define MESHIFT_TESTING_GIVEN_WORLD_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "testing/cast.h"
#include "testing/dispatch_dtype.h"
#include "testing/geometry.h"
#include "testing/given.h"
#include "testing/given_rules.h"
#include "testing/number.h"

namespace meshift::testkit {

template <typename T>
std::string ValueText(typename T::Bits bits) {
  const typename T::Wide wide = T::Decode(bits);
  if constexpr (T::kFamily == Family::kComplex) {
    return fmt::format("{}{:+}i ({:#x}, {:#x})", wide.re, wide.im, bits.re, bits.im);
  } else if constexpr (T::kFamily == Family::kFloat) {
    return fmt::format("{} ({:#x})", wide, bits);
  } else {
    return fmt::format("{}", wide);
  }
}

// One side: the regions of its ranks, and how its partial coordinates combine.
struct Side {
  explicit Side(const Sharding& sharding)
      : mesh(sharding.mesh()), positions(PositionsOf(sharding)), shape(sharding.shape()) {
    const bool packed = sharding.dtype() == DType::kF4E2M1;
    if (packed) shape.back() /= 2;
    for (const int64_t position : positions.shards) {
      regions.push_back(RegionAt(sharding, mesh.CoordinateAt(position)));
      if (!packed) continue;
      regions.back().lo.back() /= 2;
      regions.back().hi.back() /= 2;
    }
    element_bytes = std::max(1, BitWidth(sharding.dtype()) / 8);
    columns_per_item = packed ? 2 : 1;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const Placement& placement = sharding.placement(d);
      if (!placement.IsPartial()) continue;
      if (op != ReduceOp::kAvg) op = placement.op();
      if (placement.op() == ReduceOp::kAvg) divisor *= mesh.dim(d).size;
    }
  }

  absl::Status CheckSizes(BufferViews buffers) const {
    if (static_cast<int64_t>(buffers.size()) != mesh.NumRanks()) {
      return InvalidArgument("{} buffers were given for a mesh of {} ranks", buffers.size(),
                             mesh.NumRanks());
    }
    for (size_t s = 0; s < regions.size(); ++s) {
      const int64_t bytes = regions[s].NumElements() * element_bytes;
      for (const int64_t partial : positions.partials) {
        for (const int64_t replica : positions.replicas) {
          const int64_t position = positions.shards[s] + partial + replica;
          if (static_cast<int64_t>(buffers[position].size()) == bytes) continue;
          return InvalidArgument("The buffer of rank {} has {} bytes; its part has {}",
                                 mesh.RankAt(position), buffers[position].size(), bytes);
        }
      }
    }
    return absl::OkStatus();
  }
  // "[1,2]", the index of the element at `local` in the row-major content of the region.
  std::string IndexText(const Region& region, int64_t local) const {
    std::vector<int64_t> index(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t size = region.hi[d] - region.lo[d];
      index[d] = region.lo[d] + local % size;
      local /= size;
    }
    if (!index.empty()) index.back() *= columns_per_item;
    return fmt::format("[{}]", fmt::join(index, ","));
  }
  bool IsReduced() const { return positions.partials.size() > 1; }

  DeviceMesh mesh;
  Positions positions;
  Shape shape;                  // in items
  std::vector<Region> regions;  // in items; per entry of positions.shards
  int element_bytes = 1;
  int columns_per_item = 1;
  std::optional<ReduceOp> op;  // avg if any mesh dim is P(avg)
  int64_t divisor = 1;         // product of the sizes of the P(avg) mesh dims
};

template <typename T>
typename T::Bits LoadAt(absl::Span<const std::byte> buffer, int64_t index) {
  typename T::Bits bits;
  std::memcpy(&bits, buffer.data() + index * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
  return bits;
}

// The dtypes of a redistribution: contributions are cast to `reduce`, reduced, and cast to the
// target's dtype; elements that are not reduced are cast directly.
struct Path {
  DType reduce = DType::kF32;
  bool reduces = false;    // whether any mesh dim is reduced
  std::vector<bool> kept;  // per mesh dim: partial in source and target, and not reduced

  bool Casts(const Sharding& source, const Sharding& target) const {
    return source.dtype() != target.dtype() || (reduces && reduce != source.dtype());
  }
};

// Mesh dims that are partial on both sides keep their contributions if all casts are exact; else
// they are reduced and become partial again. `reduce` nullopt: the default of docs/plan_format.md.
inline Path PathOf(const Sharding& source, const Sharding& target, std::optional<DType> reduce) {
  const DType from = source.dtype();
  const DType to = target.dtype();
  const auto is_exact = [](DType a, DType b) { return a == b || IsExact(a, b); };
  Path path{.reduce = from, .kept = std::vector<bool>(source.mesh().NumDims())};
  bool keeps = false;
  for (int d = 0; d < source.mesh().NumDims(); ++d) {
    if (!source.placement(d).IsPartial()) continue;
    path.kept[d] = source.mesh() == target.mesh() && target.placement(d).IsPartial();
    if (source.mesh().dim(d).size > 1) (path.kept[d] ? keeps : path.reduces) = true;
  }
  const bool recasts = keeps && !is_exact(from, to);
  if (!path.reduces && !recasts) return path;
  path.reduce = reduce.value_or(ReduceDTypeOf(from, to));
  if (!recasts && is_exact(from, path.reduce) && is_exact(path.reduce, to)) return path;
  path.reduces = true;
  path.kept.assign(path.kept.size(), false);
  return path;
}

// Both sides, and the reduction between them.
struct World {
  World(const Sharding& source, const Sharding& target, const Path& path)
      : from(source), to(target) {
    reduction.from_op = from.op;
    reduction.to_op = to.op;
    reduction.to_divisor = to.divisor;
    reduction.to_count = static_cast<int64_t>(to.positions.partials.size());
    std::vector<int64_t>& part_of = reduction.part_of;
    for (int d = 0; d < source.mesh().NumDims(); ++d) {
      const Placement& placement = source.placement(d);
      if (!placement.IsPartial()) continue;
      const int64_t size = source.mesh().dim(d).size;
      const bool kept = path.kept[d];
      if (placement.op() == ReduceOp::kAvg) {
        (kept ? reduction.kept_divisor : reduction.reduced_divisor) *= size;
      }
      // In the order of PositionsOf: the last mesh dim varies fastest.
      std::vector<int64_t> longer;
      for (const int64_t part : part_of) {
        for (int64_t i = 0; i < size; ++i) longer.push_back(kept ? part * size + i : part);
      }
      part_of = std::move(longer);
      if (kept) reduction.parts *= size;
    }
  }

  Side from;
  Side to;
  Reduction reduction;
};

// The position of `index` in the row-major content of the region.
inline int64_t LocalIndex(const Region& region, absl::Span<const int64_t> index) {
  int64_t local = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    local = local * (region.hi[d] - region.lo[d]) + (index[d] - region.lo[d]);
  }
  return local;
}

// Calls visit(s, source, t, target) for every element and every pair of shards that hold it: at
// local index `source` in shard s of the source, at `target` in shard t of the target.
template <typename Visit>
void ForEachElement(const World& world, Visit visit) {
  for (size_t t = 0; t < world.to.regions.size(); ++t) {
    for (size_t s = 0; s < world.from.regions.size(); ++s) {
      const Region& from = world.from.regions[s];
      const Region& to = world.to.regions[t];
      Region common = from;
      bool some = true;
      for (size_t d = 0; d < common.lo.size(); ++d) {
        common.lo[d] = std::max(from.lo[d], to.lo[d]);
        common.hi[d] = std::min(from.hi[d], to.hi[d]);
        some = some && common.lo[d] < common.hi[d];
      }
      auto index = common.lo;
      while (some) {
        visit(s, LocalIndex(from, index), t, LocalIndex(to, index));
        some = false;
        for (size_t d = index.size(); d-- > 0 && !some;) {
          some = ++index[d] < common.hi[d];
          if (!some) index[d] = common.lo[d];
        }
      }
    }
  }
}

// "rank 3 holds ... at [1,2], not ...", for a position and a local index in shard t of the target.
inline std::string WrongText(const World& world, size_t t, int64_t position, int64_t local,
                             const std::string& got, const std::string& want) {
  const int64_t rank = world.to.mesh.RankAt(position);
  const std::string index = world.to.IndexText(world.to.regions[t], local);
  if (!world.to.IsReduced()) {
    return fmt::format("rank {} holds {} at {}, not {}", rank, got, index, want);
  }
  return fmt::format(
      "rank {} and its partial group together do not hold {} at {}; the rank holds {}", rank, want,
      index, got);
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_WORLD_H_
