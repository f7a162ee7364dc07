// One rank of a job with torchrun's variables. Makes calls; in the middle of them rank N
//
//   kill    kills itself: the others must get an error within two seconds, long before the time-out
//   stop    is stopped, as by a debugger, with its connections open
//   loop    keeps running, but makes no calls any more
//
// After "stop" and "loop" the others must end within two seconds of the time-out, although they
// wait for their streams through CUDA alone. The time-out is one second. For "stop" it is three, so
// that twice the time-out would be too late. Each survivor prints "survivor RANK: ...".
//
//   kill_worker N [kill|stop|loop]
#include <fmt/format.h>
#include <sys/types.h>
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
#include "comm/cuda/driver.h"
#include "meshift/bootstrap.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kAtMost(2000);
constexpr int kBefore = 5;  // calls

// Stops this process; a child kills it five seconds later.
void Stop() {
  const pid_t own = getpid();
  if (fork() == 0) {
    sleep(8);
    kill(own, SIGKILL);
    _exit(0);
  }
  kill(own, SIGSTOP);
}

// OK if this rank got an error in time after the other one failed.
absl::Status Run(int64_t victim, const std::string& how, std::string* told) {
  const bool killed = how == "kill";
  const std::chrono::milliseconds timeout(killed ? 10000 : how == "stop" ? 3000 : 1000);
  const std::chrono::milliseconds at_most = killed ? kAtMost : timeout + kAtMost;
  MESHIFT_ASSIGN_OR_RETURN(const auto driver, CudaDriver::Load());
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::FromTorchrun());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, NcclEngine::Create(bootstrap.get()));
  const int64_t rank = engine->rank();
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=2,b=2"));
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(mesh, engine.get(), {.agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[4,4]", mesh, "P,S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R,R"));
  MESHIFT_ASSIGN_OR_RETURN(const auto in, engine->Allocate(64));
  MESHIFT_ASSIGN_OR_RETURN(const auto out, engine->Allocate(64));
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine->CreateStream());
  MESHIFT_ASSIGN_OR_RETURN(void* const handle, engine->HandleOf(*stream));
  const auto call = [&]() -> absl::Status {
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistribute(
            {.from = from,
             .to = to,
             .source = TensorView::Contiguous(in->data(), DType::kF32, from.LocalBox(rank).size),
             .target = TensorView::Contiguous(out->data(), DType::kF32, to.LocalBox(rank).size)}));
    if (killed) return run.Wait();
    MESHIFT_RETURN_IF_ERROR(run.Wait(*stream));
    MESHIFT_RETURN_IF_ERROR(driver->StreamSynchronize(static_cast<CUstream>(handle)));
    return engine->world()->Health();
  };
  for (int i = 0; i < kBefore; ++i) MESHIFT_RETURN_IF_ERROR(call());
  MESHIFT_RETURN_IF_ERROR(engine->SetTimeouts(Timeouts::Of(timeout)));
  // Fails if rank 0 is the victim and has ended already.
  bootstrap->Exchange("").status().IgnoreError();
  if (rank == victim) {
    if (killed) kill(getpid(), SIGKILL);
    if (how == "stop") Stop();
    const auto until = Clock::now() + 2 * at_most;
    while (Clock::now() < until) {
    }
    kill(getpid(), SIGKILL);
  }
  const auto begin = Clock::now();
  absl::Status status;
  while (status.ok() && Clock::now() - begin < 2 * at_most) status = call();
  const auto took = Clock::now() - begin;
  if (status.ok()) return Internal("no error");
  if (took > at_most) return Internal("too late: {}", Message(status));
  // Every later call says so too, at once.
  if (call().ok()) return Internal("a call after an error is not refused");
  *told = fmt::format("survivor {}: {} ms: {}", rank,
                      std::chrono::duration_cast<std::chrono::milliseconds>(took).count(),
                      status.ToString());
  // Destructors run, as in a real program, and do not wait for the victim.
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  std::string told;
  const absl::Status status =
      meshift::Run(argc > 1 ? std::atoll(argv[1]) : -1, argc > 2 ? argv[2] : "kill", &told);
  if (status.ok()) {
    fmt::print("{}\n", told);
  } else {
    fmt::print("failed: {}\n", meshift::Message(status));
  }
  return status.ok() ? 0 : 1;
}
