// The inner loops of StridedCopy: rows of runs, and planes that are transposed.
#ifndef MESHIFT_COMM_KERNELS_COPY_ROWS_H_
#define MESHIFT_COMM_KERNELS_COPY_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace meshift {

// `count` runs of `bytes` bytes; the addresses advance by the strides, in bytes.
struct CopyRow {
  const char* src;
  int64_t src_stride;
  char* dst;
  int64_t dst_stride;
  int64_t count;
  int64_t bytes;
};

// What copies that many bytes does not stay in a core's caches, and is better written past them.
inline constexpr int64_t kStreamBytes = int64_t{4} << 20;

// Likewise where a few cores share a cache of so many bytes (0: not known), in which who reads a
// smaller copy next finds it. Measured: docs/benchmarks.md, "Executing over MPI".
inline int64_t StreamBytes(int64_t cache_bytes) { return std::max(kStreamBytes, cache_bytes / 32); }

// As memcpy. `stream`: past the caches, where the run is long enough to gain from it.
void CopyRun(const char* src, char* dst, int64_t bytes, bool stream);

// Copies a row. `stream`: what is written goes past the caches, as it should where it is too much
// to stay there; EndStreaming() then has to follow before another thread may read it.
void CopyRuns(const CopyRow& row, bool stream);
void EndStreaming();

// Whether rows of these runs gain from `stream`.
bool MayStream(const char* dst, int64_t dst_stride, int64_t bytes);

// rows x columns elements of 1, 2, 4, 8 or 16 bytes: element (r, c) is at src + r * src_stride +
// c * bytes in the source, and at dst + c * dst_stride + r * bytes in the target.
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
