// A Bazel workspace of one's own that uses Meshift: replicas of a matrix become shards of rows, on
// two ranks in this process.
//
//   ../../bazelw test //...
#include <cstdio>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/verifier.h"

namespace {

using meshift::DType;
using meshift::TensorView;

absl::Status ShardRows() {
  MESHIFT_ASSIGN_OR_RETURN(auto mesh, meshift::DeviceMesh::Parse("tp=2"));
  MESHIFT_ASSIGN_OR_RETURN(auto from, meshift::Sharding::Parse("f32[3,2]", mesh, "R"));
  MESHIFT_ASSIGN_OR_RETURN(auto to, from.WithPlacements("S(0)"));

  MESHIFT_ASSIGN_OR_RETURN(const meshift::Plan plan, meshift::MakePlan(from, to, {}));
  const meshift::Verdict verdict = meshift::Verify(plan);
  if (!verdict.ok()) return absl::InternalError(verdict.fault->message);

  MESHIFT_ASSIGN_OR_RETURN(auto world, meshift::LocalWorld::Create({.num_ranks = 2}));
  const std::vector<float> matrix = {0, 1, 2, 3, 4, 5};
  const std::vector<std::vector<float>> rows = {{0, 1, 2, 3}, {4, 5}};  // chunks of 2 rows
  for (int rank = 0; rank < 2; ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(auto redistribute,
                             meshift::Redistributor::Create(mesh, world->engine(rank)));
    std::vector<float> in = matrix;
    std::vector<float> out(rows[rank].size());
    MESHIFT_ASSIGN_OR_RETURN(
        auto run, redistribute({.from = from,
                                .to = to,
                                .source = TensorView::Contiguous(in.data(), DType::kF32, {3, 2}),
                                .target = TensorView::Contiguous(out.data(), DType::kF32,
                                                                 to.LocalBox(rank).size)}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
    if (out != rows[rank]) return absl::InternalError("a rank holds other rows");
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = ShardRows();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
