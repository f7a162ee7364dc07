// Compares all shardings of small meshes with the plainest definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

using Indices = std::vector<int64_t>;

DeviceMesh MeshOf(const std::vector<int64_t>& sizes) {
  std::vector<DeviceMesh::Dim> dims;
  for (const int64_t size : sizes) dims.push_back({fmt::format("d{}", dims.size()), size});
  return DeviceMesh::Create(dims).value();
}

// Calls `visit` with each list of `length` values out of low..high.
void ForEachList(int length, int64_t low, int64_t high,
                 const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> list(length, low);
  while (true) {
    visit(list);
    int i = length - 1;
    while (i >= 0 && list[i] == high) list[i--] = low;
    if (i < 0) return;
    ++list[i];
  }
}

// Calls `visit` with each order of `cuts`.
void ForEachOrder(Cuts cuts, const std::function<void(const Cuts&)>& visit) {
  std::sort(cuts.begin(), cuts.end());
  do visit(cuts);
  while (std::next_permutation(cuts.begin(), cuts.end()));
}

Cuts CutsOfAll(int count) {
  Cuts cuts(count);
  std::iota(cuts.begin(), cuts.end(), 0);
  return cuts;
}

// torch.chunk(indices, n)[i]; empty if there are fewer chunks.
Indices Chunk(const Indices& indices, int64_t n, int64_t i) {
  const int64_t size = static_cast<int64_t>(indices.size());
  const int64_t chunk = (size + n - 1) / n;
  Indices result;
  for (int64_t k = i * chunk; k < std::min(size, (i + 1) * chunk); ++k) {
    result.push_back(indices[k]);
  }
  return result;
}

// Tensor dim 0 cut by all mesh dims, in each order.
TEST(ShardingExhaustive, BoxesAreNestedChunksThatPartitionTheTensor) {
  for (int dims = 1; dims <= 3; ++dims) {
    ForEachList(dims, dims == 1 ? 1 : 2, 4, [&](const std::vector<int64_t>& sizes) {
      const DeviceMesh mesh = MeshOf(sizes);
      const std::vector<Placement> placements(dims, Placement::Shard(0));
      ForEachOrder(CutsOfAll(dims), [&](const Cuts& order) {
        for (int64_t size = 0; size <= 20; ++size) {
          const Sharding s =
              Sharding::Create(mesh, {DType::kF32, {size}}, placements, {order}).value();
          SCOPED_TRACE(s.ToString());
          std::vector<int> holders(size, 0);
          int64_t largest = 0;
          for (int64_t rank = 0; rank < mesh.NumRanks(); ++rank) {
            const Coordinate coordinate = *mesh.CoordinateOf(rank);
            Indices indices(size);
            std::iota(indices.begin(), indices.end(), 0);
            for (const int d : order) indices = Chunk(indices, sizes[d], coordinate[d]);

            const Box box = s.LocalBox(rank);
            ASSERT_EQ(box, s.BoxAt(coordinate));
            Indices held(box.size[0]);
            std::iota(held.begin(), held.end(), box.offset[0]);
            ASSERT_EQ(held, indices) << "rank " << rank;
            for (const int64_t i : held) ++holders[i];
            largest = std::max(largest, box.NumElements());
          }
          ASSERT_EQ(holders, std::vector<int>(size, 1));
          ASSERT_EQ(s.MaxLocalElements(), largest);
        }
      });
    });
  }
}

// A ragged cut, then a ceil cut, in both orders of the mesh.
TEST(ShardingExhaustive, RaggedBoxesPartitionTheTensor) {
  ForEachList(3, 0, 5, [](const std::vector<int64_t>& sizes) {
    const Placement ragged = Placement::RaggedShard(0, {sizes[0], sizes[1], sizes[2]});
    const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    for (const bool ragged_first : {true, false}) {
      const DeviceMesh mesh = ragged_first ? MeshOf({3, 2}) : MeshOf({2, 3});
      std::vector<Placement> placements = {ragged, Placement::Shard(0)};
      if (!ragged_first) std::swap(placements[0], placements[1]);
      const Sharding s = Sharding::Create(mesh, {DType::kF32, {size}}, placements).value();
      int64_t next = 0;
      int64_t largest = 0;
      for (int64_t i = 0; i < 6; ++i) {
        const Coordinate coordinate =
            ragged_first ? Coordinate{i / 2, i % 2} : Coordinate{i % 2, i / 2};
        const Box box = s.BoxAt(coordinate);
        ASSERT_EQ(box.offset[0], next) << s.ToString();
        next += box.size[0];
        largest = std::max(largest, box.size[0]);
      }
      ASSERT_EQ(next, size) << s.ToString();
      ASSERT_EQ(s.MaxLocalElements(), largest) << s.ToString();
      ASSERT_EQ(Sharding::Parse(s.ToString()).value(), s) << s.ToString();
    }
  });
}

