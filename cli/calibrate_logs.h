// `meshift calibrate --from-nccl-tests`: the numbers of a topology from output of nccl-tests.
//
//   meshift calibrate --from-nccl-tests all_reduce.log alltoall.log --format json > cluster.json
//   meshift plan --topology cluster.json ...
//
// Domains are those of --topology. A preset's are the GPUs of a host as the logs list them, unless
// the preset's span nodes, or fewer GPUs than that of one host were measured.
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

// One row of a log, out of place.
struct LogTime {
  NcclTestsOp op = NcclTestsOp::kAllReduce;
  int64_t ranks = 0;
  int64_t bytes = 0;  // as nccl-tests counts them
  Observation observation;
};

struct LogTimes {
  Topology structure = Topology::Flat();
  std::vector<LogTime> times;         // at least one
  std::vector<std::string> left_out;  // what does not count, and why: a line each
};

// Reads logs ("-" is io.in; "all_gather=FILE" says which collective it is) and the structure that
// `topology` and the logs' hosts give; nullopt is "h100". Errors are those of BadFile (cli/io.h) or
// INVALID_ARGUMENT. Linear in the logs.
absl::StatusOr<LogTimes> ReadLogTimes(const std::vector<std::string>& logs,
                                      const std::optional<std::string>& topology, Io& io);

// The lines "# error: ..." of the text form, of all and of those from 4 MiB on: `times` are pairs
// of measured and fitted ns, with their bytes.
struct FittedTime {
  int64_t bytes = 0;
  int64_t measured_ns = 0;
  int64_t fitted_ns = 0;
};
std::string ErrorLines(const std::vector<FittedTime>& times);

// Prints each row beside the fitted model's time, the errors, what was left out, and the topology;
// with format "json" the topology alone. Returns the exit code.
int CalibrateFromLogs(const std::vector<std::string>& logs,
                      const std::optional<std::string>& topology, const std::string& format,
                      Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CALIBRATE_LOGS_H_
