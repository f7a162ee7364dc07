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
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "testing/cast.h"
#include "testing/geometry.h"
#include "testing/given_cast.h"
#include "testing/given_rules.h"
#include "testing/given_world.h"
#include "testing/number.h"

namespace meshift::testkit {
namespace {

// Adds the differing elements of two positions that must hold the same to `result`. `seen`: per
// element, whether it was counted.
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

template <typename T>
class Judge {
 public:
  using Bits = typename T::Bits;
  using Wide = typename T::Wide;
  // `cast_from`: the source's dtype if it differs; its elements are cast as they are read.
  Judge(const World& world, const NumberOps* cast_from, BufferViews sources, BufferViews targets)
      : world_(world),
        cast_from_(cast_from),
        sources_(sources),
        targets_(targets),
        rule_(world.reduction) {}

  CheckResult Run() {
    result_ = FindDifferences<T>(world_.to, targets_);
    ForEachElement(world_, [&](size_t s, int64_t source, size_t t, int64_t target) {
      JudgeElement(s, source, t, target);
    });
    return std::move(result_);
  }

 private:
  void JudgeElement(size_t s, int64_t source, size_t t, int64_t target) {
    const Positions& from = world_.from.positions;
    const Positions& to = world_.to.positions;
    const int64_t holder = to.shards[t];
    if (!world_.from.IsReduced() && !world_.to.IsReduced()) {
      // Moved: the bits must be equal, whatever they mean.
      const Bits want = SourceAt(from.shards[s] + from.replicas[0], source);
      for (const int64_t replica : to.replicas) {
        const Bits got = LoadAt<T>(targets_[holder + replica], target);
        if (!(got == want)) AddWrong(t, holder + replica, target, got, want);
      }
      return;
    }
    contributions_.clear();
    for (const int64_t partial : from.partials) {
      const int64_t position = from.shards[s] + partial + from.replicas[0];
      contributions_.push_back(T::Decode(SourceAt(position, source)));
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

  Bits SourceAt(int64_t position, int64_t index) const {
    if (cast_from_ == nullptr) return LoadAt<T>(sources_[position], index);
    return FromNumber<T>(cast_from_->load(sources_[position].data(), index));
  }

  void AddWrong(size_t t, int64_t position, int64_t local, Bits got, Bits want) {
    ++result_.wrong;
    if (!result_.first_wrong.empty()) return;
    result_.first_wrong =
        WrongText(world_, t, position, local, ValueText<T>(got), ValueText<T>(want));
  }

  const World& world_;
  const NumberOps* const cast_from_;
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
                                       BufferViews sources, BufferViews targets,
                                       std::optional<DType> reduce_dtype) {
  if (source.dtype() != target.dtype()) {
    MESHIFT_RETURN_IF_ERROR(CheckCastOf(source.dtype(), target.dtype()));
  }
  if (!(source.shape() == target.shape())) {
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
  const Path path = PathOf(source, target, reduce_dtype);
  const World world(source, target, path);
  MESHIFT_RETURN_IF_ERROR(world.from.CheckSizes(sources));
  MESHIFT_RETURN_IF_ERROR(world.to.CheckSizes(targets));
  if (path.reduces && path.Casts(source, target)) {
    MESHIFT_RETURN_IF_ERROR(CheckCastOf(source.dtype(), path.reduce));
    MESHIFT_RETURN_IF_ERROR(CheckCastOf(path.reduce, target.dtype()));
    CheckResult result =
        CheckCastSum(world, source.dtype(), path.reduce, target.dtype(), sources, targets);
    const CheckResult replicas = CheckReplicas(target, targets).value();
    result.Add(replicas);
    return result;
  }
  const NumberOps* const cast_from =
      source.dtype() == target.dtype() ? nullptr : &NumberOpsOf(source.dtype());
  return WithType(target.dtype(), [&](auto type) {
    return Judge<decltype(type)>(world, cast_from, sources, targets).Run();
  });
}

}  // namespace meshift::testkit
