#include "testing/ragged_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "placement/op_table.h"
#include "testing/random.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

using Sizes = Placement::Sizes;

// A mesh of up to 3 dims with at least 2 and at most `num_ranks` ranks.
DeviceMesh RandomMesh(int64_t num_ranks, Random& random) {
  std::vector<DeviceMesh::Dim> dims;
  int64_t size = 1;
  const int64_t count = 1 + random.Below(3);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = num_ranks / size;
    const int64_t least = size == 1 && i + 1 == count ? 2 : 1;
    const int64_t n = std::max(least, std::min(left, 1 + random.Below(std::min<int64_t>(left, 6))));
    dims.push_back({fmt::format("d{}", i), n});
    size *= n;
  }
  std::vector<int64_t> ranks;
  if (random.OneIn(2)) {
    ranks.resize(num_ranks);
    std::iota(ranks.begin(), ranks.end(), 0);
    random.Shuffle(ranks);
    ranks.resize(size);
  }
  return DeviceMesh::Create(std::move(dims), std::move(ranks)).value();
}

// `n` multiples of `unit` that add up to `total`.
Sizes RandomSizes(int64_t n, int64_t total, int64_t unit, Random& random) {
  Sizes sizes(n, 0);
  if (random.OneIn(6)) {  // one coordinate has all
    sizes[random.Below(n)] = total;
    return sizes;
  }
  // Distributed over all coordinates, or only some.
  const int64_t sharing = random.OneIn(3) ? 1 + random.Below(n) : n;
  for (int64_t i = 0; i < total / unit; ++i) sizes[random.Below(sharing)] += unit;
  random.Shuffle(sizes);
  return sizes;
}

std::vector<Cuts> CutsOf(const Sharding& sharding) {
  std::vector<Cuts> cuts;
  for (int t = 0; t < static_cast<int>(sharding.shape().size()); ++t) {
    cuts.emplace_back(sharding.CutsOf(t).begin(), sharding.CutsOf(t).end());
  }
  return cuts;
}

// `like` for `tensor`, with ragged sizes of some outermost cuts; half the time those of `other`, if
// it has them. nullopt if a cut would be inside a byte.
std::optional<Sharding> Ragged(const Sharding& like, const TensorType& tensor,
                               const Sharding* other, Random& random) {
  std::vector<Placement> placements(like.placements().begin(), like.placements().end());
  const auto rank = static_cast<int>(tensor.shape.size());
  for (int t = 0; t < rank; ++t) {
    if (like.CutsOf(t).empty() || random.OneIn(4)) continue;
    const int d = like.CutsOf(t)[0];
    const bool shares = other != nullptr && other->placement(d).IsShard() &&
                        other->placement(d).tensor_dim() == t && random.OneIn(2);
    if (shares) {
      placements[d] = other->placement(d);
      continue;
    }
    const int64_t unit = tensor.dtype == DType::kF4E2M1 && t + 1 == rank ? 2 : 1;
    placements[d] = Placement::RaggedShard(
        t, RandomSizes(like.mesh().dim(d).size, tensor.shape[t], unit, random));
  }
  auto sharding = Sharding::Create(like.mesh(), tensor, std::move(placements), CutsOf(like));
  if (!sharding.ok()) return std::nullopt;
  return *std::move(sharding);
}

bool IsRagged(const Sharding& sharding) {
  return std::any_of(
      sharding.placements().begin(), sharding.placements().end(),
      [](const Placement& placement) { return placement.IsShard() && placement.IsRagged(); });
}

struct Kind {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// Every dtype with each of its ops; f4e2m1, which has no ops, is one in ten.
std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const Kind kind = {static_cast<DType>(d), static_cast<ReduceOp>(o)};
      if (!CheckReduce(kind.op, kind.dtype).ok()) continue;
      if (kinds.size() % 10 == 9) kinds.push_back({DType::kF4E2M1});
      kinds.push_back(kind);
    }
  }
  return kinds;
}

std::optional<ConformanceCase> TryCase(int64_t num_ranks, const Kind& kind, uint64_t seed) {
  Random random(seed);
  const DeviceMesh mesh = RandomMesh(num_ranks, random);
  const bool packed = kind.dtype == DType::kF4E2M1;
  // Pairs of f4e2m1 are placed like bytes.
  const RandomPair pair =
      RandomCaseOn(mesh, random.Next(), packed ? DType::kU8 : kind.dtype, kind.op);
  TensorType tensor{kind.dtype, pair.from.shape()};
  if (packed) {
    if (tensor.shape.empty() || pair.from.HasPartial()) return std::nullopt;
    tensor.shape.back() *= 2;
  }
  const std::optional<Sharding> from = Ragged(pair.from, tensor, nullptr, random);
  if (!from) return std::nullopt;
  const std::optional<Sharding> to = Ragged(pair.to, tensor, &*from, random);
  if (!to || (!IsRagged(*from) && !IsRagged(*to))) return std::nullopt;
  return ConformanceCase{*from, *to, std::nullopt};
}

}  // namespace

std::vector<ConformanceCase> RaggedCases(int64_t num_ranks, int64_t count) {
  const std::vector<Kind> kinds = Kinds();
  std::vector<ConformanceCase> cases;
  for (uint64_t seed = 0; std::ssize(cases) < count; ++seed) {
    const Kind& kind = kinds[cases.size() % kinds.size()];
    if (auto c = TryCase(num_ranks, kind, seed)) cases.push_back(*std::move(c));
  }
  return cases;
}

}  // namespace meshift::testkit
