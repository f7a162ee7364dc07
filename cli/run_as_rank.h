// What a verb does as one rank of a job of processes: starts, compares what the ranks were asked
// for, runs, and ends so that all ranks say why where one cannot go on.
//
//   JobCall call{.verb = "run", .engine = "mpi", .asked = {"--repeat 3"}};
//   return RunAsRank(call, [&](RankJob* job, Site* site, Io& own) { ... }, io);
//
// An error that all ranks have alike is printed by rank 0. Any other is printed by all, and names
// the rank that has it. No rank ends before the others have had the time to print it, since mpirun
// ends all as soon as one has left with an error.
#ifndef MESHIFT_CLI_RUN_AS_RANK_H_
#define MESHIFT_CLI_RUN_AS_RANK_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/io.h"
#include "cli/meeting.h"
#include "cli/site.h"

namespace meshift::cli {

inline constexpr const char* kNoMemory =
    "memory could not be had; mesh, tensor or file are too large for it";

struct JobCall {
  std::string verb = {};
  std::string engine;
  JobOptions options = {};
  // What is wrong with this rank's arguments: it starts no engine, and only tells the others.
  absl::Status wrong = absl::OkStatus();
  // What all ranks must have been asked for alike.
  AskedFor asked = {};
};

// Prints to `io`, which goes nowhere but on rank 0; returns the exit code.
using RankBody = std::function<absl::StatusOr<int>(RankJob* job, Site* site, Io& io)>;

// The exit code, equal on all ranks; where the job has failed the process ends in here, since
// destructors may wait for ranks that are gone. REQUIRES: CheckEngine, or an error in `wrong`.
int RunAsRank(const JobCall& call, const RankBody& body, Io& io);

// Prints `wrong`, an error in this process's arguments, as Fail does. Where the process is a rank
// of a job, and `engine` one whose ranks are processes, all its ranks do.
int FailAsRank(const std::string& engine, const absl::Status& wrong, Io& io);

// Tells the other ranks, if there are any, that this process ends for want of something; for
// handlers that run when it cannot go on. Returns after a second at most.
void TellLastWords(const char* reason);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RUN_AS_RANK_H_
