#include "comm/kernels/copy_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/kernels/simd.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace meshift {
namespace {

// A type of kBytes bytes for unaligned loads and stores.
// NOLINTBEGIN(modernize-use-using): attributes that depend on a parameter
template <int kBytes>
struct Chunk {
  typedef int64_t Type __attribute__((vector_size(kBytes), aligned(1), may_alias));
};
template <>
struct Chunk<8> {
  typedef int64_t Type __attribute__((aligned(1), may_alias));
};
template <>
struct Chunk<4> {
  typedef int32_t Type __attribute__((aligned(1), may_alias));
};
template <>
struct Chunk<2> {
  typedef int16_t Type __attribute__((aligned(1), may_alias));
};
template <>
struct Chunk<1> {
  typedef int8_t Type __attribute__((may_alias));
};
// NOLINTEND(modernize-use-using)

template <int kBytes>
MESHIFT_INLINE inline void Move(const char* src, char* dst) {
  using Type = typename Chunk<kBytes>::Type;
  *reinterpret_cast<Type*>(dst) = *reinterpret_cast<const Type*>(src);
}

// Copies a run of at least kBytes. The last chunk may overlap the one before it.
template <int kBytes>
MESHIFT_INLINE inline void MoveRun(const char* src, char* dst, int64_t bytes) {
  int64_t done = 0;
  for (; done + kBytes <= bytes; done += kBytes) Move<kBytes>(src + done, dst + done);
  if (done < bytes) Move<kBytes>(src + bytes - kBytes, dst + bytes - kBytes);
}

constexpr int64_t kLine = 64;  // bytes of a cache line

// Writes a whole cache line at `dst`, which is aligned to it; on x86-64 without reading the line
// first.
template <typename Level>
MESHIFT_INLINE inline void StreamLine(const char* src, char* dst) {
#ifdef __x86_64__
  if constexpr (Level::kLevel == SimdLevel::kAvx512) {
    // In assembly: the intrinsic cannot be inlined into a template that has no target attribute.
    asm volatile("vmovdqu64 (%0), %%zmm0\n\tvmovntdq %%zmm0, (%1)"
                 :
                 : "r"(src), "r"(dst)
                 : "xmm0", "memory");
    return;
  }
  for (int64_t i = 0; i < kLine; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i)));
  }
#else
  Move<kLine>(src, dst);
#endif
}

template <typename Level>
MESHIFT_INLINE inline void StreamRun(const char* src, char* dst, int64_t bytes) {
  const int64_t head = -reinterpret_cast<intptr_t>(dst) & (kLine - 1);
  if (head > 0) Move<kLine>(src, dst);  // bytes after the head are written again below
  int64_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    StreamLine<Level>(src + done, dst + done);
  }
  if (done < bytes) Move<kLine>(src + bytes - kLine, dst + bytes - kLine);
}

template <int kBytes>
void MoveRuns(CopyRow row) {
  RunAtBestSimdLevel([row](auto) MESHIFT_INLINE {
    for (int64_t i = 0; i < row.count; ++i) {
      MoveRun<kBytes>(row.src + i * row.src_stride, row.dst + i * row.dst_stride, row.bytes);
    }
  });
}

template <int kBytes>
void MoveElements(CopyRow row) {
  for (int64_t i = 0; i < row.count; ++i) {
    Move<kBytes>(row.src + i * row.src_stride, row.dst + i * row.dst_stride);
  }
}

// Runs of at least this many bytes are copied by memcpy.
constexpr int64_t kLongRun = 4096;

// Transposes one tile: reads lines of the source into a buffer, then writes lines of the target.
// Rows and Columns are compile-time constants for full tiles.
template <typename T, int64_t kTile, typename Rows, typename Columns>
MESHIFT_INLINE inline void TransposeTile(const char* src, int64_t src_stride, char* dst,
                                         int64_t dst_stride, Rows rows, Columns columns) {
  T tile[kTile][kTile + 1];
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(tile[r], src + r * src_stride, columns * sizeof(T));
  }
  for (int64_t c = 0; c < columns; ++c) {
    char* line = dst + c * dst_stride;
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(line + r * sizeof(T), &tile[r][c], sizeof(T));
    }
  }
}

