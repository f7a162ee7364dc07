// A user's Bazel workspace that uses Meshift: replicas of matrices become shards of rows, on two
// ranks in this process; and a gradient is summed in place.
//
//   bazel test //...
#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/status.h"
#include "mesh/device_mesh.h"
#include "meshift/meshift.h"

namespace your_workspace {
namespace {

using meshift::DeviceMesh;  // not the triangles
using meshift::Redistribution;
using meshift::Redistributor;
using meshift::RunHandle;
using meshift::Sharding;

struct Rank {
  Redistributor redistribute;
  std::vector<std::vector<float>> in = {};
  std::vector<std::vector<float>> out = {};
  RunHandle run = {};
};

absl::StatusOr<std::vector<Rank>> MakeRanks(const DeviceMesh& mesh, meshift::LocalWorld& world) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(auto redistribute, Redistributor::Create(mesh, world.engine(rank)));
    ranks.push_back({.redistribute = std::move(redistribute)});
  }
  return ranks;
}

// Polls until both are done; the host could do other work.
void Poll(const std::vector<Rank>& ranks) {
  while (!ranks[0].run.IsDone() || !ranks[1].run.IsDone()) {
  }
}

// A list of matrices in one call: matrix i has i + 1 columns, and each element is its row index.
absl::Status ShardRows(const DeviceMesh& mesh, meshift::LocalWorld& world) {
  MESHIFT_ASSIGN_OR_RETURN(std::vector<Rank> ranks, MakeRanks(mesh, world));
  const int num_matrices = 3;
  for (Rank& rank : ranks) {
    std::vector<Redistribution> list;
    rank.in.resize(num_matrices);
    rank.out.resize(num_matrices);
    for (int i = 0; i < num_matrices; ++i) {
      MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                               Sharding::Parse({meshift::DType::kF32, {3, i + 1}}, mesh, "R"));
      MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("S(0)"));
      MESHIFT_ASSIGN_OR_RETURN(const meshift::Plan plan, meshift::MakePlan(from, to));
      const meshift::Verdict verdict = meshift::Verify(plan);
      if (!verdict.ok()) return absl::InternalError(verdict.fault->message);
      for (int row = 0; row < 3; ++row) rank.in[i].insert(rank.in[i].end(), i + 1, row);
      rank.out[i].resize(to.LocalBox(rank.redistribute.rank()).NumElements());
      const std::vector<float>& in = rank.in[i];
      list.push_back({.from = from,
                      .to = to,
                      .source = rank.redistribute.View(from, in.data()),
                      .target = rank.redistribute.View(to, rank.out[i].data())});
    }
    MESHIFT_ASSIGN_OR_RETURN(rank.run, rank.redistribute(list));
  }
  Poll(ranks);
  for (Rank& rank : ranks) {
    MESHIFT_RETURN_IF_ERROR(rank.run.Wait());
    for (int i = 0; i < num_matrices; ++i) {
      // Chunks of 2 rows.
      std::vector<float> rows(i + 1, 2);
      if (rank.redistribute.rank() == 0) {
        rows.assign(i + 1, 0);
        rows.insert(rows.end(), i + 1, 1);
      }
      if (rank.out[i] != rows) return absl::InternalError("a rank holds other rows");
    }
  }
  return absl::OkStatus();
}

// Source and target share one buffer.
absl::Status SumInPlace(const DeviceMesh& mesh, meshift::LocalWorld& world) {
  MESHIFT_ASSIGN_OR_RETURN(std::vector<Rank> ranks, MakeRanks(mesh, world));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[5]", mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to,
                           from.WithPlacements({meshift::Placement::Replicate()}));
  for (Rank& rank : ranks) {
    rank.out = {std::vector<float>(5, static_cast<float>(rank.redistribute.rank() + 1))};
    const auto view = rank.redistribute.View(from, rank.out[0].data());
    MESHIFT_ASSIGN_OR_RETURN(
        rank.run, rank.redistribute({.from = from, .to = to, .source = view, .target = view}));
  }
  Poll(ranks);
  for (Rank& rank : ranks) {
    MESHIFT_RETURN_IF_ERROR(rank.run.Wait());
    if (rank.out[0] != std::vector<float>(5, 3)) return absl::InternalError("a sum is not 3");
  }
  return absl::OkStatus();
}

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("tp=2"));
  MESHIFT_ASSIGN_OR_RETURN(auto world, meshift::LocalWorld::Create({.num_ranks = 2}));
  MESHIFT_RETURN_IF_ERROR(ShardRows(mesh, *world));
  return SumInPlace(mesh, *world);
}

}  // namespace
}  // namespace your_workspace

int main() {
  const absl::Status status = your_workspace::Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  const auto result = status.ok() ? your_workspace::Status::kOk : your_workspace::Status::kFailed;
  return static_cast<int>(result);
}
