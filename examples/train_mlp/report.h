// Prints the losses of two trainings side by side, and checks that they agree.
#ifndef MESHIFT_EXAMPLES_TRAIN_MLP_REPORT_H_
#define MESHIFT_EXAMPLES_TRAIN_MLP_REPORT_H_

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace meshift {

// Returns an error if the losses differ by more than f32 sums in another order can, or if the loss
// does not fall.
inline absl::Status Report(const std::vector<float>& sharded, const std::vector<float>& alone) {
  constexpr float kTolerance = 1e-4F;  // relative; observed differences are 1e-6
  if (sharded.size() != alone.size() || alone.empty()) {
    return absl::InternalError(fmt::format("{} losses beside {}", sharded.size(), alone.size()));
  }
  fmt::print("step  sharded   alone\n");
  float apart = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    if (i % 10 == 0 || i + 1 == alone.size()) {
      fmt::print("{:4}  {:.6f}  {:.6f}\n", i, sharded[i], alone[i]);
    }
    apart = std::max(apart, std::abs(sharded[i] - alone[i]) / alone[i]);
  }
  if (!(apart <= kTolerance))
    return absl::InternalError(fmt::format("the losses are {} apart, relatively", apart));
  if (!(sharded.back() < sharded.front() / 2)) return absl::InternalError("the loss does not fall");
  fmt::print("the losses agree\n");
  return absl::OkStatus();
}

}  // namespace meshift

#endif  // MESHIFT_EXAMPLES_TRAIN_MLP_REPORT_H_
