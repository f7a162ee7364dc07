#include "testing/cross_world.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "testing/random.h"
#include "testing/shardings.h"

namespace meshift::testkit {
namespace {

using Sizes = std::vector<int64_t>;

const std::vector<Sizes>& SourceMeshes() {
  static const auto& meshes =
      *new std::vector<Sizes>{{2}, {3}, {4}, {5}, {6}, {2, 2}, {2, 3}, {3, 2}};
  return meshes;
}

const std::vector<Sizes>& TargetMeshes() {
  static const auto& meshes =
      *new std::vector<Sizes>{{1}, {2}, {3}, {4}, {5}, {6}, {2, 2}, {2, 3}, {3, 2}};
  return meshes;
}

const std::vector<Shape>& Shapes() {
  static const auto& shapes = *new std::vector<Shape>{{7}, {2}, {8, 8}, {5, 3}, {2, 0}, {5, 3, 7}};
  return shapes;
}

int64_t Product(const Sizes& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Dims are named by a letter and a number.
DeviceMesh MeshOf(char letter, const Sizes& sizes, std::vector<int64_t> ranks) {
  std::vector<DeviceMesh::Dim> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    dims.push_back({std::string(1, letter) + std::to_string(d), sizes[d]});
  }
  return DeviceMesh::Create(std::move(dims), std::move(ranks)).value();
}

std::vector<int64_t> RanksFrom(int64_t first, int64_t count) {
  std::vector<int64_t> ranks(count);
  for (int64_t i = 0; i < count; ++i) ranks[i] = first + i;
  return ranks;
}

struct Meshes {
  DeviceMesh source;
  DeviceMesh target;
};

// All ways in which the ranks of two meshes of these sizes overlap.
std::vector<Meshes> MeshesOf(const Sizes& source, const Sizes& target) {
  const int64_t n = Product(source);
  const int64_t m = Product(target);
  std::vector<std::vector<int64_t>> lists = {
      RanksFrom(0, m), RanksFrom(n / 2, m), RanksFrom(n, m), {}};
  for (int64_t i = m; i-- > 0;) lists.back().push_back(2 * i + 1);
  // For one rank this would repeat the first list.
  if (m > 1) lists.emplace_back(lists[0].rbegin(), lists[0].rend());
  std::vector<Meshes> meshes;
  for (std::vector<int64_t>& ranks : lists) {
    meshes.push_back({MeshOf('a', source, {}), MeshOf('b', target, std::move(ranks))});
  }
  meshes.push_back({MeshOf('a', source, RanksFrom(m, n)), MeshOf('b', target, {})});
  return meshes;
}

// A hash that tells cases apart in no visible order.
uint64_t Scattered(int64_t i) { return Random(static_cast<uint64_t>(i)).Next(); }

class Visitor {
 public:
  Visitor(const CrossWorldOptions& options, VisitPair visit) : options_(options), visit_(visit) {}

  void Visit(const Meshes& meshes, const Shape& shape) {
    const TensorType tensor{DType::kF32, shape};
    const std::vector<Sharding> sources = AllShardings(meshes.source, tensor, ReduceOp::kSum);
    std::vector<Sharding> targets = AllShardings(meshes.target, tensor, ReduceOp::kSum);
    const auto partial =
        std::stable_partition(targets.begin(), targets.end(),
                              [](const Sharding& sharding) { return !sharding.HasPartial(); });
    const int64_t partials = std::distance(partial, targets.end());
    for (const Sharding& from : sources) {
      for (auto to = targets.begin(); to != partial; ++to) {
        Offer(from, *to);
        const uint64_t hash = Scattered(seen_++);
        const ReduceOp op = SomeOp(DType::kF32, hash / 16 * 4);
        if (hash % 16 == 0) {
          const auto like = partial + static_cast<int64_t>(hash / 64) % partials;
          Offer(from, *Recast(*like, DType::kF32, op));
        } else if (hash % 16 == 1 && from.HasPartial() && op != ReduceOp::kSum) {
          Offer(*Recast(from, DType::kF32, op), *to);
        }
      }
    }
  }
  int64_t visited() const { return visited_; }

 private:
  void Offer(const Sharding& from, const Sharding& to) {
    const int64_t i = next_++;
    if (i % options_.num_shards != options_.shard) return;
    if (i / options_.num_shards % options_.fraction != 0) return;
    ++visited_;
    visit_(from, to);
  }

