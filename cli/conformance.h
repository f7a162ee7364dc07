// `meshift run --conformance`: runs the redistributions that every engine must get right
// (testing/conformance_cases.h). Prints a table of counts (cases, runs, failures) and the first
// failure. There may be fewer cases than flags.cases.
//
//   mpirun -n 8 meshift run --engine mpi --conformance
//
// Returns exit code 1 if a case fails, an error if a run cannot be made.
#ifndef MESHIFT_CLI_CONFORMANCE_H_
#define MESHIFT_CLI_CONFORMANCE_H_

#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/io.h"
#include "cli/run_command.h"

namespace meshift::cli {

// Runs as one rank of a job, and prints to `io` on each. Collective; the result is the same on all
// ranks. INVALID_ARGUMENT: the job has one rank. REQUIRES: the job's engine is started.
absl::StatusOr<int> RunConformance(const RunFlags& flags, RankJob* job, Io& io);
// Runs on the local engine, with a thread per rank. REQUIRES: flags.ranks is from 2 to 64, or none.
absl::StatusOr<int> RunLocalConformance(const RunFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CONFORMANCE_H_
