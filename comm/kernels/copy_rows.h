// The inner loops of StridedCopy (copy.h) on the CPU: rows of contiguous runs, and transposed
// planes.
//
//   CopyRuns({.src = in, .src_stride = 256, .dst = out, .dst_stride = 64, .count = 8, .bytes = 64},
//            /*stream=*/false);
//
// Strides are in bytes. Addresses need no alignment; source and target must not overlap. Nothing is
// checked. Only x86-64 has the non-temporal stores below; other CPUs use ordinary ones. Safe for
// concurrent use. Internal to the CPU engines.
#ifndef MESHIFT_COMM_KERNELS_COPY_ROWS_H_
#define MESHIFT_COMM_KERNELS_COPY_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace meshift {

// `count` runs of `bytes` bytes; strides lead from one run to the next.
struct CopyRow {
  const char* src;
  int64_t src_stride;
  char* dst;
  int64_t dst_stride;
  int64_t count;
  int64_t bytes;
};

// Copies of at least this many bytes do not stay in a core's caches, so non-temporal stores, which
// bypass the caches, are faster.
inline constexpr int64_t kStreamBytes = int64_t{4} << 20;

// The same limit if a few cores share a cache of `cache_bytes` (0: unknown). The reader of a
// smaller copy still finds it in that cache. Measured: docs/benchmarks.md, "Executing over MPI".
inline int64_t StreamBytes(int64_t cache_bytes) { return std::max(kStreamBytes, cache_bytes / 32); }

// As memcpy. `stream`: uses non-temporal stores if the run is long enough, and then calls
// EndStreaming() itself.
void CopyRun(const char* src, char* dst, int64_t bytes, bool stream);

// Copies a row. `stream`: uses non-temporal stores; call EndStreaming() before another thread reads
// the data. REQUIRES with `stream`: runs of at least 64 bytes, as MayStream ensures.
void CopyRuns(const CopyRow& row, bool stream);
void EndStreaming();

// Whether non-temporal stores pay for runs of this address, stride (or the bitwise or of several)
// and length.
bool MayStream(const char* dst, int64_t dst_stride, int64_t bytes);

// A plane of rows x columns elements of 1, 2, 4, 8 or 16 bytes. Element (r, c) is copied from
// src + r * src_stride + c * bytes to dst + c * dst_stride + r * bytes.
struct TransposedPlane {
  const char* src;
  int64_t src_stride;
  char* dst;
  int64_t dst_stride;
  int64_t rows;
  int64_t columns;
  int64_t bytes;
};
void CopyTransposed(const TransposedPlane& plane);

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_COPY_ROWS_H_
