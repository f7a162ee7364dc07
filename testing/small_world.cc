#include "testing/small_world.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/random.h"
#include "testing/shardings.h"
#include "testing/synthetic_mesh.h"

namespace meshift::testkit {
namespace {

const std::vector<std::vector<int64_t>>& Meshes() {
  static const auto& meshes = *new std::vector<std::vector<int64_t>>{
      {2}, {3}, {4}, {5}, {6}, {7}, {8}, {2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {2, 2, 2}};
  return meshes;
}

const std::vector<Shape>& Shapes() {
  static const auto& shapes = *new std::vector<Shape>{
      {0},       {1},       {2},       {3},       {5},       {7},       {8},      {16},   {8, 8},
      {4, 2},    {5, 3},    {7, 5},    {1, 8},    {8, 1},    {3, 2},    {2, 0},   {0, 3}, {16, 6},
      {8, 4, 2}, {4, 4, 4}, {5, 3, 7}, {1, 2, 8}, {3, 3, 3}, {2, 0, 4}, {7, 1, 5}};
  return shapes;
}

bool KeepsEveryPartial(const Sharding& from, const Sharding& to) {
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (to.placement(d).IsPartial() && !from.placement(d).IsPartial()) return false;
  }
  return true;
}

// A hash (splitmix64) that tells cases apart in no visible order.
uint64_t Scattered(int64_t i) { return Random(static_cast<uint64_t>(i)).Next(); }

constexpr uint64_t kTenths = 10;

class Visitor {
 public:
  Visitor(const SmallWorldOptions& options, VisitPair visit) : options_(options), visit_(visit) {}

  void Visit(const std::vector<int64_t>& sizes, const Shape& shape) {
    const DeviceMesh mesh = SyntheticMesh(sizes).value();
    const std::vector<Sharding> all =
        AllShardings(mesh, TensorType{options_.dtype, shape}, options_.op);
    for (const Sharding& from : all) {
      for (const Sharding& to : all) {
        if (!KeepsEveryPartial(from, to)) continue;
        const int64_t i = next_++;
        if (i % options_.num_shards != options_.shard) continue;
        if (i / options_.num_shards % options_.fraction != 0) continue;
        ++visited_;
        visit_(from, to);
      }
    }
  }
  int64_t visited() const { return visited_; }

