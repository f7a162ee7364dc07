// The smallest complete program: a gradient that is partial over two mesh dims becomes replicated,
// on 40 ranks in this process, each a thread. Every rank holds ones, so every rank must end with
// 40. README.md shows SumGradient.
//
//   ./bazelw run //examples:redistribute
//
// prints
//
//   40 ranks hold 40
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 40;

// Every rank calls this. `in` and `out` are its local tensors, f32[64,16] in row-major order.
absl::Status SumGradient(Engine* engine, float* in, float* out) {
  MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("ddp=8,fsdp=5,tp=1"));
  MESHIFT_ASSIGN_OR_RETURN(Sharding from, Sharding::Parse("f32[64,16]", mesh, "P,P,R"));
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, from.WithPlacements("R,R,R"));

  // A real program keeps this object: it caches plans and their groups.
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine));
  MESHIFT_ASSIGN_OR_RETURN(
      RunHandle run, redistribute({.from = from,
                                   .to = to,
                                   .source = TensorView::Contiguous(in, DType::kF32, {64, 16}),
                                   .target = TensorView::Contiguous(out, DType::kF32, {64, 16})}));
  return run.Wait();
}

absl::Status Main() {
  MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = kRanks}));
  std::vector<std::vector<float>> in(kRanks, std::vector<float>(64 * 16, 1.0F));
  std::vector<std::vector<float>> out(kRanks, std::vector<float>(64 * 16));
  std::vector<absl::Status> results(kRanks);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = SumGradient(world->engine(rank), in[rank].data(), out[rank].data());
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const absl::Status& result : results) MESHIFT_RETURN_IF_ERROR(result);
  for (const std::vector<float>& local : out) {
    for (float value : local) {
      if (value != 40.0F) return absl::InternalError(fmt::format("a rank holds {}, not 40", value));
    }
  }
  fmt::print("{} ranks hold 40\n", kRanks);
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
