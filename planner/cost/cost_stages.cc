// Prices reductions in blocks (the functions of planner/cost/cost.h with "Stages"). In stage 1,
// owners of slices combine the contributions inside each block. In stage 2, the block's results go
// to the owners of the final results.
//
// On a row-major mesh, the block size is divided by the sizes of the mesh dims, innermost first.
// Each dim's size must divide the part of the block size that is left, or be a multiple of it.
// Otherwise blocks end inside a mesh dim. Then, on a mesh of more than 1,024 ranks, both stages are
// priced as if no two members shared a domain. Smaller meshes are listed rank by rank.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked_math.h"
#include "mesh/layout.h"
#include "meshift/dtype.h"
#include "placement/cast.h"
#include "planner/cost/cost.h"
#include "planner/cost/group_shape.h"

namespace meshift {

namespace {

// The largest mesh on which blocks that do not match the mesh dims are listed rank by rank.
constexpr int64_t kMaxListedRanks = 1024;

}  // namespace

const std::optional<CostModel::Stages>& CostModel::StagesOf(DimMask dims) const {
  static const std::optional<Stages> kNone;
  if (stages_.empty()) return kNone;
  if (!stages_[dims]) stages_[dims] = MakeStages(dims);
  return *stages_[dims];
}

std::optional<CostModel::Stages> CostModel::MakeStages(DimMask dims) const {
  const int64_t k = options_.reduce_block;
  const int64_t n = GroupSize(dims);
  if (k <= 1 || k >= n || n % k != 0) return std::nullopt;
  RankGroups groups = GroupsOver(dims);
  RankGroups inside{.size = k};
  RankGroups across{.size = n / k};
  int64_t left = k;  // the part of the block size that the remaining modes must provide
  for (const Layout::Mode& mode : groups.modes) {
    if (left % mode.size == 0) {
      inside.modes.push_back(mode);
      left /= mode.size;
    } else if (mode.size % left == 0) {
      if (left > 1) inside.modes.push_back({left, mode.stride});
      across.modes.push_back({mode.size / left, mode.stride * left});
      left = 1;
    } else if (problem_.mesh().NumRanks() <= kMaxListedRanks) {
      // Blocks end inside a mesh dim: list them.
      groups.ranks = RanksOver(dims);
      break;
    } else {
      // Too many ranks to list: assume that no two members share a domain.
      const int64_t far = problem_.mesh().NumRanks();
      inside.modes = {{k, far}};
      across.modes = {{n / k, far}};
      break;
    }
  }
  for (const std::vector<int64_t>& ranks : groups.ranks) {
    for (int64_t begin = 0; begin < n; begin += k) {
      inside.ranks.emplace_back(ranks.begin() + begin, ranks.begin() + begin + k);
    }
    for (int64_t place = 0; place < k; ++place) {
      std::vector<int64_t>& part = across.ranks.emplace_back();
      for (int64_t i = place; i < n; i += k) part.push_back(ranks[i]);
    }
  }
  return Stages{MakeTimes(inside), MakeTimes(across)};
}

// There are m blocks of k contributions. Slices of an all_reduce have the same length as without
// stages; all slices of a reduce_scatter count with the length of the largest. A column is the part
// of the result whose m owners have equal indices in their blocks.
Traffic CostModel::MeasureStages(StepOp op, const State& before, const State& after,
                                 const Stages& stages, bool even) const {
  const bool spreads = op == StepOp::kAllReduce;
  const int64_t k = stages.inside.shape().size;
  const int64_t m = stages.across.shape().size;
  const DType dtype = problem_.dtype(before.stage());
  const DType wide = AccumulateDType(dtype);
  const int64_t item = problem_.item_bytes(before.stage());
  const int64_t wide_item = Bytes(wide, 1);
  const int64_t items = problem_.MaxItems(before);
  const int64_t part = spreads ? CeilDiv(items, k * m) : problem_.MaxItems(after);
  const int64_t all = SaturatingMul(m, part);
  const int64_t column = spreads ? std::min(items, all) : all;
  const auto bytes = [item](int64_t count) { return SaturatingMul(count, item); };
  const auto wide_bytes = [wide_item](int64_t count) { return SaturatingMul(count, wide_item); };
  const auto add = [](int64_t* to, int64_t what) { *to = SaturatingAdd(*to, what); };

  Traffic traffic;
  traffic.reduce_stages = 2;
  traffic.sizes = even ? StepSizes::kEven : StepSizes::kPadded;
  const auto move = [&](const GroupTimes& times, int64_t moved) {
    TakeMessages(times, moved, times.shape().size - 1, &traffic);
  };
  const auto copy = [&](int64_t copied) { traffic.TakeCopy(CopyNs(copied)); };
  const int64_t inside = bytes(SaturatingMul(k - 1, column));
  const int64_t across = wide_bytes(SaturatingMul(m - 1, part));
  const int64_t slots = SaturatingMul(k, all);
  traffic.receive_pack_bytes = bytes(slots);
  copy(bytes(column));
  move(stages.inside, inside);
  if (wide != dtype) {
    add(&traffic.receive_pack_bytes, wide_bytes(slots));
    copy(SaturatingAdd(bytes(slots), wide_bytes(slots)) / 2);
  }
  copy(wide_bytes(slots));
  copy(wide_bytes(part));
  move(stages.across, across);
  copy(wide_bytes(all));
  if (wide != dtype) copy(wide_bytes(part));
  if (!spreads) {
    traffic.bytes_sent = SaturatingAdd(inside, across);
    traffic.bytes_received = traffic.bytes_sent;
    traffic.send_pack_bytes = inside;
    copy(inside);
    return traffic;
  }
  move(stages.across, bytes(SaturatingMul(m - 1, part)));
  move(stages.inside, inside);
  // The owner of the most of a column sends most; with wide sums it may be the owner of the least
  // of the first column.
  const auto sent = [&](int64_t own) {
    int64_t total = wide_bytes(column - own);
    add(&total, bytes(items - column));
    add(&total, bytes(SaturatingMul(m - 1, own)));
    add(&total, bytes(SaturatingMul(k - 1, column)));
    return total;
  };
  const int64_t least = std::clamp<int64_t>(items - (m - 1) * part, 0, part);
  traffic.bytes_sent = std::max(sent(std::min(part, items)), sent(least));
  traffic.bytes_received = traffic.bytes_sent;
  return traffic;
}

}  // namespace meshift
