// The smallest whole program: a gradient that is partial over two mesh dims becomes replicated, on
// 40 ranks in this process. Every rank holds 1 everywhere, so every rank must end with 40.
//
//   ./bazelw run //examples:redistribute
//
// prints
//
//   all_reduce{ddp,fsdp} -> R,R,R
//   40 ranks hold 40
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "base/status.h"
#include "base/status_macros.h"
#include "comm/local/local_world.h"
#include "comm/redistributor.h"

namespace meshift {
namespace {

absl::Status Main() {
  MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh,
                           DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}, {"tp", 1}}));
  MESHIFT_ASSIGN_OR_RETURN(Sharding from, Sharding::Parse("f32[64,16]", mesh, "P,P,R"));
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, from.WithPlacements("R,R,R"));
  MESHIFT_ASSIGN_OR_RETURN(Topology topology, Topology::Parse("nvlink=8"));

  // In a real job every process has one engine, one redistributor and one pair of buffers.
  MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = mesh.NumRanks()}));
  std::vector<Redistributor> redistribute;
  std::vector<std::vector<float>> in(mesh.NumRanks(), std::vector<float>(64 * 16, 1.0F));
  std::vector<std::vector<float>> out(mesh.NumRanks(), std::vector<float>(64 * 16));
  for (int64_t rank = 0; rank < mesh.NumRanks(); ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(Redistributor one, Redistributor::Create(mesh, world->engine(rank),
                                                                      {.topology = topology}));
    redistribute.push_back(std::move(one));
  }

  // Calls only put work on a stream, so one thread can make them for all ranks.
  std::vector<RunHandle> runs;
  for (int64_t rank = 0; rank < mesh.NumRanks(); ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle run,
        redistribute[rank](
            {.from = from,
             .to = to,
             .source = TensorView::Contiguous(in[rank].data(), DType::kF32, {64, 16}),
             .target = TensorView::Contiguous(out[rank].data(), DType::kF32, {64, 16})}));
    runs.push_back(std::move(run));
  }
  for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());

  MESHIFT_ASSIGN_OR_RETURN(Plan plan, redistribute[0].Prepare(from, to));
  for (const Step& step : plan.steps()) fmt::print("{}\n", step.ToString());
  for (const std::vector<float>& local : out) {
    for (float value : local) {
      if (value != 40.0F) return Internal("a rank holds {}, not 40", value);
    }
  }
  fmt::print("{} ranks hold 40\n", mesh.NumRanks());
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() {
  const absl::Status status = meshift::Main();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
