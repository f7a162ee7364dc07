#include "testing/owner_world.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "meshift/device_mesh.h"
#include "placement/op_table.h"
#include "testing/random.h"

namespace meshift::testkit {
namespace {

// `sharding` with `at` on mesh dim d, which no longer cuts the tensor.
Sharding WithAt(const Sharding& sharding, int d, Placement at) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  placements[d] = std::move(at);
  std::vector<Cuts> cuts;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    Cuts& of = cuts.emplace_back();
    for (const int cut : sharding.CutsOf(k)) {
      if (cut != d) of.push_back(cut);
    }
  }
  return sharding.WithPlacements(std::move(placements), std::move(cuts)).value();
}

// `sharding` itself, then with At on one mesh dim that is R.
std::vector<Sharding> Variants(const Sharding& sharding) {
  std::vector<Sharding> variants = {sharding};
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    const int64_t n = sharding.mesh().dim(d).size;
    if (!sharding.placement(d).IsReplicate() || n == 1) continue;
    for (int64_t i = 0; i < n; ++i) variants.push_back(WithAt(sharding, d, Placement::At({i})));
    if (n > 2) variants.push_back(WithAt(sharding, d, Placement::At({0, n - 1})));
  }
  return variants;
}

// Passes on the cases of a shard and fraction.
class Offers {
 public:
  Offers(int64_t shard, int64_t num_shards, int64_t fraction, VisitPair visit)
      : shard_(shard), num_shards_(num_shards), fraction_(fraction), visit_(visit) {}

  // Offers the pair with At on either side, or on both.
  void AddAll(const Sharding& from, const Sharding& to) {
    const std::vector<Sharding> sources = Variants(from);
    const std::vector<Sharding> targets = Variants(to);
    for (size_t i = 0; i < sources.size(); ++i) {
      for (size_t j = i == 0 ? 1 : 0; j < targets.size(); ++j) Add(sources[i], targets[j]);
    }
  }
  int64_t visited() const { return visited_; }

 private:
  void Add(const Sharding& from, const Sharding& to) {
    const int64_t i = next_++;
    if (i % num_shards_ != shard_ || i / num_shards_ % fraction_ != 0) return;
    ++visited_;
    visit_(from, to);
  }

  const int64_t shard_;
  const int64_t num_shards_;
  const int64_t fraction_;
  VisitPair visit_;
  int64_t next_ = 0;
  int64_t visited_ = 0;
};

Placement RandomAt(int64_t n, Random& random) {
  Placement::Sizes owners = {random.Below(n)};
  if (n > 2 && random.OneIn(4)) {
    for (int64_t i = 0; i < n; ++i) {
      if (i != owners[0] && random.OneIn(2) && std::ssize(owners) + 1 < n) owners.push_back(i);
    }
  }
  return Placement::At(std::move(owners));
}

// At on about one mesh dim in three, on any kind of placement.
Sharding WithRandomAt(Sharding sharding, Random& random) {
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    const int64_t n = sharding.mesh().dim(d).size;
    if (n > 1 && random.OneIn(3)) sharding = WithAt(sharding, d, RandomAt(n, random));
  }
  return sharding;
}

RandomPair WithOwners(const RandomPair& pair, Random& random) {
  RandomPair owned = pair;
  for (int tries = 0; tries < 64 && !owned.from.HasAt() && !owned.to.HasAt(); ++tries) {
    owned = {WithRandomAt(pair.from, random), WithRandomAt(pair.to, random)};
  }
  return owned;
}

std::vector<std::pair<DType, ReduceOp>> Kinds() {
  std::vector<std::pair<DType, ReduceOp>> kinds;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (op != ReduceOp::kAvg && CheckReduce(op, dtype).ok()) kinds.emplace_back(dtype, op);
    }
  }
  return kinds;
}

}  // namespace

int64_t ForEachOwnerCase(const SmallWorldOptions& options, VisitPair visit) {
  Offers offers(options.shard, options.num_shards, options.fraction, visit);
  ForEachSmallWorldCase({.dtype = options.dtype, .op = options.op},
                        [&](const Sharding& from, const Sharding& to) { offers.AddAll(from, to); });
  return offers.visited();
}

int64_t ForEachScalarOwnerCase(const SmallWorldOptions& options, VisitPair visit) {
  Offers offers(options.shard, options.num_shards, options.fraction, visit);
  ForEachScalarCase({.dtype = options.dtype, .op = options.op},
                    [&](const Sharding& from, const Sharding& to) { offers.AddAll(from, to); });
  return offers.visited();
}

int64_t ForEachOwnerCrossCase(const CrossWorldOptions& options, VisitPair visit) {
  Offers offers(options.shard, options.num_shards, options.fraction, visit);
  ForEachCrossCase({}, [&](const Sharding& from, const Sharding& to) { offers.AddAll(from, to); });
  return offers.visited();
}

RandomPair RandomOwnerCase(uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  return WithOwners(RandomCase(random.Next(), dtype, op), random);
}

RandomPair RandomOwnerCrossCase(uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  return WithOwners(RandomCrossCase(random.Next(), dtype, op), random);
}

std::vector<ConformanceCase> OwnerCases(int64_t num_ranks, int64_t count) {
  const std::vector<std::pair<DType, ReduceOp>> kinds = Kinds();
  const auto fits = [&](const DeviceMesh& mesh) { return mesh.MaxRank() < num_ranks; };
  std::vector<ConformanceCase> cases;
  for (uint64_t seed = 0; std::ssize(cases) < count; ++seed) {
    const auto& [dtype, op] = kinds[cases.size() % kinds.size()];
    const RandomPair pair = cases.size() % 4 == 3 ? RandomOwnerCrossCase(seed, dtype, op)
                                                  : RandomOwnerCase(seed, dtype, op);
    if (!pair.from.HasAt() && !pair.to.HasAt()) continue;
    if (!fits(pair.from.mesh()) || !fits(pair.to.mesh())) continue;
    cases.push_back({pair.from, pair.to, std::nullopt});
  }
  return cases;
}

}  // namespace meshift::testkit
