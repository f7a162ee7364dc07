// Trains a small network on six ranks of this process, each a thread; prints the loss next to that
// of a training without ranks.
//
//   ./bazelw run //examples/train_mlp
//   ./bazelw run //examples/train_mlp -- data=2,tensor=4
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "examples/train_mlp/report.h"
#include "examples/train_mlp/train.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/status.h"

namespace meshift {
namespace {

absl::Status Main(const TrainOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(options.mesh));
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalWorld> world,
                           LocalWorld::Create({.num_ranks = mesh.NumRanks()}));
  std::vector<absl::StatusOr<std::vector<float>>> losses(mesh.NumRanks());
  std::vector<std::thread> ranks;
  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    ranks.emplace_back([&, r] { losses[r] = Train(world->engine(r), options); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& of_rank : losses) {
    MESHIFT_RETURN_IF_ERROR(of_rank.status());
    if (*of_rank != *losses[0]) return absl::InternalError("ranks hold different losses");
  }
  return Report(*losses[0], TrainAlone(options));
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  meshift::TrainOptions options;
  if (argc > 1) options.mesh = argv[1];
  const absl::Status status = meshift::Main(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
