#include "testing/small_world.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "mesh/device_mesh.h"
#include "placement/box.h"
#include "placement/dtype.h"
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

RandomPair RandomCase(uint64_t seed, DType dtype, ReduceOp op) {
  Random random(seed);
  const std::vector<int64_t> sizes = RandomSizes(random);
  const bool shuffled = random.OneIn(2);
  const uint64_t order = random.Next();
  const DeviceMesh mesh =
      shuffled ? ShuffledMesh(sizes, order).value() : SyntheticMesh(sizes).value();
  const TensorType tensor{dtype, RandomShape(random)};
  std::vector<bool> may_be_partial(mesh.NumDims(), true);
  Sharding from = RandomSharding(mesh, tensor, may_be_partial, op, random);
  for (int d = 0; d < mesh.NumDims(); ++d) may_be_partial[d] = from.placement(d).IsPartial();
  Sharding to = RandomSharding(mesh, tensor, may_be_partial, op, random);
  return {std::move(from), std::move(to)};
}

}  // namespace meshift::testkit
