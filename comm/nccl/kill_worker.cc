// One rank of a job with torchrun's variables. Makes calls; rank N kills itself in the middle of
// them. The others must get an error within two seconds, long before the time-out, and say so.
//
//   kill_worker N
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/control/bootstrap.h"
#include "comm/engine/engine.h"
#include "comm/nccl/nccl_engine.h"
#include "comm/redistributor.h"
#include "comm/tensor/tensor_view.h"
#include "mesh/device_mesh.h"
#include "placement/dtype.h"
#include "placement/sharding.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTimeout(10000);
constexpr std::chrono::milliseconds kAtMost(2000);
constexpr int kBefore = 5;  // calls

// OK where this rank was told in time that another one is gone.
absl::Status Run(int64_t victim, std::string* told) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::FromTorchrun());
  NcclOptions options;
  options.timeout = kTimeout;
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, NcclEngine::Create(bootstrap.get(), options));
  const int64_t rank = engine->rank();
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=2,b=2"));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(mesh, engine.get(), {.timeout = kTimeout}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[4,4]", mesh, "P,S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R,R"));
  MESHIFT_ASSIGN_OR_RETURN(const auto in, engine->Allocate(64));
  MESHIFT_ASSIGN_OR_RETURN(const auto out, engine->Allocate(64));
  const auto call = [&]() -> absl::Status {
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistribute(
            {.from = from,
             .to = to,
             .source = TensorView::Contiguous(in->data(), DType::kF32, from.LocalBox(rank).size),
             .target = TensorView::Contiguous(out->data(), DType::kF32, to.LocalBox(rank).size)}));
    return run.Wait();
  };
  for (int i = 0; i < kBefore; ++i) MESHIFT_RETURN_IF_ERROR(call());
  // Fails where rank 0 is the one, and quick.
  bootstrap->Exchange("").status().IgnoreError();
  if (rank == victim) kill(getpid(), SIGKILL);
  const auto begin = Clock::now();
  absl::Status status;
  while (status.ok() && Clock::now() - begin < 2 * kAtMost) status = call();
  const auto took = Clock::now() - begin;
  if (status.ok()) return Internal("no error");
  if (took > kAtMost) return Internal("too late: {}", Message(status));
  // Every later call says so too, at once.
  if (call().ok()) return Internal("a call after an error is not refused");
  *told = fmt::format("survivor {}: {} ms: {}", rank,
                      std::chrono::duration_cast<std::chrono::milliseconds>(took).count(),
                      status.ToString());
  // As a program would: what is left ends, and does not wait for who is gone.
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  std::string told;
  const absl::Status status = meshift::Run(argc > 1 ? std::atoll(argv[1]) : -1, &told);
  if (status.ok()) {
    fmt::print("{}\n", told);
  } else {
    fmt::print("failed: {}\n", meshift::Message(status));
  }
  return status.ok() ? 0 : 1;
}
