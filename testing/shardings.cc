#include "testing/shardings.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "placement/op_table.h"

namespace meshift::testkit {
namespace {

// Adds the sharding of `placements` to `all` with every order of the cuts of tensor dims from
// `tensor_dim` on.
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

}  // namespace

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

ReduceOp SomeOp(DType dtype, uint64_t hash) {
  std::vector<ReduceOp> ops;
  for (int op = 0; op < kNumReduceOps; ++op) {
    if (CheckReduce(static_cast<ReduceOp>(op), dtype).ok())
      ops.push_back(static_cast<ReduceOp>(op));
  }
  const bool sums = CheckReduce(ReduceOp::kSum, dtype).ok();
  if (ops.empty() || (sums && hash % 4 != 0)) return ReduceOp::kSum;
  return ops[hash / 4 % ops.size()];
}

std::vector<int64_t> RandomSizes(int64_t most, Random& random) {
  std::vector<int64_t> sizes(1 + random.Below(4));
  int64_t left = most;
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

}  // namespace meshift::testkit
