// Runs ranks that share one device, each in a process. NCCL rejects two ranks on one device unless
// they seem to be on different hosts, so each has its own NCCL_HOSTID, and all use sockets on the
// loopback interface.
//
//   MESHIFT_ASSIGN_OR_RETURN(const int port, FreePort());
//   specs.push_back({argv, OneDeviceEnvironment({.rank = 0, .ranks = 2, .port = port}), log,
//                    OneDeviceLeftOut()});
#ifndef MESHIFT_TESTS_GPU_ONE_DEVICE_H_
#define MESHIFT_TESTS_GPU_ONE_DEVICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

// A currently free port, below the range that the kernel assigns to connections.
absl::StatusOr<int> FreePort();

struct OneDeviceRank {
  int rank = 0;
  int ranks = 2;
  int port = 0;
  int max_ctas = 1;              // all ranks' kernels must fit on the device at once
  bool batch_invariant = false;  // as `meshift env --profile batch-invariant`, without plugins
  std::string folder;            // receives NCCL's own log, nccl.rank<r>
};

// torchrun's variables and NCCL's, each as NAME=value. /etc/nccl.conf sets the others.
std::vector<std::string> OneDeviceEnvironment(const OneDeviceRank& rank);

// Prefixes of variables that may be set for other runs and must be removed.
std::vector<std::string> OneDeviceLeftOut();

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_ONE_DEVICE_H_
