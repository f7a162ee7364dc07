// Runs a command as one rank of a job of processes: joins the job, compares the ranks' arguments,
// starts the engine, runs, and reports errors of any rank on all.
//
//   JobCall call{.verb = "run", .engine = "mpi", .arguments = {"--repeat 3"}};
//   return RunAsRank(call, [&](RankJob* job, ExecutionContext* context, Io& own) { ... }, io);
//
// A rank that cannot join prints its error and exits. Once joined, an error that all ranks share is
// printed by rank 0. Any other is printed by all ranks that still run, and names a rank. mpirun
// kills all ranks as soon as one exits with an error, so a joined rank first gives the
// others time to print, unless ReportExitReason() ends it. A process runs one job at a time.
#ifndef MESHIFT_CLI_RUN_AS_RANK_H_
#define MESHIFT_CLI_RUN_AS_RANK_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/execution_context.h"
#include "cli/io.h"
#include "comm/control/rank_exchange.h"

namespace meshift::cli {

inline constexpr const char* kNoMemory = "out of memory: the mesh, tensor or file is too large";

struct JobCall {
  std::string verb = {};  // for messages: "run"
  std::string engine;     // cli/engines.h; not "local"
  JobOptions options = {};
  // An error in this rank's arguments. If set, the rank starts no engine and only tells the others,
  // for which it waits at most 30 s.
  absl::Status arguments_error = absl::OkStatus();
  // The arguments that must be equal on all ranks.
  ArgumentTexts arguments = {};
};

// The command. `io` discards output except on rank 0. Returns the exit code.
using RankBody =
    std::function<absl::StatusOr<int>(RankJob* job, ExecutionContext* context, Io& io)>;

// Returns the exit code: that of the error if there is one, else the result of `body`, which must
// be equal on all ranks. In four cases the process ends inside this call, since destructors could
// wait for ranks that are gone: not all ranks join in time; another rank fails while this rank's
// work still runs; this rank has an error that others may not have; all ranks have an error with
// exit code 1. bad_alloc and system_error of `body` are errors; other exceptions leave this call.
// REQUIRES: call.engine is not "local"; CheckEngine() is OK, or `arguments_error` is an error.
int RunAsRank(const JobCall& call, const RankBody& body, Io& io);

// Prints `arguments_error`, an error in this process's arguments, as Fail does, and returns the
// exit code. In a job of several processes, unless `engine` is "local", it does so by RunAsRank:
// all ranks print the error, or rank 0 alone if all have it.
int FailAsRank(const std::string& engine, const absl::Status& arguments_error, Io& io);

// Tells the other ranks, if any, that this process ends because it is out of memory or threads. For
// handlers that run when the process cannot continue. If it is a joined rank, the process ends with
// exit code 1 a second later (SIGALRM), even if this call hangs. Else, or in a second call, does
// nothing.
void ReportExitReason(const char* reason);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RUN_AS_RANK_H_
