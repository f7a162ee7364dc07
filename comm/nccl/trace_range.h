// An NVTX range: NVIDIA's tools, such as Nsight Systems, show the time from its construction to its
// destruction on this thread. Without a tool it costs two loads and branches, after the first range
// of the process; without NVTX's header it does nothing.
//
//   const TraceRange range("meshift:a[0-3]");
//
// The thread that makes a range destroys it, the last one first. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_TRACE_RANGE_H_
#define MESHIFT_COMM_NCCL_TRACE_RANGE_H_

// Part of the CUDA toolkit, but some installations do not have it.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MESHIFT_HAS_NVTX 1
#else
#define MESHIFT_HAS_NVTX 0
#endif

namespace meshift {

class TraceRange {
 public:
#if MESHIFT_HAS_NVTX
  explicit TraceRange(const char* name) {
    // NVTX replaces its function pointers in its first call, which is a race if threads read them.
    [[maybe_unused]] static const bool is_ready = (nvtxInitialize(nullptr), true);
    nvtxRangePushA(name);
  }
  ~TraceRange() { nvtxRangePop(); }
#else
  explicit TraceRange(const char*) {}
#endif
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_TRACE_RANGE_H_
