#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "placement/op_table.h"
#include "testing/cast.h"
#include "testing/cast_case.h"
#include "testing/contribution.h"
#include "testing/dtype_ops.h"
#include "testing/geometry.h"

namespace meshift::testkit {
namespace {

// How a sharding's partial coordinates combine.
struct Partials {
  std::optional<ReduceOp> op;  // avg if any mesh dim is P(avg)
  int64_t count = 1;           // partial coordinates
  int64_t divisor = 1;         // product of the sizes of the P(avg) mesh dims
};

Partials PartialsOf(const Sharding& sharding) {
  Partials partials;
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    const Placement& placement = sharding.placement(d);
    if (!placement.IsPartial()) continue;
    const int64_t size = sharding.mesh().dim(d).size;
    partials.count *= size;
    if (placement.op() == ReduceOp::kAvg) partials.divisor *= size;
    if (partials.op != ReduceOp::kAvg) partials.op = placement.op();
  }
  return partials;
}

absl::Status CheckPair(const Sharding& source, const Sharding& target) {
  MESHIFT_RETURN_IF_ERROR(CheckCastOf(source.dtype(), target.dtype()));
  if (!(source.shape() == target.shape())) {
    return InvalidArgument("The source is {} and the target {}: they must be one tensor",
                           source.tensor().ToString(), target.tensor().ToString());
  }
  if (!(source.mesh() == target.mesh())) return absl::OkStatus();
  const bool is_empty = NumElements(source.shape()) == 0;
  for (int d = 0; d < source.mesh().NumDims(); ++d) {
    const Placement& from = source.placement(d);
    const Placement& to = target.placement(d);
    // Over a mesh dim of size 1 every op is the identity.
    if (!to.IsPartial() || source.mesh().dim(d).size == 1) continue;
    const bool changes_op = from.IsPartial() && from.op() != to.op();
    // Without elements all placements say the same.
    const bool spreads_shard = from.IsShard() && to.op() == ReduceOp::kAvg && !is_empty;
    if (changes_op || spreads_shard) {
      return InvalidArgument("{} -> {} on mesh dim {} is refused", from.ToString(), to.ToString(),
                             source.mesh().dim(d).name);
    }
  }
  return absl::OkStatus();
}

// The dtypes between source and target, and the partial mesh dims that stay partial.
struct Path {
  DType reduce;            // the source's dtype if nothing is reduced
  bool reduces = false;    // whether any mesh dim is reduced
  std::vector<bool> kept;  // per mesh dim: partial in source and target, and not reduced
};

Path PathOf(const Sharding& source, const Sharding& target, std::optional<DType> reduce_dtype) {
  const bool one_mesh = source.mesh() == target.mesh();
  Path path{.reduce = source.dtype(), .kept = std::vector<bool>(source.mesh().NumDims())};
  bool keeps = false;
  for (int d = 0; d < source.mesh().NumDims(); ++d) {
    if (!source.placement(d).IsPartial()) continue;
    path.kept[d] = one_mesh && target.placement(d).IsPartial();
    if (source.mesh().dim(d).size > 1) (path.kept[d] ? keeps : path.reduces) = true;
  }
  const auto is_exact = [](DType from, DType to) { return from == to || IsExact(from, to); };
  const bool recasts = keeps && !is_exact(source.dtype(), target.dtype());
  if (!path.reduces && !recasts) return path;
  path.reduce = reduce_dtype.value_or(ReduceDTypeOf(source.dtype(), target.dtype()));
  if (!recasts && is_exact(source.dtype(), path.reduce) && is_exact(path.reduce, target.dtype())) {
    return path;
  }
  path.reduces = true;
  path.kept.assign(path.kept.size(), false);
  return path;
}

absl::Status CheckPath(const Path& path, const Sharding& source, const Sharding& target) {
  MESHIFT_RETURN_IF_ERROR(CheckCastOf(source.dtype(), path.reduce));
  MESHIFT_RETURN_IF_ERROR(CheckCastOf(path.reduce, target.dtype()));
  for (const Placement& placement : source.placements()) {
    if (!path.reduces || !placement.IsPartial()) continue;
    MESHIFT_RETURN_IF_ERROR(CheckReduce(placement.op(), path.reduce));
  }
  return absl::OkStatus();
}

// Halves the last dim: a byte holds two f4e2m1. No Sharding cuts inside a byte.
void PackRows(Region* region) {
  region->lo.back() /= 2;
  region->hi.back() /= 2;
}

}  // namespace

