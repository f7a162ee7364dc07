// The steps of nccl_probe: properties of NCCL and the driver that only a real device shows.
//
//   for (const ProbeStep& step : ProbeSteps()) ...
//   MESHIFT_ASSIGN_OR_RETURN(std::string text, step.run());   // in each rank's process
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
  // For OneDeviceRank.
  int max_ctas = 1;
  bool batch_invariant = false;
  bool torch = false;    // needs a Python with PyTorch and CUDA
  int killed_rank = -1;  // a rank that kills itself with SIGKILL
  // Runs as the rank that torchrun's variables give. Rank 0's result is printed. UNIMPLEMENTED: the
  // step cannot run here, with the reason.
  absl::StatusOr<std::string> (*run)() = nullptr;
};

// All steps, in order.
absl::Span<const ProbeStep> ProbeSteps();

// All sums of `values` in f32, for any order and any tree of additions; sorted and distinct.
std::vector<float> PossibleSums(const std::vector<float>& values);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_PROBE_STEPS_H_
