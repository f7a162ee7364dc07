// `meshift calibrate --from-nccl-tests`: fits the numbers of a topology to output of nccl-tests.
//
//   meshift calibrate --from-nccl-tests all_reduce.log alltoall.log --format json > cluster.json
//   meshift plan --topology cluster.json ...
//
// --topology gives the domains. A preset is a name such as "h100"; "flat" and a preset with an .xml
// file do not count here. With a preset a host of the logs becomes a domain, with two exceptions:
// the preset's domains span nodes, or each log is of one host that is no larger than a domain. With
// any preset, logs of several hosts are refused if the hosts differ in size, or if a host's ranks
// are not consecutive. Rows with wrong values, rows that NCCL's own output breaks, and collectives
// that plans do not use are left out; text output reports them, JSON does not. Logs that then have
// no time are refused. A log of one rank, or of an unknown number, is refused too, and so are more
// than kMaxNcclTestsRows rows (cli/nccl_tests_log.h) of the collectives that plans use.
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
  Topology structure = Topology::Flat();  // with the domains, not yet fitted
  std::vector<LogTime> times;             // at least one
  std::vector<std::string>
      left_out;  // "a.log: 3 rows with wrong values": the rows that are ignored, and the reason
};

// Reads logs ("-" is io.in; "all_gather=FILE" names the collective) and builds the structure from
// `topology` (nullopt: "h100") and the logs' hosts. Errors are those of BadFile (cli/io.h) or
// INVALID_ARGUMENT. Takes time linear in the size of the logs. REQUIRES: at least one log.
absl::StatusOr<LogTimes> ReadLogTimes(const std::vector<std::string>& logs,
                                      const std::optional<std::string>& topology, Io& io);

struct FittedTime {
  int64_t bytes = 0;
  int64_t measured_ns = 0;
  int64_t fitted_ns = 0;
};
// The lines "# error of 40 times in all: median 4.1 %, worst 20.0 %" and "... from 4 MiB on: ...";
// a line is left out if it has no times.
std::string ErrorLines(const std::vector<FittedTime>& times);

// Prints each row with the fitted model's time, the errors, the ignored rows and the topology; with
// format "json" only the topology. Returns the exit code (cli/io.h). REQUIRES: at least one log.
int CalibrateFromLogs(const std::vector<std::string>& logs,
                      const std::optional<std::string>& topology, const std::string& format,
                      Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CALIBRATE_LOGS_H_
