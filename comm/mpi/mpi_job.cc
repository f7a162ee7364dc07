// Implements MpiJob of meshift/mpi_engine.h: makes MPI and the control channel, each unless the
// program has it, then the engine, and destroys them in the reverse order. Builds with and without
// MPI.
#include <memory>
#include <utility>

#include "meshift/mpi_engine.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<MpiJob>> MpiJob::Start(const MpiEngineOptions& options) {
  MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
  auto job = std::unique_ptr<MpiJob>(new MpiJob(std::move(session)));
  MpiEngineOptions with_control = options;
  if (options.control == nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(job->bootstrap_,
                             MpiBootstrap(Bootstrap::kDefaultTimeout, options.communicator));
    with_control.control = job->bootstrap_->control();
  }
  MESHIFT_ASSIGN_OR_RETURN(job->engine_, CreateMpiEngine(with_control));
  return job;
}

MpiJob::~MpiJob() {
  // Waits for all ranks, at most kDefaultTimeout: they may still need the hub, which ends with rank
  // 0's bootstrap.
  if (engine_ != nullptr && bootstrap_ != nullptr) bootstrap_->Exchange("").status().IgnoreError();
}

}  // namespace meshift
