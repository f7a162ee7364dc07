#include "testing/small_world.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/device_mesh.h"
#include "placement/box.h"
#include "placement/dtype.h"
#include "placement/op_table.h"
#include "placement/placement.h"
#include "placement/sharding.h"
#include "placement/tensor_type.h"
#include "testing/random.h"
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

// Adds to `all` the sharding of `placements` with every order of the cuts of dims `tensor_dim`...
void AddOrders(const DeviceMesh& mesh, const TensorType& tensor,
               const std::vector<Placement>& placements, std::vector<Cuts> cuts, size_t tensor_dim,
               std::vector<Sharding>& all) {
  if (tensor_dim == cuts.size()) {
    all.push_back(Sharding::Create(mesh, tensor, placements, std::move(cuts)).value());
    return;
  }
  do AddOrders(mesh, tensor, placements, cuts, tensor_dim + 1, all);
  while (std::next_permutation(cuts[tensor_dim].begin(), cuts[tensor_dim].end()));
}

// Every sharding of `tensor`, counting up: R, S(0), S(1), ..., P.
std::vector<Sharding> AllShardings(const DeviceMesh& mesh, const TensorType& tensor, ReduceOp op) {
  const int rank = static_cast<int>(tensor.shape.size());
  std::vector<Sharding> all;
  std::vector<int> digits(mesh.NumDims(), 0);
  while (true) {
    std::vector<Placement> placements;
    std::vector<Cuts> cuts(rank);
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (digits[d] == 0) {
        placements.push_back(Placement::Replicate());
      } else if (digits[d] <= rank) {
        placements.push_back(Placement::Shard(digits[d] - 1));
        cuts[digits[d] - 1].push_back(d);
      } else {
        placements.push_back(Placement::Partial(op));
      }
    }
    AddOrders(mesh, tensor, placements, cuts, 0, all);
    int d = mesh.NumDims() - 1;
    while (d >= 0 && digits[d] == rank + 1) digits[d--] = 0;
    if (d < 0) return all;
    ++digits[d];
  }
}

bool KeepsEveryPartial(const Sharding& from, const Sharding& to) {
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (to.placement(d).IsPartial() && !from.placement(d).IsPartial()) return false;
  }
  return true;
}

// A number that tells cases apart in no visible order: of splitmix64.
uint64_t Scattered(int64_t i) { return Random(static_cast<uint64_t>(i)).Next(); }

constexpr uint64_t kTenths = 10;

// `sharding` with another dtype, and another op of what is partial; nullopt where there is none.
std::optional<Sharding> Recast(const Sharding& sharding, DType dtype, ReduceOp op) {
  std::vector<Placement> placements;
  std::vector<Cuts> cuts;
  for (const Placement& placement : sharding.placements()) {
    placements.push_back(placement.IsPartial() ? Placement::Partial(op) : placement);
  }
  for (int t = 0; t < static_cast<int>(sharding.shape().size()); ++t) {
    cuts.emplace_back(sharding.CutsOf(t).begin(), sharding.CutsOf(t).end());
  }
  auto recast = Sharding::Create(sharding.mesh(), TensorType{dtype, sharding.shape()},
                                 std::move(placements), std::move(cuts));
  if (!recast.ok()) return std::nullopt;
  return *std::move(recast);
}

// Sum three times of four, else any op that the dtype has; any of f4e2m1, which has none.
ReduceOp OpOf(DType dtype, uint64_t hash) {
  std::vector<ReduceOp> ops;
  for (int op = 0; op < kNumReduceOps; ++op) {
    if (CheckReduce(static_cast<ReduceOp>(op), dtype).ok())
      ops.push_back(static_cast<ReduceOp>(op));
  }
  const bool sums = CheckReduce(ReduceOp::kSum, dtype).ok();
  if (ops.empty() || (sums && hash % 4 != 0)) return ReduceOp::kSum;
  return ops[hash / 4 % ops.size()];
}

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

// 1 to 4 sizes with a product of at most 48, one in four of them 1.
std::vector<int64_t> RandomSizes(Random& random) {
  std::vector<int64_t> sizes(1 + random.Below(4));
  int64_t left = 48;
  for (int64_t& size : sizes) {
    size = random.OneIn(4) ? 1 : 1 + random.Below(std::min<int64_t>(left, 8));
    left /= size;
  }
  random.Shuffle(sizes);
  return sizes;
}

Shape RandomShape(Random& random) {
  constexpr int64_t kLargest[] = {1, 40, 16, 9, 6, 4};
  Shape shape(random.Below(6));
  const int64_t largest = kLargest[shape.size()];
  for (int64_t& size : shape) {
    const int64_t kind = random.Below(12);
    size = kind == 0 ? 0 : kind <= 2 ? 1 : 1 + random.Below(largest);
  }
  return shape;
}

// The mesh dims of `may_be_partial` may be P, R or a shard; others R or a shard.
Sharding RandomSharding(const DeviceMesh& mesh, const TensorType& tensor,
                        const std::vector<bool>& may_be_partial, ReduceOp op, Random& random) {
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  std::vector<Placement> placements;
  std::vector<Cuts> cuts(rank);
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const int64_t kind = random.Below(4);
    if (kind == 0 && may_be_partial[d]) {
      placements.push_back(Placement::Partial(op));
    } else if (kind == 1 || rank == 0) {
      placements.push_back(Placement::Replicate());
    } else {
      const auto tensor_dim = static_cast<int>(random.Below(rank));
      placements.push_back(Placement::Shard(tensor_dim));
      cuts[tensor_dim].push_back(d);
    }
  }
  for (Cuts& list : cuts) random.Shuffle(list);
  return Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts)).value();
}

RandomPair RandomPairOn(const DeviceMesh& mesh, DType dtype, ReduceOp op, Random& random) {
  const TensorType tensor{dtype, RandomShape(random)};
  std::vector<bool> may_be_partial(mesh.NumDims(), true);
  Sharding from = RandomSharding(mesh, tensor, may_be_partial, op, random);
  for (int d = 0; d < mesh.NumDims(); ++d) may_be_partial[d] = from.placement(d).IsPartial();
  Sharding to = RandomSharding(mesh, tensor, may_be_partial, op, random);
  return {std::move(from), std::move(to)};
}

}  // namespace

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
      const ReduceOp op = OpOf(dtype, hash / kTenths + d);
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
      // The cases of a mesh go through all kinds; those of one case lie apart.
      const uint64_t kind = (nth + k * 11) % kKinds;
      const uint64_t from = kind / 2 % 5;
      const uint64_t to = (from + 1 + kind / 10) % 5;
      const ReduceOp op = OpOf(kDTypes[from], hash / kTenths + k);
      ++visited;
      visit(*Recast(like_from, kDTypes[from], op), *Recast(like_to, kDTypes[to], op),
            kind % 2 == 0 ? std::nullopt : std::optional(DType::kF32));
    }
  });
  return visited;
}

RandomPair RandomCase(uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  const std::vector<int64_t> sizes = RandomSizes(random);
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

}  // namespace meshift::testkit
