#include "testing/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "mesh/device_mesh.h"
#include "placement/dtype.h"
#include "placement/placement.h"
#include "placement/sharding.h"
#include "testing/definition.h"
#include "testing/geometry.h"
#include "testing/given_rules.h"
#include "testing/number.h"

namespace meshift::testkit {
namespace {

// Calls visit with a value of the type of numbers that `dtype` stands for; of f4e2m1, pairs are
// bytes.
template <typename Visit>
auto WithType(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kBool:
      return visit(Bool());
    case DType::kI8:
      return visit(I8());
    case DType::kI16:
      return visit(I16());
    case DType::kI32:
      return visit(I32());
    case DType::kI64:
      return visit(I64());
    case DType::kU8:
    case DType::kF4E2M1:
      return visit(U8());
    case DType::kU16:
      return visit(U16());
    case DType::kU32:
      return visit(U32());
    case DType::kU64:
      return visit(U64());
    case DType::kF16:
      return visit(F16());
    case DType::kBF16:
      return visit(BF16());
    case DType::kF32:
      return visit(F32());
    case DType::kF64:
      return visit(F64());
    case DType::kF8E4M3:
      return visit(F8E4M3());
    case DType::kF8E5M2:
      return visit(F8E5M2());
    case DType::kC64:
      return visit(C64());
    case DType::kC128:
      break;
  }
  return visit(C128());
}

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

// One side: who holds what, and how its partial coordinates combine.
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
  // "[1,2]", of the element that is `local` in the row-major content of the region.
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
  std::optional<ReduceOp> op;  // avg where any mesh dim is P(avg)
  int64_t divisor = 1;         // product of the sizes of the P(avg) mesh dims
};

