// The engines that `meshift run --engine NAME` has.
//
//   MESHIFT_RETURN_IF_ERROR(CheckEngine("mpi"));       // says why this build leaves it out
//   MESHIFT_ASSIGN_OR_RETURN(RankJob job, StartRankJob("mpi", /*bounded_waits=*/true));
//
// "local" runs all ranks in this process, the others one of many processes that mpirun or another
// launcher has started.
#ifndef MESHIFT_CLI_ENGINES_H_
#define MESHIFT_CLI_ENGINES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/bootstrap.h"
#include "comm/engine/engine.h"

namespace meshift::cli {

// This process's rank of a job. Members are destroyed last to first.
struct RankJob {
  std::shared_ptr<void> session;  // what must outlive the others: MPI, say
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Engine> engine;
};

// "local mpi nccl": those of this build.
std::string EngineNames();
// INVALID_ARGUMENT where there is no such engine, UNIMPLEMENTED where this build leaves it out,
// with the reason.
absl::Status CheckEngine(const std::string& name);
// Collective over the job's processes. `bounded_waits`: no call waits without end, also where a
// rank is killed; over MPI that takes some microseconds of each. REQUIRES: CheckEngine; not
// "local".
absl::StatusOr<RankJob> StartRankJob(const std::string& name, bool bounded_waits);

// Ends the process at once, for a job that has failed: destructors may wait for ranks that are
// gone. Output must have been flushed.
[[noreturn]] void LeaveJob(int exit_code);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_ENGINES_H_
