// Redistributions on symmetric memory across processes of one host, and the errors of symmetric
// calls.
#include "meshift/symmetric.h"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/status.h"
#include "testing/internal/conformance/symmetric_check.h"
#include "testing/internal/mpi/rank_main.h"

namespace meshift {
namespace {

absl::Status Expect(const absl::Status& status, const std::string& part) {
  if (!status.ok() && Message(status).find(part) != std::string::npos) return absl::OkStatus();
  return Internal("\"{}\" instead of \"... {} ...\"", status.ToString(), part);
}

absl::Status Works(bool bounded) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control(),
                                                               .bounded_waits = bounded}));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Create({{.name = "a", .size = engine->world_size() / 2},
                                               {.name = "b", .size = 2}}));
  return CheckSymmetric(engine.get(), mesh, {.cases = 150, .seed = 3});
}

// The time-out for tests in which a rank is missing. On a busy machine any rank may be a second
// late.
constexpr std::chrono::seconds kShort(3);

// An engine for a failing test. The default time-out is for tests in which all ranks take part.
absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(
    bool bounded, std::chrono::nanoseconds timeout = MpiEngineOptions().timeout) {
  return CreateMpiEngine({.timeout = timeout, .bounded_waits = bounded});
}

// Requests that differ fail on all ranks, with both requests in the error.
absl::Status Differ(bool bounded) {
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, MakeEngine(bounded));
  const absl::Status status =
      SymmetricPool::Create(engine.get(), engine->world(),
                            {.buffer_bytes = engine->rank() == 2 ? 8192 : 4096})
          .status();
  MPI_Barrier(MPI_COMM_WORLD);
  return Expect(status,
                "rank 0 asks for 1 buffers of 4096 bytes numbered from 0, and rank 2 for 1 "
                "buffers of 8192 bytes");
}

// A missing member is named in time.
absl::Status Missing(bool bounded) {
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, MakeEngine(bounded, kShort));
  absl::Status status;
  if (engine->rank() != 1) {
    status = Expect(
        SymmetricPool::Create(engine.get(), engine->world(), {.buffer_bytes = 4096}).status(),
        "rank 1");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return status;
}

// Calls with different offsets, and a call that one member does not make.
absl::Status CallsDiffer(bool bounded, bool missing) {
  MESHIFT_ASSIGN_OR_RETURN(const auto engine,
                           missing ? MakeEngine(bounded, kShort) : MakeEngine(bounded));
  MESHIFT_ASSIGN_OR_RETURN(
      auto buffers, engine->AllocateSymmetric(*engine->world(), {.count = 2, .bytes = 4096}));
  const std::vector<int64_t> counts(engine->world_size(), 8);
  const SymmetricCall call{.counts = counts,
                           .send = {buffers[0].get(), engine->rank() == 1 && !missing ? 64 : 0},
                           .recv = {buffers[1].get(), 0}};
  MESHIFT_ASSIGN_OR_RETURN(auto stream, engine->CreateStream());
  absl::Status status;
  if (!missing || engine->rank() != 1) {
    status = engine->world()->CallSymmetric(call, *stream);
    if (status.ok()) status = engine->Synchronize(*stream);
    status = missing ? Expect(status, "has waited 3000 ms for rank 1")
                     : Expect(status, "symmetric all_gather of 32 u8, buffer 0+64 -> 1+0");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // Leak the buffers: freeing a window is collective, and some groups have failed here.
  for (auto& buffer : buffers) static_cast<void>(buffer.release());
  return status;
}

absl::Status RunAll(bool bounded) {
  MESHIFT_RETURN_IF_ERROR(Works(bounded));
  MESHIFT_RETURN_IF_ERROR(Differ(bounded));
  MESHIFT_RETURN_IF_ERROR(Missing(bounded));
  MESHIFT_RETURN_IF_ERROR(CallsDiffer(bounded, /*missing=*/false));
  return CallsDiffer(bounded, /*missing=*/true);
}

absl::Status Run() {
  int threads = MpiSession::HasThreads() ? 1 : 0;  // then the minimum over all ranks
  MPI_Allreduce(MPI_IN_PLACE, &threads, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MESHIFT_RETURN_IF_ERROR(Annotate(RunAll(/*bounded=*/false), "any waits"));
  return threads == 0 ? absl::OkStatus() : Annotate(RunAll(/*bounded=*/true), "bounded waits");
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("symmetric_test", meshift::Run); }