struct Oracle::Rep {
  Sharding source;
  Sharding target;
  bool packed = false;  // f4e2m1: elements are bytes, and the last dim is halved
  Shape shape;
  Partials from, to;
  std::vector<bool> kept;         // per mesh dim: partial in source and target
  const TypedOps* ops = nullptr;  // the target's
  int source_bytes = 0;           // per element
  std::optional<CastCase> casts;  // if dtypes differ
  RecipeInput cast_input;         // the requirements of casts on recipes
  Positions positions;            // the target's
  std::vector<Region> regions;    // per entry of positions.shards

  Region RegionOf(const Sharding& sharding, int64_t position) const {
    Region region = RegionAt(sharding, sharding.mesh().CoordinateAt(position));
    if (packed) PackRows(&region);
    return region;
  }
  // The row-major index of the source's partial coordinate.
  uint64_t PartialIndex(absl::Span<const int64_t> coordinate) const {
    uint64_t index = 0;
    for (int d = 0; d < source.mesh().NumDims(); ++d) {
      if (!source.placement(d).IsPartial()) continue;
      index = index * static_cast<uint64_t>(source.mesh().dim(d).size) +
              static_cast<uint64_t>(coordinate[d]);
    }
    return index;
  }
  bool KeepsAny() const {
    for (const bool keep : kept) {
      if (keep) return true;
    }
    return false;
  }
  Recipe RecipeOf(const Fill& fill) const {
    RecipeInput input = cast_input;
    input.op = from.op;
    input.partials = from.count;
    input.divisor = from.divisor;
    input.divided_in_parts = KeepsAny();
    input.values = fill.values;
    input.seed = fill.seed;
    return (casts.has_value() ? casts->reduce_ops() : *ops).make_recipe(input);
  }
  void SetCasts(DType reduce) {
    // Over a mesh dim of size 1 nothing is reduced.
    if (from.count == 1) from.op.reset();
    if (to.count == 1) to.op.reset();
    const NumberOps& held = NumberOpsOf(source.dtype());
    const NumberOps& target_numbers = NumberOpsOf(target.dtype());
    casts.emplace(source.dtype(), reduce, target.dtype(),
                  !from.op.has_value() && !to.op.has_value());
    ops = &OpsOf(target.dtype());
    source_bytes = held.bytes;
    if (source.dtype() != reduce) {
      cast_input.held = &held;
      cast_input.held_is_exact = IsExact(source.dtype(), reduce);
    }
    cast_input.no_wrap = KeepsAny() || to.op.has_value();
    cast_input.largest = std::min(held.largest, target_numbers.largest);
    // A few bits more than the target has, so that casts round but no contribution gets lost.
    const double most = std::ldexp(1.0, std::min(target_numbers.digits + 6, 24));
    cast_input.most = static_cast<uint64_t>(std::min(most, target_numbers.largest));
  }
  int BytesOf(const Sharding& sharding) const {
    return &sharding == &source ? source_bytes : ops->element_bytes;
  }
  std::string IndexText(int64_t element) const {
    std::vector<int64_t> index(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      index[d] = element % shape[d];
      element /= shape[d];
    }
    if (packed) index.back() *= 2;
    return fmt::format("[{}]", fmt::join(index, ","));
  }
  std::string ValueText(const std::byte* value) const {
    return packed ? ops->to_text(value) : OpsOf(target.dtype()).to_text(value);
  }
  std::string WrongText(const Fault& fault) const {
    const int64_t rank = target.mesh().RankAt(fault.position);
    const std::string got = ValueText(fault.got);
    const std::string want = ValueText(fault.want);
    const std::string index = IndexText(fault.element);
    if (!to.op.has_value())
      return fmt::format("rank {} holds {} at {}, not {}", rank, got, index, want);
    return fmt::format("rank {} and its partial group together hold {} at {}, not {}", rank, got,
                       index, want);
  }
  std::string DifferenceText(const Fault& fault) const {
    return fmt::format("ranks {} and {} differ at {}: {} and {}",
                       target.mesh().RankAt(fault.position), target.mesh().RankAt(fault.other),
                       IndexText(fault.element), ValueText(fault.got), ValueText(fault.want));
  }
  absl::Status CheckBuffer(const Sharding& sharding, int64_t position, size_t size) const {
    if (position < 0 || position >= sharding.mesh().NumRanks()) {
      return InvalidArgument("Position {} is not in a mesh of {} ranks", position,
                             sharding.mesh().NumRanks());
    }
    const int64_t bytes = RegionOf(sharding, position).NumElements() * BytesOf(sharding);
    if (static_cast<int64_t>(size) == bytes) return absl::OkStatus();
    return InvalidArgument("The buffer of rank {} has {} bytes; its part of {} has {}",
                           sharding.mesh().RankAt(position), size, sharding.ToString(), bytes);
  }
};

