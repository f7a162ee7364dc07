#include "comm/engine/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace meshift {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, a cache line
// 256 GiB. Larger requests fail here, since sanitizers' allocators would end the process.
constexpr int64_t kMaxAllocation = int64_t{1} << 38;
constexpr int64_t kHugePage = int64_t{2} << 20;
// Smaller allocations would waste most of a huge page.
constexpr int64_t kMinHuge = kHugePage / 4;

}  // namespace

HostMemory TryAllocateHost(int64_t bytes) {
  HostMemory memory;
  if (bytes > kMaxAllocation) return memory;
  const int64_t alignment = bytes < kMinHuge ? kAlignment : kHugePage;
  const int64_t rounded = RoundUp(std::max<int64_t>(bytes, 1), alignment);
  memory.reset(std::aligned_alloc(alignment, rounded));
#ifdef MADV_HUGEPAGE
  // Only advice: its failure does not matter.
  if (memory != nullptr && alignment == kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
#endif
  return memory;
}

absl::StatusOr<HostMemory> AllocateHost(int64_t bytes, int64_t rank) {
  if (bytes < 0) return InvalidArgument("cannot allocate {} bytes; expected at least 0", bytes);
  HostMemory memory = TryAllocateHost(bytes);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("rank {} cannot allocate {} bytes", rank, bytes));
  }
  return memory;
}

}  // namespace meshift