// Two elements to a byte: allowed if and only if each rank's piece of the innermost dim has whole
// bytes.
TEST(ShardingExhaustive, WholeBytes) {
  int allowed = 0;
  int refused = 0;
  for (int dims = 1; dims <= 3; ++dims) {
    ForEachList(dims, 1, 4, [&](const std::vector<int64_t>& sizes) {
      const DeviceMesh mesh = MeshOf(sizes);
      const std::vector<Placement> placements(dims, Placement::Shard(0));
      for (int64_t size = 0; size <= 48; ++size) {
        const Sharding bytes = Sharding::Create(mesh, {DType::kU8, {size}}, placements).value();
        bool whole = size % 2 == 0;
        for (int64_t rank = 0; rank < mesh.NumRanks(); ++rank) {
          const Box box = bytes.LocalBox(rank);
          whole = whole && box.offset[0] % 2 == 0 && box.size[0] % 2 == 0;
        }
        const auto nibbles = Sharding::Create(mesh, {DType::kF4E2M1, {size}}, placements);
        ASSERT_EQ(nibbles.ok(), whole) << bytes.ToString() << " " << nibbles.status();
        ++(whole ? allowed : refused);
      }
    });
  }
  EXPECT_GT(allowed, 500);
  EXPECT_GT(refused, 500);
}

// All combinations of a few placements of a tensor of rank 2, with all shard orders.
void ForEachSharding(int dims, const std::function<void(const Sharding&)>& visit) {
  const std::vector<Placement> kChoices = {
      Placement::Replicate(), Placement::Shard(0),
      Placement::Shard(1),    Placement::RaggedShard(0, {6, 1}),
      Placement::Partial(),   Placement::Partial(ReduceOp::kAvg),
  };
  const DeviceMesh mesh = MeshOf(std::vector<int64_t>(dims, 2));
  const TensorType tensor{DType::kF32, {7, 5}};
  ForEachList(dims, 0, kChoices.size() - 1, [&](const std::vector<int64_t>& choice) {
    std::vector<Placement> placements;
    for (const int64_t c : choice) placements.push_back(kChoices[c]);
    const auto plain = Sharding::Create(mesh, tensor, placements);
    if (!plain.ok()) return;  // Two ragged cuts.
    const Cuts rows(plain->CutsOf(0).begin(), plain->CutsOf(0).end());
    const Cuts columns(plain->CutsOf(1).begin(), plain->CutsOf(1).end());
    ForEachOrder(rows, [&](const Cuts& row_order) {
      ForEachOrder(columns, [&](const Cuts& column_order) {
        const auto s = Sharding::Create(mesh, tensor, placements, {row_order, column_order});
        if (s.ok()) visit(*s);  // Otherwise a ragged cut is not outermost.
      });
    });
  });
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Printed text parses, also in DTensor's notations.
TEST(ShardingExhaustive, ParsesWhatItPrints) {
  int count = 0;
  for (int dims = 1; dims <= 4; ++dims) {
    ForEachSharding(dims, [&](const Sharding& s) {
      const std::string text = s.PlacementsText();
      const std::string words = Replaced(
          Replaced(Replaced(text, "R", "Replicate()"), "S(", "Shard(dim="), "P", "Partial");
      for (const std::string& spelling :
           {text, Replaced(text, ",", " , "), Replaced(text, "),", ")"), "(" + words + ",)"}) {
        const auto parsed = s.WithPlacements(spelling);
        ASSERT_TRUE(parsed.ok()) << spelling << ": " << parsed.status();
        ASSERT_EQ(*parsed, s) << spelling;
      }
      ASSERT_EQ(Sharding::Parse(s.ToString()).value(), s) << s.ToString();
      ++count;
    });
  }
  EXPECT_GT(count, 1296);
}

}  // namespace
}  // namespace meshift