void CheckResult::Add(const CheckResult& other) {
  if (wrong == 0) first_wrong = other.first_wrong;
  if (replicas_differ == 0) first_difference = other.first_difference;
  wrong += other.wrong;
  replicas_differ += other.replicas_differ;
}

std::string CheckResult::ToString() const {
  std::string text;
  if (wrong > 0) text += fmt::format("{} wrong elements: {}", wrong, first_wrong);
  if (wrong > 0 && replicas_differ > 0) text += "; ";
  if (replicas_differ > 0) {
    text += fmt::format("{} replicated elements differ: {}", replicas_differ, first_difference);
  }
  return text;
}

absl::StatusOr<Oracle> Oracle::Create(const Sharding& source, const Sharding& target,
                                      std::optional<DType> reduce_dtype) {
  MESHIFT_RETURN_IF_ERROR(CheckPair(source, target));
  Path path = PathOf(source, target, reduce_dtype);
  MESHIFT_RETURN_IF_ERROR(CheckPath(path, source, target));
  auto rep = std::make_shared<Rep>(Rep{.source = source,
                                       .target = target,
                                       .packed = source.dtype() == DType::kF4E2M1,
                                       .shape = source.shape(),
                                       .from = PartialsOf(source),
                                       .to = PartialsOf(target),
                                       .kept = std::move(path.kept),
                                       .ops = nullptr,
                                       .casts = std::nullopt,
                                       .cast_input = {},
                                       .positions = PositionsOf(target),
                                       .regions = {}});
  if (rep->packed) rep->shape.back() /= 2;
  const bool raw = rep->packed || (!rep->from.op.has_value() && !rep->to.op.has_value());
  const bool is_bool = source.dtype() == DType::kBool;  // not every byte is a valid bool
  rep->ops = raw && !is_bool ? &RawOps(rep->packed ? 1 : BitWidth(source.dtype()) / 8)
                             : &OpsOf(source.dtype());
  rep->source_bytes = rep->ops->element_bytes;
  if (path.reduce != source.dtype() || target.dtype() != path.reduce) rep->SetCasts(path.reduce);
  rep->regions.reserve(rep->positions.shards.size());
  for (const int64_t position : rep->positions.shards) {
    rep->regions.push_back(rep->RegionOf(target, position));
  }
  return Oracle(std::move(rep));
}

const Sharding& Oracle::source() const { return rep_->source; }
const Sharding& Oracle::target() const { return rep_->target; }

int64_t Oracle::SourceBytes(int64_t position) const {
  return rep_->RegionOf(rep_->source, position).NumElements() * rep_->source_bytes;
}

int64_t Oracle::TargetBytes(int64_t position) const {
  return rep_->RegionOf(rep_->target, position).NumElements() * rep_->ops->element_bytes;
}

absl::Status Oracle::FillSource(const Fill& fill, int64_t position,
                                absl::Span<std::byte> local) const {
  const Rep& rep = *rep_;
  MESHIFT_RETURN_IF_ERROR(rep.CheckBuffer(rep.source, position, local.size()));
  const Recipe recipe = rep.RecipeOf(fill);
  const uint64_t partial = rep.PartialIndex(rep.source.mesh().CoordinateAt(position));
  const Region region = rep.RegionOf(rep.source, position);
  if (rep.casts.has_value()) {
    rep.casts->Fill(recipe, fill.values == Values::kSpecial, rep.shape, region,
                    Place(recipe, partial), local.data());
  } else {
    rep.ops->fill(recipe, rep.shape, region, Place(recipe, partial), local.data());
  }
  return absl::OkStatus();
}