template <typename T>
void TransposePlane(const TransposedPlane& plane) {
  // Tiles have whole cache lines of both sides (of bytes, half lines), and fit into the first-level
  // cache.
  constexpr int64_t kTile = sizeof(T) >= 4 ? 16 : 32;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  constexpr std::integral_constant<int64_t, kTile> kFull;
  for (int64_t r = 0; r < plane.rows; r += kTile) {
    const int64_t rows = std::min(kTile, plane.rows - r);
    for (int64_t c = 0; c < plane.columns; c += kTile) {
      const int64_t columns = std::min(kTile, plane.columns - c);
      const char* src = plane.src + r * plane.src_stride + c * kBytes;
      char* dst = plane.dst + c * plane.dst_stride + r * kBytes;
      if (rows == kTile && columns == kTile) {
        TransposeTile<T, kTile>(src, plane.src_stride, dst, plane.dst_stride, kFull, kFull);
      } else {
        TransposeTile<T, kTile>(src, plane.src_stride, dst, plane.dst_stride, rows, columns);
      }
    }
  }
}

struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

}  // namespace

bool MayStream(const char* dst, int64_t dst_stride, int64_t bytes) {
  // Runs that do not consist of whole cache lines still read the lines at their ends, so they must
  // be longer.
  const bool whole_lines = ((reinterpret_cast<intptr_t>(dst) | dst_stride | bytes) & 63) == 0;
  return bytes >= (whole_lines ? 2 * kLine : 64 * kLine);
}

void EndStreaming() {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

void CopyRun(const char* src, char* dst, int64_t bytes, bool stream) {
  if (bytes == 0) return;
  if (!stream || !MayStream(dst, 0, bytes)) {
    std::memcpy(dst, src, bytes);
    return;
  }
  RunAtBestSimdLevel([=](auto level)
                         MESHIFT_INLINE { StreamRun<decltype(level)>(src, dst, bytes); });
  EndStreaming();
}

void CopyRuns(const CopyRow& row, bool stream) {
  if (stream) {
    RunAtBestSimdLevel([row](auto level) MESHIFT_INLINE {
      for (int64_t i = 0; i < row.count; ++i) {
        StreamRun<decltype(level)>(row.src + i * row.src_stride, row.dst + i * row.dst_stride,
                                   row.bytes);
      }
    });
    return;
  }
  if (row.bytes >= kLongRun) {
    for (int64_t i = 0; i < row.count; ++i) {
      std::memcpy(row.dst + i * row.dst_stride, row.src + i * row.src_stride, row.bytes);
    }
    return;
  }
  switch (row.bytes) {
    case 1:
      return MoveElements<1>(row);
    case 2:
      return MoveElements<2>(row);
    case 4:
      return MoveElements<4>(row);
    case 8:
      return MoveElements<8>(row);
    case 16:
      return MoveElements<16>(row);
    default:
      break;
  }
  if (row.bytes >= 64) return MoveRuns<64>(row);
  if (row.bytes >= 32) return MoveRuns<32>(row);
  if (row.bytes >= 16) return MoveRuns<16>(row);
  if (row.bytes >= 8) return MoveRuns<8>(row);
  if (row.bytes >= 4) return MoveRuns<4>(row);
  MoveRuns<2>(row);  // 3
}

void CopyTransposed(const TransposedPlane& plane) {
  switch (plane.bytes) {
    case 1:
      return TransposePlane<uint8_t>(plane);
    case 2:
      return TransposePlane<uint16_t>(plane);
    case 4:
      return TransposePlane<uint32_t>(plane);
    case 8:
      return TransposePlane<uint64_t>(plane);
    default:
      return TransposePlane<Bytes16>(plane);
  }
}

}  // namespace meshift