 private:
  const SmallWorldOptions& options_;
  VisitPair visit_;
  int64_t next_ = 0;
  int64_t visited_ = 0;
};

RandomPair RandomPairOn(const DeviceMesh& mesh, DType dtype, ReduceOp op, Random& random) {
  const TensorType tensor{dtype, RandomShape(random)};
  std::vector<bool> may_be_partial(mesh.NumDims(), true);
  Sharding from = RandomSharding(mesh, tensor, may_be_partial, op, random);
  for (int d = 0; d < mesh.NumDims(); ++d) may_be_partial[d] = from.placement(d).IsPartial();
  Sharding to = RandomSharding(mesh, tensor, may_be_partial, op, random);
  return {std::move(from), std::move(to)};
}

}  // namespace

Topology SlowLinks() {
  return Topology::Create({{"wire", 2, 10, 100}, {"net", 0, 3, 300}},
                          {.collective_latency_ns = 1000,
                           .message_latency_ns = 50,
                           .copy_latency_ns = 200,
                           .copy_bandwidth_bytes_per_us = 40})
      .value();
}

Topology RoundLinks() {
  return Topology::Create({{"near", 4, 1000, 10}, {"far", 0, 100, 50}},
                          {.collective_latency_ns = 1000,
                           .message_latency_ns = 100,
                           .copy_latency_ns = 20,
                           .copy_bandwidth_bytes_per_us = 2000})
      .value();
}

int64_t TestFraction() {
  const char* text = std::getenv("MESHIFT_TEST_FRACTION");
  const int64_t fraction = text == nullptr ? 1 : std::strtoll(text, nullptr, 10);
  return std::max<int64_t>(1, fraction);
}

int64_t ForEachSmallWorldCase(const SmallWorldOptions& options, VisitPair visit) {
  Visitor visitor(options, visit);
  for (const Shape& shape : Shapes()) {
    for (const std::vector<int64_t>& sizes : Meshes()) visitor.Visit(sizes, shape);
  }
  return visitor.visited();
}

int64_t ForEachScalarCase(const SmallWorldOptions& options, VisitPair visit) {
  Visitor visitor(options, visit);
  for (const std::vector<int64_t>& sizes : Meshes()) visitor.Visit(sizes, {});
  return visitor.visited();
}

int64_t ForEachDTypeCase(const SmallWorldOptions& options, VisitPair visit) {
  int64_t i = 0;
  int64_t next = 0;
  int64_t visited = 0;
  ForEachSmallWorldCase({}, [&](const Sharding& like_from, const Sharding& like_to) {
    const uint64_t hash = Scattered(i++);
    if (hash % kTenths != 0) return;
    for (int d = 0; d < kNumDTypes; ++d) {
      const int64_t index = next++;
      if (index % options.num_shards != options.shard) continue;
      if (index / options.num_shards % options.fraction != 0) continue;
      const auto dtype = static_cast<DType>(d);
      const ReduceOp op = SomeOp(dtype, hash / kTenths + d);
      const std::optional<Sharding> from = Recast(like_from, dtype, op);
      const std::optional<Sharding> to = Recast(like_to, dtype, op);
      if (!from || !to) continue;
      ++visited;
      visit(*from, *to);
    }
  });
  return visited;
}

int64_t ForEachCastCase(const SmallWorldOptions& options, VisitCast visit) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3,
                               DType::kF8E5M2};
  constexpr uint64_t kKinds = 40;
  constexpr uint64_t kKindsOfCase = 4;
  std::map<std::string, uint64_t> nth_of_mesh;
  int64_t i = 0;
  int64_t next = 0;
  int64_t visited = 0;
  ForEachSmallWorldCase({}, [&](const Sharding& like_from, const Sharding& like_to) {
    const uint64_t hash = Scattered(i++);
    if (hash % kTenths != 1) return;
    const uint64_t nth = nth_of_mesh[like_from.mesh().ToString()]++;
    for (uint64_t k = 0; k < kKindsOfCase; ++k) {
      const int64_t index = next++;
      if (index % options.num_shards != options.shard) continue;
      if (index / options.num_shards % options.fraction != 0) continue;
      // The cases of a mesh cycle through all kinds; those of one case are far apart.
      const uint64_t kind = (nth + k * 11) % kKinds;
      const uint64_t from = kind / 2 % 5;
      const uint64_t to = (from + 1 + kind / 10) % 5;
      const ReduceOp op = SomeOp(kDTypes[from], hash / kTenths + k);
      ++visited;
      visit(*Recast(like_from, kDTypes[from], op), *Recast(like_to, kDTypes[to], op),
            kind % 2 == 0 ? std::nullopt : std::optional(DType::kF32));
    }
  });
  return visited;
}

RandomPair RandomCase(uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  const std::vector<int64_t> sizes = RandomSizes(48, random);
  const bool shuffled = random.OneIn(2);
  const uint64_t order = random.Next();
  const DeviceMesh mesh =
      shuffled ? ShuffledMesh(sizes, order).value() : SyntheticMesh(sizes).value();
  return RandomPairOn(mesh, dtype, op, random);
}

RandomPair RandomCaseOn(const DeviceMesh& mesh, uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  return RandomPairOn(mesh, dtype, op, random);
}

Sharding RandomStop(const RandomPair& pair, uint64_t seed) {
  Random random(~seed);
  const DeviceMesh& mesh = pair.from.mesh();
  return RandomSharding(mesh, pair.from.tensor(), std::vector<bool>(mesh.NumDims(), true),
                        ReduceOp::kSum, random);
}

}  // namespace meshift::testkit
