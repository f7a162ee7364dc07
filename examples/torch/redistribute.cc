// Redistributions of PyTorch's tensors, each in one call. One rank per process:
//
//   mpirun -n 4 ./redistribute
#include <ATen/ATen.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "meshift/mpi_engine.h"
#include "meshift/torch.h"

namespace {

using meshift::DeviceMesh;
using meshift::MpiJob;
using meshift::Sharding;
using meshift::libtorch::Check;
using meshift::libtorch::DTensor;
using meshift::libtorch::TensorRedistributor;

// FSDP's gather: shards in f32 become the whole weight, in bf16.
at::Tensor Gather(TensorRedistributor& redistribute, const DTensor& weight) {
  return redistribute(weight, "R", {.dtype = at::kBFloat16}).local;
}

// Each rank's gradient, in bf16, becomes its shard of the sum, which is computed in f32.
at::Tensor ReduceGradient(TensorRedistributor& redistribute, const DTensor& gradient) {
  return redistribute(gradient, "S(0)", {.reduce_dtype = at::kFloat}).local;
}

// Shards of rows become shards of columns; the local tensor may have any strides.
at::Tensor ToColumns(TensorRedistributor& redistribute, const DTensor& rows) {
  return redistribute(rows, "S(1)").local;
}

// From the trainer's mesh to the server's, which has other ranks and another dtype.
at::Tensor Serve(TensorRedistributor& redistribute, const DTensor& weight, const Sharding& server) {
  return redistribute(weight, server).local;
}

// All weights in one call, overlapped with other work.
std::vector<DTensor> GatherAll(TensorRedistributor& redistribute,
                               const std::vector<DTensor>& weights) {
  auto gathered = redistribute.Start(weights, "R", {.dtype = at::kBFloat16});
  // ... the layer before is computed ...
  return gathered.Wait();
}

void Expect(const char* what, const at::Tensor& is, const at::Tensor& should_be) {
  TORCH_CHECK(at::equal(is, should_be), what, " is\n", is, "\nnot\n", should_be);
}

void Run(meshift::Engine* engine) {
  TensorRedistributor redistribute(Check(DeviceMesh::Parse("dp=4")), engine);
  const int64_t rank = redistribute.rank();
  const at::Tensor whole = at::arange(60, at::kFloat).reshape({10, 6});
  // 3, 3, 3 and 1 rows, the chunks of at::chunk.
  const at::Tensor rows = whole.chunk(4, 0)[rank];
  const DTensor weight = redistribute.Wrap(rows, {10, 6}, "S(0)");
  Expect("the weight", Gather(redistribute, weight), whole.to(at::kBFloat16));

  const DTensor gradient =
      redistribute.Wrap(at::full({10, 6}, rank + 0.5, at::kBFloat16), {10, 6}, "P");
  Expect("the gradient", ReduceGradient(redistribute, gradient),
         at::full({rows.size(0), 6}, 8, at::kBFloat16));

  const DTensor strided =
      redistribute.Wrap(rows.t().contiguous().t(), {10, 6}, "S(0)");  // column-major
  Expect("the columns", ToColumns(redistribute, strided),
         rank < 3 ? whole.chunk(3, 1)[rank] : at::empty({10, 0}));

  const DeviceMesh servers = Check(DeviceMesh::Parse("tp=2@3,1"));  // ranks 3 and 1
  const Sharding server = Check(Sharding::Parse("bf16[10,6]", servers, "S(1)"));
  const at::Tensor served = whole.to(at::kBFloat16);
  Expect("the served weight", Serve(redistribute, weight, server),
         rank == 3   ? served.narrow(1, 0, 3)
         : rank == 1 ? served.narrow(1, 3, 3)
                     : at::empty({0}, at::kBFloat16));

  for (const DTensor& one : GatherAll(redistribute, {weight, strided})) {
    Expect("a weight", one.local, whole.to(at::kBFloat16));
  }
  if (rank == 0) std::printf("all are right\n");
}

}  // namespace

int main() {
  try {
    const auto job = Check(MpiJob::Start());
    try {
      Run(job->engine());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::fflush(nullptr);
      job->Leave(1);  // the other ranks get the error; MPI_Finalize would wait for them
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
