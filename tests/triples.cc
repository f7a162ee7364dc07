#include "tests/triples.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "placement/op_table.h"
#include "testing/random.h"
#include "testing/synthetic_mesh.h"

namespace meshift {
namespace {

using testkit::Random;

DeviceMesh WideMesh(Random& random) {
  constexpr int64_t kSizes[] = {1, 2, 2, 2, 3, 4, 5, 8};
  const int64_t num_dims = random.OneIn(8) ? 5 : 1 + random.Below(4);
  int64_t left = num_dims == 5 ? 48 : 64;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < num_dims; ++d) {
    const int64_t size = kSizes[random.Below(8)];
    sizes.push_back(size <= left ? size : 1);
    left /= sizes.back();
  }
  const uint64_t order = random.Next();
  return random.OneIn(4) ? testkit::ShuffledMesh(sizes, order).value()
                         : testkit::SyntheticMesh(sizes).value();
}

TensorType WideTensor(const DeviceMesh& mesh, Random& random) {
  constexpr DType kTypes[] = {DType::kF32,  DType::kF32,    DType::kF32, DType::kBF16,
                              DType::kBF16, DType::kF8E4M3, DType::kI32, DType::kF64};
  TensorType tensor{kTypes[random.Below(8)], Shape(random.Below(5))};
  const int64_t style = random.Below(5);
  for (int64_t& extent : tensor.shape) {
    const int64_t kind = random.OneIn(6) ? random.Below(5) : style;
    if (kind == 0) extent = random.Below(10);
    if (kind == 1) extent = 1 + random.Below(4);
    if (kind == 2) extent = mesh.NumRanks() * (1 + random.Below(64));
    if (kind == 3) extent = int64_t{1} << random.Below(13);
    if (kind == 4) extent = 1 + random.Below(2000);
  }
  return tensor;
}

// The placements of a tensor, mesh dim by mesh dim.
struct Draft {
  std::vector<Placement> placements;
  std::vector<Cuts> cuts;

  explicit Draft(const Sharding& sharding)
      : placements(sharding.placements().begin(), sharding.placements().end()) {
    for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
      cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
    }
  }
  Draft(int num_dims, size_t tensor_rank)
      : placements(num_dims, Placement::Replicate()), cuts(tensor_rank) {}

  void Set(int d, const Placement& placement, Random& random) {
    for (Cuts& list : cuts) list.erase(std::remove(list.begin(), list.end(), d), list.end());
    placements[d] = placement;
    if (!placement.IsShard()) return;
    Cuts& list = cuts[placement.tensor_dim()];
    list.insert(list.begin() + random.Below(static_cast<int64_t>(list.size()) + 1), d);
  }
  void Reorder(Random& random) {
    for (Cuts& list : cuts) random.Shuffle(list);
  }
};

// The ops of partial values: one op, or sums and averages.
struct Ops {
  ReduceOp op = ReduceOp::kSum;
  bool mixes = false;

  Placement Draw(Random& random) const {
    return Placement::Partial(mixes && random.OneIn(2) ? ReduceOp::kAvg : op);
  }
};

Ops WideOps(DType dtype, Random& random) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kSum,
                               ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct};
  Ops ops{kOps[random.Below(8)], random.OneIn(6)};
  if (!CheckReduce(ops.op, dtype).ok() || ops.mixes) ops.op = ReduceOp::kSum;
  return ops;
}

// R or a shard; or, if allowed, partial.
Placement WidePlacement(int64_t tensor_rank, const std::optional<Placement>& partial,
                        Random& random) {
  const int64_t kind = random.Below(4);
  if (kind == 0 && partial) return *partial;
  if (kind == 1 || tensor_rank == 0) return Placement::Replicate();
  return Placement::Shard(static_cast<int>(random.Below(tensor_rank)));
}

PlannerOptions WideOptions(Random& random) {
  constexpr std::string_view kTopologies[] = {"flat",     "flat", "flat",           "nvlink=4",
                                              "nvlink=4", "h100", "nvlink=2,rail=8"};
  PlannerOptions options{.topology = *Topology::Parse(kTopologies[random.Below(7)])};
  if (random.OneIn(6)) options.reproducibility = Reproducibility::kNone;
  return options;
}

}  // namespace

