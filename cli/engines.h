// The engines of `meshift run` and `meshift calibrate` (--engine NAME): which ones this build has,
// and how a process joins a job and starts its engine.
//
//   MESHIFT_RETURN_IF_ERROR(CheckEngine("mpi"));       // says why this build does not have it
//   MESHIFT_ASSIGN_OR_RETURN(RankJob job, JoinJob("mpi", timeout));
//   ... compare the ranks' arguments ...
//   MESHIFT_RETURN_IF_ERROR(StartEngine("mpi", {.bounded_waits = true}, &job));
//
// "local" runs all ranks in this process. With the others this process is one rank, started by
// mpirun or another launcher, and starts one engine. One thread at a time may call.
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

// This process's rank of a job. The engine is destroyed first, since it uses the other members.
struct RankJob {
  std::shared_ptr<void> session;  // outlives the others; the MPI session, for example
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Engine> engine;
};

// The names of this build's engines: "local mpi nccl".
std::string EngineNames();
// INVALID_ARGUMENT for an unknown engine; UNIMPLEMENTED, with the reason, for one that this build
// does not have.
absl::Status CheckEngine(const std::string& name);

struct JobOptions {
  // MpiEngineOptions::bounded_waits, for MPI only. It needs MPI_THREAD_MULTIPLE, and is ignored if
  // MPI gives less.
  bool bounded_waits = false;
  // The time-out of the rendezvous and of calls that wait for other ranks; positive.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

inline constexpr int64_t kMaxTimeoutSeconds = 365 * 24 * 3600;
// The time-out: --timeout, else MESHIFT_TIMEOUT_S, else 10 minutes. INVALID_ARGUMENT if the
// variable is read and is not a number of seconds from 1 to kMaxTimeoutSeconds. REQUIRES: `seconds`
// is in this range, or none.
absl::StatusOr<std::chrono::nanoseconds> JobTimeout(const std::optional<int64_t>& seconds);

// Whether the environment marks this process as one of several of a job.
bool IsInJob();
// Joins the job as mpirun or torchrun sets it up; starts no engine. Collective. An unknown `name`
// is allowed: the environment alone then decides how to join. FAILED_PRECONDITION: no launcher has
// started this process, and `name` is not "mpi". Other errors are those of MpiSession::Start and
// MpiBootstrap, or of Bootstrap::FromTorchrun.
absl::StatusOr<RankJob> JoinJob(const std::string& name, std::chrono::nanoseconds timeout);
// Starts the engine. Collective. If MESHIFT_DUMP names a folder, the engine writes its record of
// calls there, after an error or when the folder's file "now" is touched. SIGUSR1, whose handler is
// set, touches it. INVALID_ARGUMENT: the folder cannot be made, or its path is too long.
// Other errors are those of the engine. REQUIRES: CheckEngine(name) is OK, `name` is not "local",
// and *job is from JoinJob().
absl::Status StartEngine(const std::string& name, const JobOptions& options, RankJob* job);

// Ends the process at once, without destructors: after a failure they may wait for ranks that are
// gone. Flush all output first.
[[noreturn]] void LeaveJob(int exit_code);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_ENGINES_H_
