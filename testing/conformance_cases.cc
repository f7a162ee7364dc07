#include "testing/conformance_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "placement/op_table.h"
#include "testing/cross_world.h"
#include "testing/random.h"
#include "testing/small_world.h"

namespace meshift::testkit {
namespace {

constexpr int64_t kEighths = 8;

// `count` of `all`, evenly spread; all of them if they are not more.
std::vector<ConformanceCase> Sample(std::vector<ConformanceCase> all, int64_t count) {
  const auto size = static_cast<int64_t>(all.size());
  if (size <= count) return all;
  std::vector<ConformanceCase> sample;
  for (int64_t i = 0; i < count; ++i) sample.push_back(std::move(all[i * size / count]));
  return sample;
}

bool Fits(const Sharding& sharding, int64_t num_ranks) {
  return sharding.mesh().NumRanks() <= num_ranks;
}

// A cast would round each contribution that stays partial, which planning refuses.
bool StaysPartial(const Sharding& from, const Sharding& to) {
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (from.placement(d).IsPartial() && to.placement(d).IsPartial()) return true;
  }
  return false;
}

std::vector<ConformanceCase> SmallWorld(int64_t num_ranks, int64_t count) {
  std::vector<ConformanceCase> all;
  ForEachDTypeCase({}, [&](const Sharding& from, const Sharding& to) {
    if (Fits(from, num_ranks)) all.push_back({from, to, std::nullopt});
  });
  return Sample(std::move(all), count);
}

std::vector<ConformanceCase> SmallWorldCasts(int64_t num_ranks, int64_t count) {
  std::vector<ConformanceCase> all;
  ForEachCastCase({.num_shards = 13},
                  [&](const Sharding& from, const Sharding& to, std::optional<DType> reduce_dtype) {
                    if (Fits(from, num_ranks) && !StaysPartial(from, to))
                      all.push_back({from, to, reduce_dtype});
                  });
  return Sample(std::move(all), count);
}

// Sizes of 1 to 4 dims whose product is `ranks`.
std::vector<int64_t> RandomFactors(int64_t ranks, Random& random) {
  std::vector<int64_t> sizes(1 + random.Below(4), 1);
  int64_t left = ranks;
  for (int64_t factor = 2; left > 1; ++factor) {
    for (; left % factor == 0; left /= factor) {
      sizes[random.Below(static_cast<int64_t>(sizes.size()))] *= factor;
    }
  }
  return sizes;
}

// A mesh of `size` of the ranks, half the time in random order.
DeviceMesh RandomMesh(int64_t size, int64_t num_ranks, Random& random) {
  std::vector<DeviceMesh::Dim> dims;
  for (const int64_t factor : RandomFactors(size, random)) {
    dims.push_back({fmt::format("d{}", dims.size()), factor});
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

std::vector<std::pair<DType, ReduceOp>> Reductions() {
  std::vector<std::pair<DType, ReduceOp>> all;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (CheckReduce(op, dtype).ok()) all.emplace_back(dtype, op);
    }
  }
  return all;
}

}  // namespace

std::string ConformanceCase::ToString() const {
  std::string text = fmt::format("{} -> {}", from.ToString(), to.ToString());
  if (reduce_dtype) text += fmt::format(" reduced in {}", Name(*reduce_dtype));
  return text;
}

std::vector<ConformanceCase> ConformanceCases(int64_t num_ranks, int64_t count) {
  std::vector<ConformanceCase> cases = SmallWorld(num_ranks, count * 2 / kEighths);
  for (ConformanceCase& c : SmallWorldCasts(num_ranks, count / kEighths)) {
    cases.push_back(std::move(c));
  }
  const std::vector<std::pair<DType, ReduceOp>> reductions = Reductions();
  for (int64_t i = 0; num_ranks > 1 && std::ssize(cases) < count; ++i) {
    Random random(i);
    const int64_t size = i % 5 < 3 ? num_ranks : 2 + random.Below(num_ranks - 1);
    const auto [dtype, op] = reductions[i % reductions.size()];
    const DeviceMesh mesh = RandomMesh(size, num_ranks, random);
    RandomPair pair = RandomCaseOn(mesh, random.Next(), dtype, op);
    cases.push_back({std::move(pair.from), std::move(pair.to), std::nullopt});
  }
  return cases;
}

std::vector<ConformanceCase> CrossConformanceCases(int64_t num_ranks, int64_t count) {
  constexpr int64_t kSampleRanks = 12;
  // About one case in 25 uses at most 4 ranks.
  constexpr int64_t kFew = 64;
  const auto fits = [&](const DeviceMesh& mesh) {
    for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
      if (mesh.RankAt(p) >= num_ranks) return false;
    }
    return true;
  };
  std::vector<ConformanceCase> cases;
  const auto any = [](DType, ReduceOp) { return true; };
  ForEachCrossSample({.cases = num_ranks >= kSampleRanks ? count : count * kFew}, any,
                     [&](const Sharding& from, const Sharding& to) {
                       if (std::ssize(cases) == count) return;
                       if (!fits(from.mesh()) || !fits(to.mesh())) return;
                       cases.push_back({from, to, std::nullopt});
                     });
  return cases;
}

}  // namespace meshift::testkit