Triple WideTriple(uint64_t seed) {
  Random random(seed);
  const DeviceMesh mesh = WideMesh(random);
  const TensorType tensor = WideTensor(mesh, random);
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  const Ops ops = WideOps(tensor.dtype, random);
  const auto made = [&](const Draft& draft) {
    return Sharding::Create(mesh, tensor, draft.placements, draft.cuts).value();
  };
  const int64_t style = random.Below(12);  // style of A: all replicated, all partial, any
  Draft a(mesh.NumDims(), tensor.shape.size());
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const Placement partial = ops.Draw(random);
    if (style == 1) a.Set(d, partial, random);
    if (style > 1) a.Set(d, WidePlacement(rank, partial, random), random);
  }
  // Mesh dims that A leaves partial may stay so in C; sometimes more become partial.
  const bool masks = random.OneIn(8);
  Draft c(mesh.NumDims(), tensor.shape.size());
  for (int d = 0; d < mesh.NumDims(); ++d) {
    std::optional<Placement> partial;
    if (a.placements[d].IsPartial()) {
      partial = a.placements[d];
    } else if (masks) {
      partial = ops.Draw(random);
    }
    c.Set(d, WidePlacement(rank, partial, random), random);
  }
  const auto draw_stop = [&] {
    const int64_t kind = random.Below(6);  // like A, like C, any
    Draft b = kind < 2 ? a : c;
    if (random.OneIn(2)) b.Reorder(random);
    const int64_t changes = kind < 4 ? random.Below(3) : mesh.NumDims();
    for (int64_t i = 0; i < changes; ++i) {
      const auto d = static_cast<int>(kind < 4 ? random.Below(mesh.NumDims()) : i);
      const std::vector<Placement>& ends =
          a.placements[d].IsPartial() ? a.placements : c.placements;
      const Placement partial = ends[d].IsPartial() ? ends[d] : ops.Draw(random);
      b.Set(d, WidePlacement(rank, partial, random), random);
    }
    for (int d = 0; d < mesh.NumDims(); ++d) {
      const bool stays = a.placements[d].IsPartial() && c.placements[d].IsPartial();
      if (stays && !random.OneIn(16)) b.Set(d, a.placements[d], random);
    }
    return made(b);
  };
  Sharding from = made(a);
  Sharding to = made(c);
  const int64_t most = std::max(from.MaxLocalElements(), to.MaxLocalElements());
  Sharding stop = draw_stop();
  for (int tries = 0; stop.MaxLocalElements() > most; ++tries) {
    stop = tries < 16 ? draw_stop() : from;
  }
  return {std::move(from), std::move(stop), std::move(to), WideOptions(random)};
}

std::string_view Name(Unplanned unplanned) {
  switch (unplanned) {
    case Unplanned::kReducesWhatStays:
      return "reduces a dim that stays partial";
    case Unplanned::kAddsWhatIsMoved:
      return "adds to a value that only moves";
    case Unplanned::kDividesEarly:
      return "divides an average before all is added";
  }
  return "";
}

std::optional<Unplanned> UnplannedOf(const Sharding& a, const Sharding& b, const Sharding& c) {
  bool reduces = false;         // from A to C
  bool adds = false;            // mesh dims that are partial only in B
  bool averages_first = false;  // from A to B
  bool reduces_then = false;    // from B to C
  for (int d = 0; d < a.mesh().NumDims(); ++d) {
    if (a.mesh().dim(d).size == 1) continue;
    const bool in_a = a.placement(d).IsPartial();
    const bool in_b = b.placement(d).IsPartial();
    const bool in_c = c.placement(d).IsPartial();
    if (in_a && in_c && !in_b) return Unplanned::kReducesWhatStays;
    reduces |= in_a && !in_c;
    adds |= !in_a && in_b && !in_c;
    averages_first |= in_a && !in_b && a.placement(d).op() == ReduceOp::kAvg;
    reduces_then |= in_b && !in_c;
  }
  if (adds && !reduces) return Unplanned::kAddsWhatIsMoved;
  if (averages_first && reduces_then) return Unplanned::kDividesEarly;
  return std::nullopt;
}

std::optional<TriplePlans> PlansOf(const Triple& triple) {
  absl::StatusOr<Plan> direct = MakePlan(triple.a, triple.c, triple.options);
  absl::StatusOr<Plan> to = MakePlan(triple.a, triple.b, triple.options);
  absl::StatusOr<Plan> from = MakePlan(triple.b, triple.c, triple.options);
  if (!direct.ok() || !to.ok() || !from.ok()) return std::nullopt;
  return TriplePlans{*std::move(direct), *std::move(to), *std::move(from)};
}

}  // namespace meshift
