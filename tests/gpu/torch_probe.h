// The steps of nccl_probe that need PyTorch: the cost of its own all-reduce, and 1,000 calls of the
// engine on a communicator that it lends while its watchdog runs. PyTorch runs in this process: the
// interpreter's shared library is loaded, as in a program that embeds Python.
#ifndef MESHIFT_TESTS_GPU_TORCH_PROBE_H_
#define MESHIFT_TESTS_GPU_TORCH_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

// As ProbeStep::run. On success the first does not return: the process becomes Python, which writes
// the result itself.
absl::StatusOr<std::string> ProbeTorchHost();
absl::StatusOr<std::string> ProbeLentBlocking();
absl::StatusOr<std::string> ProbeLentNonBlocking();

// A Python program that prints the facts that the steps need: "torch 2.11.0", then the
// interpreter's shared library or an empty line, its home, and its path. Exits with 1 without
// PyTorch, and with 2 if PyTorch sees no GPU.
std::string TorchFactsScript();

// The environment variables that give the steps a Python.
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
