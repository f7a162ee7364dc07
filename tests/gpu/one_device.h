// Ranks that share one device, each a process. NCCL takes two ranks with one device for a mistake
// unless they seem to be on different hosts: each has an NCCL_HOSTID of its own, and all talk
// through sockets on the loopback interface.
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

// A port that was free a moment ago, below those that the kernel gives to connections.
absl::StatusOr<int> FreePort();

struct OneDeviceRank {
  int rank = 0;
  int ranks = 2;
  int port = 0;
  int max_ctas = 1;              // all ranks' kernels have to fit on the device at once
  bool batch_invariant = false;  // as `meshift env --profile batch-invariant`, without plugins
  std::string folder;            // for NCCL's own log, nccl.rank<r>
};

// torchrun's variables and NCCL's, each as NAME=value. /etc/nccl.conf counts for what is not here.
std::vector<std::string> OneDeviceEnvironment(const OneDeviceRank& rank);

// How variables begin that somebody has set for other runs.
std::vector<std::string> OneDeviceLeftOut();

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_ONE_DEVICE_H_