absl::Status Oracle::MakeTarget(const Fill& fill, int64_t position,
                                absl::Span<std::byte> local) const {
  const Rep& rep = *rep_;
  MESHIFT_RETURN_IF_ERROR(rep.CheckBuffer(rep.target, position, local.size()));
  const Region region = rep.RegionOf(rep.target, position);
  const Coordinate coordinate = rep.target.mesh().CoordinateAt(position);
  for (int d = 0; d < rep.target.mesh().NumDims(); ++d) {
    const Placement& placement = rep.target.placement(d);
    const bool is_new =
        placement.IsPartial() && !(d < static_cast<int>(rep.kept.size()) && rep.kept[d]);
    if (is_new && placement.op() != ReduceOp::kAvg && coordinate[d] != 0) {
      rep.ops->fill_identity(placement.op(), region.NumElements(), local.data());
      return absl::OkStatus();
    }
  }
  const Recipe recipe = rep.RecipeOf(fill);
  std::vector<uint64_t> places;  // the contributions of this rank's kept coordinates
  int64_t divisor = 1;           // product of the sizes of the averaged mesh dims
  if (rep.KeepsAny()) {
    std::vector<uint64_t> indices = {0};
    for (int d = 0; d < rep.source.mesh().NumDims(); ++d) {
      if (!rep.source.placement(d).IsPartial()) continue;
      const auto size = static_cast<uint64_t>(rep.source.mesh().dim(d).size);
      std::vector<uint64_t> longer;
      for (const uint64_t index : indices) {
        for (uint64_t i = 0; i < size; ++i) {
          if (rep.kept[d] && i != static_cast<uint64_t>(coordinate[d])) continue;
          longer.push_back(index * size + i);
        }
      }
      indices = std::move(longer);
      const bool divides = rep.source.placement(d).op() == ReduceOp::kAvg && !rep.kept[d];
      if (divides) divisor *= static_cast<int64_t>(size);
    }
    for (const uint64_t index : indices) places.push_back(Place(recipe, index));
  }
  if (rep.casts.has_value()) {
    rep.casts->Total(recipe, fill.values == Values::kSpecial, rep.shape, region, places, divisor,
                     local.data());
  } else {
    rep.ops->total(recipe, rep.shape, region, places, divisor, local.data());
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckResult> Oracle::Check(
    const Fill& fill, absl::Span<const absl::Span<const std::byte>> targets) const {
  const Rep& rep = *rep_;
  if (static_cast<int64_t>(targets.size()) != rep.target.mesh().NumRanks()) {
    return InvalidArgument("{} buffers were given for a mesh of {} ranks", targets.size(),
                           rep.target.mesh().NumRanks());
  }
  for (size_t p = 0; p < targets.size(); ++p) {
    MESHIFT_RETURN_IF_ERROR(
        rep.CheckBuffer(rep.target, static_cast<int64_t>(p), targets[p].size()));
  }
  const Recipe recipe = rep.RecipeOf(fill);
  std::unique_ptr<Wants> wants;
  if (rep.casts.has_value()) {
    const int64_t operations = rep.from.count + rep.to.count + 8;
    wants = rep.casts->WantsOf(recipe, fill.values == Values::kSpecial, operations);
  }
  const Judgement judgement = rep.ops->judge(recipe, {.shape = rep.shape,
                                                      .positions = &rep.positions,
                                                      .regions = rep.regions,
                                                      .op = rep.to.op,
                                                      .divisor = rep.to.divisor,
                                                      .buffers = targets,
                                                      .wants = wants.get()});
  CheckResult result;
  result.wrong = judgement.wrong;
  result.replicas_differ = judgement.replicas_differ;
  if (judgement.first_wrong.has_value()) {
    result.first_wrong = rep.WrongText(*judgement.first_wrong);
  }
  if (judgement.first_difference.has_value()) {
    result.first_difference = rep.DifferenceText(*judgement.first_difference);
  }
  return result;
}

}  // namespace meshift::testkit
