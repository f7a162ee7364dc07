// Implements meshift_mpi_engine_create and meshift_mpi_leave of meshift/c.h.
// To make an engine is collective. UNIMPLEMENTED: this build has no MPI; meshift_mpi_leave works
// all the same. Time-outs are in ns.
#include <chrono>
#include <memory>
#include <utility>

#include "capi/call.h"
#include "capi/handles.h"
#include "meshift/mpi_engine.h"

namespace {

// The job ends with the last handle that holds its engine.
absl::StatusOr<meshift::capi::SharedEngine> StartJob(const meshift_mpi_options* given) {
  meshift::MpiEngineOptions options;
  if (given != nullptr) {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckStruct("options", given));
    if (given->timeout_ns < 0) {
      return meshift::InvalidArgument("options.timeout_ns is {}; it must be 0 or more",
                                      given->timeout_ns);
    }
    if (given->timeout_ns > 0) options.timeout = std::chrono::nanoseconds(given->timeout_ns);
    if (given->communicator != nullptr) options.communicator = *given->communicator;
    options.bounded_waits = given->bounded_waits != 0;
  }
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<meshift::MpiJob> made, meshift::MpiJob::Start(options));
  const std::shared_ptr<meshift::MpiJob> job = std::move(made);
  return meshift::capi::SharedEngine{.owner = job, .engine = job->engine()};
}

}  // namespace

meshift_code meshift_mpi_engine_create(const meshift_mpi_options* options, meshift_engine** engine,
                                       char** error) {
  meshift::capi::Clear(engine);
  return meshift::capi::Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::NotNull({{"engine", engine}}));
    return meshift::capi::GiveOr(engine, StartJob(options));
  });
}

void meshift_mpi_leave(int32_t exit_code) { meshift::MpiJob::Leave(exit_code); }
