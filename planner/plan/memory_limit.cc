#include "planner/plan/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/checked_math.h"
#include "base/status.h"
#include "placement/cuts.h"
#include "planner/plan/workspace.h"

namespace meshift {

int64_t TensorBytes(const Sharding& sharding) {
  return SaturatingBytes(sharding.dtype(), sharding.MaxLocalElements());
}

int64_t LeastTensorBytes(const Sharding& sharding) {
  if (sharding.HasAt()) return 0;
  int64_t elements = 1;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    const Lengths lengths = PieceLengths(sharding.shape()[k], CutsOf(sharding, k).All());
    elements = SaturatingMul(elements, lengths.back());
  }
  return SaturatingBytes(sharding.dtype(), elements);
}

TensorMemory::TensorMemory(const Sharding& from, const Sharding& to, Buffers b)
    : source(TensorBytes(from)),
      target(TensorBytes(to)),
      together(b == Buffers::kOne ? std::max(source, target) : SaturatingAdd(source, target)),
      buffers(b) {
  if (buffers == Buffers::kOne) copied = AlignedPiece(std::min(source, target));
  if (buffers == Buffers::kConsumed && from.mesh() == to.mesh()) {
    scratch = LeastTensorBytes(from) / kPieceAlignment * kPieceAlignment;
  }
}

absl::StatusOr<int64_t> TensorMemory::WorkspaceLimit(int64_t max_memory) const {
  if (max_memory < 0) return InvalidArgument("a max_memory of {} is below 0", max_memory);
  return max_memory - together;
}

absl::Status TensorMemory::Refusal(int64_t max_memory, int64_t least_workspace,
                                   bool is_least) const {
  const std::string tensors =
      buffers == Buffers::kOne
          ? fmt::format("source {} and target {} in one buffer", source, target)
          : fmt::format("{}source {}, target {}", buffers == Buffers::kConsumed ? "consumed " : "",
                        source, target);
  const int64_t least = SaturatingAdd(together, least_workspace);
  return absl::ResourceExhaustedError(
      fmt::format("max_memory is {} bytes per rank; {}: {}, workspace {}", max_memory,
                  is_least ? fmt::format("the smallest sufficient value is {}", least)
                           : fmt::format("{}, or perhaps less, is sufficient", least),
                  tensors, least_workspace));
}

}  // namespace meshift
