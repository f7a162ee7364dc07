// `meshift calibrate`: the numbers of the cost model, from times that an engine takes here, or from
// output of nccl-tests.
//
//   mpirun -n 16 meshift calibrate --engine mpi --topology nvlink=8 --format json > cluster.json
//   meshift plan --topology cluster.json ...
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
  std::optional<std::string> topology;  // which ranks share a domain; none: all are alike
  std::optional<int64_t> ranks;         // of the local engine
  std::string max_bytes = "16MiB";      // of a rank's largest tensor
  int64_t repeat = 20;                  // runs of each probe, of which the fastest counts
  std::string format = "text";          // or "json": nothing but the topology
  std::optional<int64_t> timeout;       // seconds; none: MESHIFT_TIMEOUT_S, or 10 minutes
  std::vector<std::string> logs;        // of nccl-tests; none: an engine is timed
};

// Prints the probes (meshift/calibration.h) with the time of each and what the fitted
// model says of it, how far it is off, then the topology as --topology takes it.
// cli/calibrate_logs.h says what is printed of logs.
int CalibrateCommand(const CalibrateFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_CALIBRATE_COMMAND_H_