  const CrossWorldOptions& options_;
  VisitPair visit_;
  int64_t seen_ = 0;  // cases, without their variants
  int64_t next_ = 0;
  int64_t visited_ = 0;
};

template <typename T>
const T& OneOf(const std::vector<T>& list, Random& random) {
  return list[random.Below(std::ssize(list))];
}

// A random pair of the world in `dtype`; nullopt if the dtype does not allow it.
std::optional<RandomPair> SomePair(DType dtype, CanReduce can_reduce, Random& random) {
  const std::vector<Meshes> meshes =
      MeshesOf(OneOf(SourceMeshes(), random), OneOf(TargetMeshes(), random));
  const Meshes& pair = OneOf(meshes, random);
  const TensorType tensor{DType::kF32, OneOf(Shapes(), random)};
  const Sharding like_from = OneOf(AllShardings(pair.source, tensor, ReduceOp::kSum), random);
  const std::vector<Sharding> targets = AllShardings(pair.target, tensor, ReduceOp::kSum);
  const bool may_be_partial = random.OneIn(8);
  Sharding like_to = OneOf(targets, random);
  while (!may_be_partial && like_to.HasPartial()) like_to = OneOf(targets, random);
  const ReduceOp op = SomeOp(dtype, random.Next());
  const bool reduces = like_from.HasPartial() || like_to.HasPartial();
  if (reduces && !can_reduce(dtype, op)) return std::nullopt;
  std::optional<Sharding> from = Recast(like_from, dtype, op);
  std::optional<Sharding> to = Recast(like_to, dtype, op);
  if (!from || !to) return std::nullopt;
  return RandomPair{*std::move(from), *std::move(to)};
}

}  // namespace

int64_t ForEachCrossCase(const CrossWorldOptions& options, VisitPair visit) {
  Visitor visitor(options, visit);
  for (const Shape& shape : Shapes()) {
    for (const Sizes& source : SourceMeshes()) {
      for (const Sizes& target : TargetMeshes()) {
        for (const Meshes& meshes : MeshesOf(source, target)) visitor.Visit(meshes, shape);
      }
    }
  }
  return visitor.visited();
}

void ForEachCrossSample(const CrossSampleOptions& options, CanReduce can_reduce, VisitPair visit) {
  constexpr DType kCast[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (int64_t i = 0; i < options.cases; ++i) {
    const auto dtype = static_cast<DType>(i % kNumDTypes);
    Random random(options.seed * 1000003 + static_cast<uint64_t>(i));
    std::optional<RandomPair> pair;
    while (!pair) pair = SomePair(dtype, can_reduce, random);
    const auto* const cast = std::find(std::begin(kCast), std::end(kCast), dtype);
    if (cast != std::end(kCast) && random.OneIn(4)) {
      const DType other = kCast[(cast - std::begin(kCast) + 1 + random.Below(2)) % 3];
      pair->to = pair->to.WithDType(other).value();
    }
    visit(pair->from, pair->to);
  }
}

RandomPair RandomCrossCase(uint64_t seed, DType dtype, ReduceOp op) {
  constexpr int64_t kMostRanks = 24;
  Random random(seed);
  const Sizes source = RandomSizes(kMostRanks, random);
  const Sizes target = RandomSizes(kMostRanks, random);
  const int64_t n = Product(source);
  const int64_t m = Product(target);
  const auto mesh_of = [&](char letter, const Sizes& sizes, int64_t first) {
    // One in four meshes has gaps between its ranks.
    const int64_t gap = random.OneIn(4) ? 2 : 1;
    std::vector<int64_t> ranks = RanksFrom(first, Product(sizes));
    for (int64_t& rank : ranks) rank = first + (rank - first) * gap;
    if (random.OneIn(2)) random.Shuffle(ranks);
    return MeshOf(letter, sizes, std::move(ranks));
  };
  const DeviceMesh source_mesh = mesh_of('a', source, random.OneIn(2) ? 0 : random.Below(m + 1));
  const DeviceMesh target_mesh = mesh_of('b', target, random.OneIn(2) ? 0 : random.Below(n + 1));
  const TensorType tensor{dtype, RandomShape(random)};
  Sharding from = RandomSharding(source_mesh, tensor,
                                 std::vector<bool>(source_mesh.NumDims(), true), op, random);
  Sharding to = RandomSharding(
      target_mesh, tensor, std::vector<bool>(target_mesh.NumDims(), random.OneIn(3)), op, random);
  return {std::move(from), std::move(to)};
}

}  // namespace meshift::testkit
