#include "comm/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"

namespace meshift {
namespace {

constexpr int64_t kAlignment = 64;
// Far beyond any machine; keeps sanitizers' allocators from ending the process.
constexpr int64_t kMaxAllocation = int64_t{1} << 38;

}  // namespace

absl::StatusOr<HostMemory> AllocateHost(int64_t bytes, int64_t rank) {
  if (bytes < 0) return InvalidArgument("{} bytes to allocate are negative", bytes);
  HostMemory memory;
  if (bytes <= kMaxAllocation) {
    memory.reset(std::aligned_alloc(kAlignment, RoundUp(std::max<int64_t>(bytes, 1), kAlignment)));
  }
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("rank {} cannot allocate {} bytes", rank, bytes));
  }
  return memory;
}

}  // namespace meshift
