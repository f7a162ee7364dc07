// The steps of nccl_probe: what NCCL and the driver do on this device that no stand-in can tell.
//
//   for (const ProbeStep& step : ProbeSteps()) ...
//   MESHIFT_ASSIGN_OR_RETURN(std::string says, step.run());   // in each rank's process
#ifndef MESHIFT_TESTS_GPU_PROBE_STEPS_H_
#define MESHIFT_TESTS_GPU_PROBE_STEPS_H_

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace meshift {

struct ProbeStep {
  std::string_view name;  // "capture"
  int ranks = 2;
  std::chrono::seconds limit = std::chrono::seconds(10);
  // Of OneDeviceRank.
  int max_ctas = 1;
  bool batch_invariant = false;
  bool torch = false;    // needs a Python with PyTorch and CUDA
  int killed_rank = -1;  // that ends itself by SIGKILL
  // As the rank that torchrun's variables say. What rank 0 returns is printed; UNIMPLEMENTED: the
  // step cannot be done here, and why.
  absl::StatusOr<std::string> (*run)() = nullptr;
};

// In the order in which they run.
absl::Span<const ProbeStep> ProbeSteps();

// The sums that `values` have in f32, added in any order and by any tree; sorted, each once.
std::vector<float> PossibleSums(const std::vector<float>& values);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_PROBE_STEPS_H_
