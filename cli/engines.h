// The engines that `meshift run --engine NAME` has.
//
//   MESHIFT_RETURN_IF_ERROR(CheckEngine("mpi"));       // says why this build leaves it out
//   MESHIFT_ASSIGN_OR_RETURN(RankJob job, JoinJob("mpi", timeout));
//   ... compare what the ranks were asked for ...
//   MESHIFT_RETURN_IF_ERROR(StartEngine("mpi", {.bounded_waits = true}, &job));
//
// "local" runs all ranks in this process, the others one of many processes that mpirun or another
// launcher has started.
#ifndef MESHIFT_CLI_ENGINES_H_
#define MESHIFT_CLI_ENGINES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"

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

struct JobOptions {
  // No call waits without end, also where a rank is killed; over MPI that takes some microseconds
  // of each, and MPI_THREAD_MULTIPLE: where MPI has only less, it is of no consequence.
  bool bounded_waits = false;
  // Of the rendezvous, and of calls that wait for others; positive.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

inline constexpr int64_t kMaxTimeoutSeconds = 365 * 24 * 3600;
// What --timeout says, else MESHIFT_TIMEOUT_S, else 10 minutes. INVALID_ARGUMENT where the variable
// is no number of seconds.
absl::StatusOr<std::chrono::nanoseconds> JobTimeout(const std::optional<int64_t>& seconds);

// Whether the environment says that this process is one of several of a job.
bool IsInJob();
// Meets the others, as mpirun or torchrun says; the job has no engine yet. Collective. `name` may
// be none that there is: then the environment alone says how.
absl::StatusOr<RankJob> JoinJob(const std::string& name, std::chrono::nanoseconds timeout);
// Starts the engine. Collective. REQUIRES: CheckEngine; not "local".
absl::Status StartEngine(const std::string& name, const JobOptions& options, RankJob* job);

// Ends the process at once, for a job that has failed: destructors may wait for ranks that are
// gone. Output must have been flushed.
[[noreturn]] void LeaveJob(int exit_code);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_ENGINES_H_
