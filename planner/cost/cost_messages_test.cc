// Compares the counts of the worst rank of an exchange (sent, received, kept) with those of all
// ranks, computed one by one from their boxes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "testing/random.h"
#include "testing/shardings.h"

namespace meshift {
namespace {

using testkit::Random;

struct Part {
  int64_t begin = 0;
  int64_t end = 0;
};

int64_t Common(const Part& a, const Part& b) {
  return std::max<int64_t>(std::min(a.end, b.end) - std::max(a.begin, b.begin), 0);
}

Part PieceOf(int64_t extent, absl::Span<const int> cuts, const DeviceMesh& mesh,
             const Coordinate& at) {
  Part piece{0, extent};
  for (const int d : cuts) {
    const int64_t n = mesh.dim(d).size;
    const int64_t chunk = (piece.end - piece.begin + n - 1) / n;
    const int64_t begin = std::min(piece.begin + chunk * at[d], piece.end);
    piece = {begin, std::min(begin + chunk, piece.end)};
  }
  return piece;
}

// The exchange by its definition: a receiver gets its box from the ranks that have its coordinates
// on all mesh dims, except those of cuts after the common prefix.
Traffic CountRankByRank(const Sharding& from, const Sharding& to, int64_t item_bytes) {
  const DeviceMesh& mesh = from.mesh();
  const auto rank = static_cast<int>(from.shape().size());
  std::vector<bool> moves(mesh.NumDims(), false);
  std::vector<bool> still(rank);  // tensor dims
  for (int k = 0; k < rank; ++k) {
    const absl::Span<const int> a = from.CutsOf(k);
    const absl::Span<const int> b = to.CutsOf(k);
    size_t common = 0;
    while (common < std::min(a.size(), b.size()) && a[common] == b[common]) ++common;
    still[k] = common == a.size() && common == b.size();
    for (size_t i = common; i < a.size(); ++i) moves[a[i]] = true;
  }
  const int64_t ranks = mesh.NumRanks();
  std::vector<Coordinate> at;
  std::vector<std::vector<Part>> before(ranks);
  std::vector<std::vector<Part>> after(ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    at.push_back(mesh.CoordinateAt(r));
    for (int k = 0; k < rank; ++k) {
      before[r].push_back(PieceOf(from.shape()[k], from.CutsOf(k), mesh, at[r]));
      after[r].push_back(PieceOf(to.shape()[k], to.CutsOf(k), mesh, at[r]));
    }
  }
  std::vector<int64_t> sent(ranks, 0);
  std::vector<int64_t> received(ranks, 0);
  std::vector<int64_t> messages_sent(ranks, 0);
  std::vector<int64_t> messages_received(ranks, 0);
  Traffic traffic;
  std::vector<bool> is_long(rank, false);
  std::vector<bool> splits_before(rank, false);
  std::vector<bool> splits_after(rank, false);
  for (int64_t s = 0; s < ranks; ++s) {
    for (int64_t r = 0; r < ranks; ++r) {
      bool may_send = true;
      for (int d = 0; d < mesh.NumDims(); ++d) may_send &= moves[d] || at[s][d] == at[r][d];
      if (!may_send) continue;
      int64_t items = item_bytes;
      for (int k = 0; k < rank; ++k) {
        const int64_t common = Common(before[s][k], after[r][k]);
        items *= common;
        if (common == 0) continue;
        is_long[k] = is_long[k] || common > 1;
        if (still[k]) continue;
        splits_before[k] = splits_before[k] || common < before[s][k].end - before[s][k].begin;
        splits_after[k] = splits_after[k] || common < after[r][k].end - after[r][k].begin;
      }
      if (items == 0) continue;
      if (s == r) {
        traffic.bytes_kept = std::max(traffic.bytes_kept, items);
        continue;
      }
      sent[s] += items;
      received[r] += items;
      ++messages_sent[s];
      ++messages_received[r];
    }
  }
  traffic.bytes_sent = *std::max_element(sent.begin(), sent.end());
  traffic.bytes_received = *std::max_element(received.begin(), received.end());
  traffic.messages =
      std::max(*std::max_element(messages_sent.begin(), messages_sent.end()),
               *std::max_element(messages_received.begin(), messages_received.end()));
  bool behind_long = false;
  for (int k = 0; k < rank; ++k) {
    traffic.send_packs |= behind_long && splits_before[k];
    traffic.receive_packs |= behind_long && splits_after[k];
    behind_long |= is_long[k];
  }
  return traffic;
}

void ExpectCounted(const std::vector<DeviceMesh::Dim>& dims, const Shape& shape, Random& random) {
  const DeviceMesh mesh = DeviceMesh::Create(dims).value();
  const TensorType tensor{DType::kF32, shape};
  const std::vector<bool> none(dims.size(), false);
  const Sharding from = testkit::RandomSharding(mesh, tensor, none, ReduceOp::kSum, random);
  const Sharding to = testkit::RandomSharding(mesh, tensor, none, ReduceOp::kSum, random);
  if (from == to) return;
  SCOPED_TRACE(from.ToString() + " on " + mesh.ToString() + " -> " + to.PlacementsText());
  const Problem problem = Problem::Create(from, to).value();
  const CostModel model(problem, Topology::Parse("flat").value());
  const Traffic traffic = model.Measure(StepOp::kExchange, problem.source(), problem.target());
  const Traffic counted = CountRankByRank(from, to, 4);
  EXPECT_EQ(traffic.bytes_sent, counted.bytes_sent);
  EXPECT_EQ(traffic.bytes_received, counted.bytes_received);
  EXPECT_EQ(traffic.bytes_kept, counted.bytes_kept);
  EXPECT_EQ(traffic.messages, counted.messages);
  EXPECT_EQ(traffic.send_packs, counted.send_packs);
  EXPECT_EQ(traffic.receive_packs, counted.receive_packs);
}

Shape ShapeOf(Random& random) {
  Shape shape(1 + random.Below(3));
  for (int64_t& size : shape) size = 1 + random.Below(random.OneIn(2) ? 20 : 700);
  return shape;
}

TEST(CostMessagesTest, FewRanks) {
  Random random(1);
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    std::vector<DeviceMesh::Dim> dims(1 + random.Below(4));
    for (size_t d = 0; d < dims.size(); ++d) {
      dims[d] = {std::string(1, static_cast<char>('a' + d)), 2 + random.Below(3)};
    }
    ExpectCounted(dims, ShapeOf(random), random);
  }
}

// Groups too large to be counted rank by rank.
TEST(CostMessagesTest, ManyRanks) {
  Random random(2);
  const std::vector<std::vector<int64_t>> meshes = {
      {257},      {300},      {17, 17},     {3, 90},      {130, 2},         {2, 11, 13},
      {7, 6, 7},  {5, 8, 8},  {20, 3, 5},   {4, 4, 4, 5}, {2, 3, 2, 2, 12}, {3, 3, 6, 5},
      {2, 5, 31}, {4, 64, 2}, {16, 2, 3, 3}};
  for (int i = 0; i < 600 && !HasFailure(); ++i) {
    const std::vector<int64_t>& sizes = meshes[random.Below(std::ssize(meshes))];
    std::vector<DeviceMesh::Dim> dims;
    for (size_t d = 0; d < sizes.size(); ++d) {
      dims.push_back({std::string(1, static_cast<char>('a' + d)), sizes[d]});
    }
    ExpectCounted(dims, ShapeOf(random), random);
  }
}

}  // namespace
}  // namespace meshift
