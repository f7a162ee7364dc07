// Allocates host memory, for engines that run on the CPU: at most 256 GiB in one piece, with
// unspecified contents. Safe for concurrent use.
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

// At least 64-byte aligned; null if the C library refuses, or for more than 256 GiB. A kernel that
// overcommits may refuse only later, and then ends the process. From 512 KiB on it requests huge
// pages on Linux (madvise): a copy from another process's memory looks up each page, which with
// small pages takes as long as the copy itself. REQUIRES: bytes >= 0.
HostMemory TryAllocateHost(int64_t bytes);

// As above, but never null; for Engine::Allocate. INVALID_ARGUMENT: `bytes` is negative;
// RESOURCE_EXHAUSTED: TryAllocateHost() returns null; the message names `rank`.
absl::StatusOr<HostMemory> AllocateHost(int64_t bytes, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_HOST_MEMORY_H_
