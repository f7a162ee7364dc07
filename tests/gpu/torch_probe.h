// The steps of nccl_probe that need PyTorch: the cost of its own all-reduce, and 500 calls of the
// engine on a communicator that it lends while its watchdog runs. The process becomes Python, which
// loads libtorch_lent.so from this program's folder.
#ifndef MESHIFT_TESTS_GPU_TORCH_PROBE_H_
#define MESHIFT_TESTS_GPU_TORCH_PROBE_H_

#include <string>

#include "absl/status/statusor.h"

namespace meshift {

// As ProbeStep::run, but they return only if Python (MESHIFT_PYTHON, else python3) cannot be
// started: it writes the result itself.
absl::StatusOr<std::string> ProbeTorchHost();
absl::StatusOr<std::string> ProbeLentBlocking();
absl::StatusOr<std::string> ProbeLentNonBlocking();
// On groups that the engine splits from the lent communicator.
absl::StatusOr<std::string> ProbeLentSplit();

// A Python program that exits with 1, and prints the reason, without PyTorch; with 2 if PyTorch
// sees no GPU.
std::string TorchFactsScript();

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_TORCH_PROBE_H_
