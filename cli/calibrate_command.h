// `meshift calibrate`: fits the numbers of the cost model to times that an engine takes here, or to
// output of nccl-tests (cli/calibrate_logs.h). With --format json it prints a topology that
// --topology reads.
//
//   mpirun -n 16 meshift calibrate --engine mpi --topology nvlink=8 --format json > cluster.json
//   meshift plan --topology cluster.json ...
//
// It does not detect domains of an engine: --topology gives them. With --engine mpi or nccl this
// process is one rank of a job; with --engine local all ranks are in it, and the links are copies
// in memory.
#ifndef MESHIFT_CLI_CALIBRATE_COMMAND_H_
#define MESHIFT_CLI_CALIBRATE_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/io.h"

namespace meshift::cli {

struct CalibrateFlags {
  std::string engine = "local";         // cli/engines.h
  std::optional<std::string> topology;  // which ranks share a domain; none: flat, for logs h100
  std::optional<int64_t> ranks;         // of the local engine, refused for others; none: 8
  std::string max_bytes = "16MiB";      // of a rank's largest tensor
  int64_t repeat = 20;                  // timed runs of each probe, 1 or more; the fastest counts
  std::string format = "text";          // or "json": nothing but the topology
  std::optional<int64_t> timeout;       // seconds; none: MESHIFT_TIMEOUT_S, or 10 minutes
  std::vector<std::string> logs;        // of nccl-tests; none: an engine is timed
};

// Prints each probe (meshift/calibration.h) with its measured time, the fitted model's time and
// their ratio, then the errors and the topology; with format "json" only the topology. With logs it
// does what CalibrateFromLogs (cli/calibrate_logs.h) does, and reads no other flag but topology and
// format. Returns the exit code (cli/io.h).
int CalibrateCommand(const CalibrateFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CALIBRATE_COMMAND_H_
