// `meshift calibrate --from-nccl-tests`: fits the numbers of a topology to output of nccl-tests.
//
//   meshift calibrate --from-nccl-tests all_reduce.log alltoall.log --format json > cluster.json
//   meshift plan --topology cluster.json ...
//
// --topology gives the domains. For a preset, a domain is a host of the logs, unless the preset's
// domains span nodes, or the logs measure fewer GPUs of one host than a domain has.
#ifndef MESHIFT_CLI_CALIBRATE_LOGS_H_
#define MESHIFT_CLI_CALIBRATE_LOGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "cli/nccl_tests_op.h"
#include "meshift/topology.h"
#include "planner/calibration/fit.h"

namespace meshift::cli {

// One out-of-place row of a log.
struct LogTime {
  NcclTestsOp op = NcclTestsOp::kAllReduce;
  int64_t ranks = 0;
  int64_t bytes = 0;  // as nccl-tests counts them
  Observation observation;
};

struct LogTimes {
  Topology structure = Topology::Flat();
  std::vector<LogTime> times;  // at least one
  std::vector<std::string>
      left_out;  // rows and logs that were ignored, a line with the reason each
};

// Reads logs ("-" is io.in; "all_gather=FILE" names the collective) and builds the structure from
// `topology` (nullopt: "h100") and the logs' hosts. Errors are those of BadFile (cli/io.h) or
// INVALID_ARGUMENT. Takes time linear in the size of the logs.
absl::StatusOr<LogTimes> ReadLogTimes(const std::vector<std::string>& logs,
                                      const std::optional<std::string>& topology, Io& io);

// The lines "# error: ..." of the text form: one for all times, one for those of 4 MiB or more.
struct FittedTime {
  int64_t bytes = 0;
  int64_t measured_ns = 0;
  int64_t fitted_ns = 0;
};
std::string ErrorLines(const std::vector<FittedTime>& times);

// Prints each row with the fitted model's time, the errors, the ignored rows and the topology; with
// format "json" only the topology. Returns the exit code.
int CalibrateFromLogs(const std::vector<std::string>& logs,
                      const std::optional<std::string>& topology, const std::string& format,
                      Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CALIBRATE_LOGS_H_