template <typename T>
typename T::Bits LoadAt(absl::Span<const std::byte> buffer, int64_t index) {
  typename T::Bits bits;
  std::memcpy(&bits, buffer.data() + index * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
  return bits;
}

// Adds to `result` what the ranks at two positions, which should hold the same, hold differently.
// `seen`: per element, whether it was counted.
template <typename T>
void CountDifferences(const Side& side, size_t shard, int64_t one, int64_t two, BufferViews buffers,
                      std::vector<bool>* seen, CheckResult* result) {
  const Region& region = side.regions[shard];
  for (int64_t i = 0; i < region.NumElements(); ++i) {
    const auto a = LoadAt<T>(buffers[one], i);
    const auto b = LoadAt<T>(buffers[two], i);
    if (a == b || (*seen)[i]) continue;
    (*seen)[i] = true;
    ++result->replicas_differ;
    if (!result->first_difference.empty()) continue;
    result->first_difference = fmt::format(
        "ranks {} and {} differ at {}: {} and {}", side.mesh.RankAt(one), side.mesh.RankAt(two),
        side.IndexText(region, i), ValueText<T>(a), ValueText<T>(b));
  }
}

template <typename T>
CheckResult FindDifferences(const Side& side, BufferViews buffers) {
  CheckResult result;
  const Positions& at = side.positions;
  for (size_t s = 0; s < at.shards.size(); ++s) {
    const int64_t elements = side.regions[s].NumElements();
    if (elements == 0) continue;
    for (const int64_t partial : at.partials) {
      const int64_t first = at.shards[s] + partial + at.replicas[0];
      std::vector<bool> seen;
      for (const int64_t replica : at.replicas) {
        const int64_t other = at.shards[s] + partial + replica;
        const size_t bytes = buffers[first].size();
        if (std::memcmp(buffers[first].data(), buffers[other].data(), bytes) == 0) continue;
        seen.resize(elements);
        CountDifferences<T>(side, s, first, other, buffers, &seen, &result);
      }
    }
  }
  return result;
}

// Both sides, and how they hang together.
struct World {
  World(const Sharding& source, const Sharding& target) : from(source), to(target) {
    const bool one_mesh = source.mesh() == target.mesh();
    reduction.from_op = from.op;
    reduction.to_op = to.op;
    reduction.to_divisor = to.divisor;
    reduction.to_count = static_cast<int64_t>(to.positions.partials.size());
    std::vector<int64_t>& part_of = reduction.part_of;
    for (int d = 0; d < source.mesh().NumDims(); ++d) {
      const Placement& placement = source.placement(d);
      if (!placement.IsPartial()) continue;
      const int64_t size = source.mesh().dim(d).size;
      const bool kept = one_mesh && target.placement(d).IsPartial();
      if (placement.op() == ReduceOp::kAvg) {
        (kept ? reduction.kept_divisor : reduction.reduced_divisor) *= size;
      }
      // As PositionsOf numbers the partial coordinates: the last mesh dim varies fastest.
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

template <typename T>
class Judge {
 public:
  using Bits = typename T::Bits;
  using Wide = typename T::Wide;
  Judge(const World& world, BufferViews sources, BufferViews targets)
      : world_(world), sources_(sources), targets_(targets), rule_(world.reduction) {}

  CheckResult Run() {
    result_ = FindDifferences<T>(world_.to, targets_);
    for (size_t t = 0; t < world_.to.regions.size(); ++t) {
      for (size_t s = 0; s < world_.from.regions.size(); ++s) JudgePair(s, t);
    }
    return std::move(result_);
  }

 private:
  // Judges what the ranks of the target's shard t got of the source's shard s.
  void JudgePair(size_t s, size_t t) {
    const Region& from = world_.from.regions[s];
    const Region& to = world_.to.regions[t];
    Region common = from;
    for (size_t d = 0; d < common.lo.size(); ++d) {
      common.lo[d] = std::max(from.lo[d], to.lo[d]);
      common.hi[d] = std::min(from.hi[d], to.hi[d]);
      if (common.lo[d] >= common.hi[d]) return;
    }
    auto index = common.lo;
    for (bool more = true; more;) {
      JudgeElement(s, LocalIndex(from, index), t, LocalIndex(to, index));
      more = false;
      for (size_t d = index.size(); d-- > 0 && !more;) {
        more = ++index[d] < common.hi[d];
        if (!more) index[d] = common.lo[d];
      }
    }
  }

  static int64_t LocalIndex(const Region& region, absl::Span<const int64_t> index) {
    int64_t local = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      local = local * (region.hi[d] - region.lo[d]) + (index[d] - region.lo[d]);
    }
    return local;
  }

  void JudgeElement(size_t s, int64_t source, size_t t, int64_t target) {
    const Positions& from = world_.from.positions;
    const Positions& to = world_.to.positions;
    const int64_t holder = to.shards[t];
    if (!world_.from.IsReduced() && !world_.to.IsReduced()) {
      // Moved: the bits, whatever they mean.
      const Bits want = LoadAt<T>(sources_[from.shards[s] + from.replicas[0]], source);
      for (const int64_t replica : to.replicas) {
        const Bits got = LoadAt<T>(targets_[holder + replica], target);
        if (!(got == want)) AddWrong(t, holder + replica, target, got, want);
      }
      return;
    }
    contributions_.clear();
    for (const int64_t partial : from.partials) {
      const int64_t position = from.shards[s] + partial + from.replicas[0];
      contributions_.push_back(T::Decode(LoadAt<T>(sources_[position], source)));
    }
    rule_.Expect(contributions_);
    if (!world_.to.IsReduced()) {
      for (const int64_t replica : to.replicas) {
        const Bits got = LoadAt<T>(targets_[holder + replica], target);
        if (!rule_.Allows(got)) AddWrong(t, holder + replica, target, got, rule_.Nearest());
      }
      return;
    }
    held_.clear();
    for (const int64_t partial : to.partials) {
      held_.push_back(T::Decode(LoadAt<T>(targets_[holder + partial + to.replicas[0]], target)));
    }
    if (rule_.AllowsTogether(held_)) return;
    AddWrong(t, holder + to.replicas[0], target,
             LoadAt<T>(targets_[holder + to.replicas[0]], target), rule_.Nearest());
  }

  void AddWrong(size_t t, int64_t position, int64_t local, Bits got, Bits want) {
    ++result_.wrong;
    if (!result_.first_wrong.empty()) return;
    const int64_t rank = world_.to.mesh.RankAt(position);
    const std::string index = world_.to.IndexText(world_.to.regions[t], local);
    result_.first_wrong =
        world_.to.IsReduced()
            ? fmt::format(
                  "rank {} and its partial group do not hold together {} at {}; the rank "
                  "holds {}",
                  rank, ValueText<T>(want), index, ValueText<T>(got))
            : fmt::format("rank {} holds {} at {}, not {}", rank, ValueText<T>(got), index,
                          ValueText<T>(want));
  }

  const World& world_;
  const BufferViews sources_;
  const BufferViews targets_;
  RuleOf<T> rule_;
  CheckResult result_;
  std::vector<Wide> contributions_;
  std::vector<Wide> held_;
};

}  // namespace

absl::StatusOr<CheckResult> CheckReplicas(const Sharding& sharding, BufferViews buffers) {
  const Side side(sharding);
  MESHIFT_RETURN_IF_ERROR(side.CheckSizes(buffers));
  return WithType(sharding.dtype(),
                  [&](auto type) { return FindDifferences<decltype(type)>(side, buffers); });
}

absl::StatusOr<CheckResult> CheckGiven(const Sharding& source, const Sharding& target,
                                       BufferViews sources, BufferViews targets) {
  if (source.dtype() != target.dtype()) {
    return Unimplemented("{} -> {}: a change of dtype is not judged with given contributions",
                         Name(source.dtype()), Name(target.dtype()));
  }
  if (!(source.tensor() == target.tensor())) {
    return InvalidArgument("The source is {} and the target {}: they must be one tensor",
                           source.tensor().ToString(), target.tensor().ToString());
  }
  for (int d = 0; source.mesh() == target.mesh() && d < source.mesh().NumDims(); ++d) {
    const Placement& from = source.placement(d);
    const Placement& to = target.placement(d);
    const bool counts = source.mesh().dim(d).size > 1;
    if (!counts || !from.IsPartial() || !to.IsPartial() || from.op() == to.op()) continue;
    return InvalidArgument("{} -> {} on mesh dim {} is refused", from.ToString(), to.ToString(),
                           source.mesh().dim(d).name);
  }
  const World world(source, target);
  MESHIFT_RETURN_IF_ERROR(world.from.CheckSizes(sources));
  MESHIFT_RETURN_IF_ERROR(world.to.CheckSizes(targets));
  return WithType(source.dtype(),
                  [&](auto type) { return Judge<decltype(type)>(world, sources, targets).Run(); });
}

}  // namespace meshift::testkit
