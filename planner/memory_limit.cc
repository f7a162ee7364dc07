#include "planner/memory_limit.h"

#include <fmt/format.h>

#include "base/checked_math.h"
#include "base/status.h"
#include "placement/dtype.h"

namespace meshift {

int64_t TensorBytes(const Sharding& sharding) {
  const int bits = BitWidth(sharding.dtype());
  const int64_t elements = sharding.MaxLocalElements();
  return bits < 8 ? elements / (8 / bits) : SaturatingMul(elements, bits / 8);
}

int64_t TensorBytes(const Sharding& from, const Sharding& to) {
  return SaturatingAdd(TensorBytes(from), TensorBytes(to));
}

absl::StatusOr<int64_t> WorkspaceLimit(const Sharding& from, const Sharding& to,
                                       int64_t max_memory) {
  if (max_memory < 0) return InvalidArgument("a max_memory of {} is below 0", max_memory);
  return max_memory - TensorBytes(from, to);
}

absl::Status MemoryRefusal(const Sharding& from, const Sharding& to, int64_t max_memory,
                           int64_t least_workspace) {
  return absl::ResourceExhaustedError(fmt::format(
      "max_memory is {} bytes per rank; the least that would do is {}: source {}, target {}, "
      "workspace {}",
      max_memory, SaturatingAdd(TensorBytes(from, to), least_workspace), TensorBytes(from),
      TensorBytes(to), least_workspace));
}

}  // namespace meshift
