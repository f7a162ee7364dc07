// Memory of the host, for engines whose ranks are there.
//
//   MESHIFT_ASSIGN_OR_RETURN(HostMemory memory, AllocateHost(bytes, rank_));
#ifndef MESHIFT_COMM_ENGINE_HOST_MEMORY_H_
#define MESHIFT_COMM_ENGINE_HOST_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/statusor.h"

namespace meshift {

struct HostMemoryFree {
  void operator()(void* data) const { std::free(data); }
};
using HostMemory = std::unique_ptr<void, HostMemoryFree>;

// 64-byte aligned, contents unspecified; null where there is no more. From 512 KiB on in huge pages
// where the system has them for who asks: what one process takes from another's memory is looked up
// page by page, which takes as long as the copy.
// REQUIRES: bytes >= 0.
HostMemory TryAllocateHost(int64_t bytes);

// As Engine::Allocate wants it: as above, but never null.
// INVALID_ARGUMENT: `bytes` are negative; RESOURCE_EXHAUSTED: there is no more, which names `rank`.
absl::StatusOr<HostMemory> AllocateHost(int64_t bytes, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_HOST_MEMORY_H_
