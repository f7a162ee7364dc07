// `meshift run --conformance`: runs the redistributions that every engine must get right
// (testing/conformance_cases.h) and prints a table of the failures.
#ifndef MESHIFT_CLI_CONFORMANCE_H_
#define MESHIFT_CLI_CONFORMANCE_H_

#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/io.h"
#include "cli/run_command.h"

namespace meshift::cli {

// Runs as one rank of a job; the exit code is the same on all ranks.
absl::StatusOr<int> RunConformance(const RunFlags& flags, RankJob* job, Io& io);
// Runs on the local engine, with a thread per rank.
absl::StatusOr<int> RunLocalConformance(const RunFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CONFORMANCE_H_
