#include "planner/plan/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "planner/plan/workspace.h"

namespace meshift {
namespace {

int64_t BytesOf(DType dtype, int64_t elements) {
  const int bits = BitWidth(dtype);
  return bits < 8 ? elements / (8 / bits) : SaturatingMul(elements, bits / 8);
}

// The shortest piece of `extent` indices under ceil cuts: all pieces of a cut are alike but the
// last, and those before it that are empty with it.
int64_t LeastPiece(const DeviceMesh& mesh, int64_t extent, absl::Span<const int> cuts) {
  if (cuts.empty() || extent == 0) return extent;
  const int64_t n = mesh.dim(cuts[0]).size;
  const int64_t chunk = CeilDiv(extent, n);
  const int64_t last = extent - chunk * (n - 1);
  if (last <= 0) return 0;
  const absl::Span<const int> inner = cuts.subspan(1);
  const int64_t least = LeastPiece(mesh, chunk, inner);
  return last == chunk ? least : std::min(least, LeastPiece(mesh, last, inner));
}

}  // namespace

int64_t TensorBytes(const Sharding& sharding) {
  return BytesOf(sharding.dtype(), sharding.MaxLocalElements());
}

int64_t LeastTensorBytes(const Sharding& sharding) {
  int64_t elements = 1;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    const absl::Span<const int> cuts = sharding.CutsOf(k);
    int64_t least = sharding.shape()[k];
    if (!cuts.empty() && sharding.placement(cuts[0]).IsRagged()) {
      for (const int64_t size : sharding.placement(cuts[0]).sizes()) {
        least = std::min(least, LeastPiece(sharding.mesh(), size, cuts.subspan(1)));
      }
    } else {
      least = LeastPiece(sharding.mesh(), least, cuts);
    }
    elements = SaturatingMul(elements, least);
  }
  return BytesOf(sharding.dtype(), elements);
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
                  is_least ? fmt::format("the least that would do is {}", least)
                           : fmt::format("{} would do, though less might", least),
                  tensors, least_workspace));
}

}  // namespace meshift
