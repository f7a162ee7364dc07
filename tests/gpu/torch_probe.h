// The steps of nccl_probe that need PyTorch: what its own all-reduce costs, and 1,000 calls of the
// engine on a communicator that it lends while its watchdog runs. PyTorch runs in this process: the
// interpreter's shared library is loaded, as a program that embeds Python does.
#ifndef MESHIFT_TESTS_GPU_TORCH_PROBE_H_
#define MESHIFT_TESTS_GPU_TORCH_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

// As ProbeStep::run. The first does not return where it works: the process becomes Python, and
// writes the result itself.
absl::StatusOr<std::string> ProbeTorchHost();
absl::StatusOr<std::string> ProbeLentBlocking();
absl::StatusOr<std::string> ProbeLentNonBlocking();

// A program that prints what the steps need to know of a Python: "torch 2.11.0", then its shared
// library or an empty line, its home, and its path. Ends with 1 where there is no PyTorch, with 2
// where that sees no GPU.
std::string TorchFactsScript();

// The variables by which the steps find a Python.
struct PythonFacts {
  std::string program;  // MESHIFT_PYTHON, else python3
  std::string torch;
  std::string library;
  std::string home;
  std::string path;

  std::vector<std::string> Environment() const;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_TORCH_PROBE_H_
