// Meshift uses PyTorch's NCCL communicator, stream and memory. One rank per GPU:
//
//   torchrun --no-python --nproc-per-node 4 ./lend
//
// Compiled if libtorch has CUDA; needs GPUs to run.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "meshift/nccl_engine.h"
#include "meshift/torch.h"

namespace {

using meshift::libtorch::Check;
using meshift::libtorch::DTensor;

int Number(const char* name) {
  const char* text = std::getenv(name);
  TORCH_CHECK(text != nullptr, name, " is not set; start this with torchrun");
  return std::stoi(text);
}

void Run() {
  const int rank = Number("RANK");
  const int ranks = Number("WORLD_SIZE");
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(Number("LOCAL_RANK")));

  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(Number("MASTER_PORT") + 1);
  options.isServer = rank == 0;
  const char* host = std::getenv("MASTER_ADDR");
  const auto store =
      c10::make_intrusive<c10d::TCPStore>(host == nullptr ? "localhost" : host, options);
  const auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks);
  const at::TensorOptions here = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  // The group makes its communicator in its first collective.
  std::vector<at::Tensor> first = {at::ones({1}, here)};
  group->allreduce(first)->wait();
  at::Tensor done = first[0].cpu();  // so the communicator has no unfinished operation

  meshift::NcclLent lent = meshift::libtorch::Lend(*group);
  lent.may_split = true;
  const auto engine = Check(meshift::NcclEngine::FromLent(lent));
  const auto mesh = Check(meshift::DeviceMesh::Create({{"dp", ranks}}));
  meshift::libtorch::TensorRedistributor redistribute(mesh, engine.get());
  const DTensor w = redistribute.Wrap(at::full({2, 6}, rank, here), {2 * ranks, 6}, "S(0)");
  const at::Tensor all = redistribute(w, "R", {.dtype = at::kBFloat16}).local;
  const at::Tensor expected =
      at::arange(ranks, here).repeat_interleave(2).unsqueeze(1).expand({-1, 6});
  TORCH_CHECK(at::equal(all, expected.to(at::kBFloat16)), "the weight is\n", all);
  auto pending = redistribute.Start(w, "S(1)");
  const at::Tensor beside = at::ones({1000, 1000}, here).mm(at::ones({1000, 1000}, here));
  TORCH_CHECK(pending.Wait().local.size(0) == 2 * ranks);
  std::printf("rank %d: NCCL %s: right\n", rank, engine->nccl_version().c_str());
}

}  // namespace

int main() {
  try {
    Run();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
  return 0;
}
