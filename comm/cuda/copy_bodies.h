// The bodies of the two CUDA kernels that copy strided boxes, kCopyBoxesEntry and
// kTransposeBoxesEntry. kernel_params.h describes their parameters; copy_launches.h makes them, so
// the bodies check nothing. No box may read or write the target of another one. Internal to
// comm/cuda.
#ifndef MESHIFT_COMM_CUDA_COPY_BODIES_H_
#define MESHIFT_COMM_CUDA_COPY_BODIES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "comm/cuda/body.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/host_device.h"

namespace meshift::cuda {

struct alignas(16) Bytes16 {
  uint64_t low;
  uint64_t high;
};

// DivideBy(size, MagicOf(size), n) is n / size for n <= 2^31 and size in [1, 2^31), by a
// multiplication. MagicOf(size) is floor(2^(32 + s) / size) - 2^32 + 1, where s is the number of
// bits of size - 1 (Granlund and Montgomery, "Division by invariant integers", 1994).
inline uint32_t MagicOf(uint32_t size) {
  const int shift = 32 - std::countl_zero(size - 1);
  const uint64_t rest = (uint64_t{1} << shift) - size;  // less than size
  return static_cast<uint32_t>((rest << 32) / size + 1);
}
MESHIFT_HOST_DEVICE inline uint32_t DivideBy(uint32_t size, uint32_t magic, uint32_t n) {
#ifdef __CUDA_ARCH__
  const int shift = 32 - __clz(static_cast<int>(size - 1));
  const uint32_t high = __umulhi(n, magic);
#else
  const int shift = 32 - std::countl_zero(size - 1);
  const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * magic) >> 32);
#endif
  return (high + n) >> shift;
}

// The index of the box that has tile number `tile`: a binary search.
MESHIFT_HOST_DEVICE inline uint32_t BoxOfTile(const CopyBoxesParams& params, uint32_t tile) {
  uint32_t low = 0;
  uint32_t high = params.num_boxes - 1;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (params.boxes[middle].tile_end > tile) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

constexpr int kUnitsPerThread = kTileUnits / kThreads;

// The byte offsets of units from a box's source and target addresses. numbers[j] is the linear
// index of unit j over the dims from first_dim on, innermost first; it is overwritten.
MESHIFT_HOST_DEVICE inline void FindPlaces(const CopyBoxesParams& params, const CopyBox& box,
                                           int first_dim, uint32_t* numbers, int64_t* src,
                                           int64_t* dst) {
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    src[j] = 0;
    dst[j] = 0;
  }
  const int last = static_cast<int>(box.rank) - 1;
  for (int d = first_dim; d <= last; ++d) {
    const CopyDim& dim = params.dims[box.first_dim + d];
    MESHIFT_UNROLL
    for (int j = 0; j < kUnitsPerThread; ++j) {
      uint32_t index = numbers[j];
      if (d < last) {
        numbers[j] = DivideBy(dim.size, dim.magic, index);
        index -= numbers[j] * dim.size;
      }
      src[j] += index * dim.src_stride;
      dst[j] += index * dim.dst_stride;
    }
  }
}

// Copies the units first, first + kThreads, ...: kUnitsPerThread loads, then as many stores.
template <typename T>
MESHIFT_HOST_DEVICE void MoveUnits(const CopyBox& box, uint32_t first, const int64_t* src,
                                   const int64_t* dst) {
  T values[kUnitsPerThread];
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    if (first + j * kThreads < box.units) values[j] = *At<const T>(box.src + src[j]);
  }
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    if (first + j * kThreads < box.units) *At<T>(box.dst + dst[j]) = values[j];
  }
}

// MoveUnits for the 8-byte words of shifted runs. A target word is combined from the two source
// words that contain its bytes. Near the ends of a run, where one of these three words extends
// beyond it, bytes are copied one by one.
MESHIFT_HOST_DEVICE inline void MoveRuns(const CopyBoxesParams& params, const CopyBox& box,
                                         uint32_t first) {
  const CopyDim& words = params.dims[box.first_dim];
  uint32_t numbers[kUnitsPerThread];
  int64_t begin[kUnitsPerThread];  // the word's offset within its run, in bytes
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const uint32_t unit = first + j * kThreads;
    numbers[j] = DivideBy(words.size, words.magic, unit);
    begin[j] = int64_t{8} * (unit - numbers[j] * words.size);
  }
  int64_t src[kUnitsPerThread];
  int64_t dst[kUnitsPerThread];
  FindPlaces(params, box, 1, numbers, src, dst);
  bool inside[kUnitsPerThread];
  uint64_t low[kUnitsPerThread];
  uint64_t high[kUnitsPerThread];
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    begin[j] -= static_cast<int64_t>((box.dst + dst[j]) & 7);
    const uint64_t from = box.src + src[j] + begin[j];
    const auto skew = static_cast<int64_t>(from & 7);
    inside[j] = first + j * kThreads < box.units && begin[j] >= skew &&
                begin[j] - skew + (skew == 0 ? 8 : 16) <= box.run_bytes;
    low[j] = 0;
    high[j] = 0;
    if (inside[j]) {
      low[j] = *At<const uint64_t>(from - skew);
      if (skew != 0) high[j] = *At<const uint64_t>(from - skew + 8);
    }
  }
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const uint64_t from = box.src + src[j] + begin[j];
    const uint64_t to = box.dst + dst[j] + begin[j];
    if (inside[j]) {
      const auto shift = static_cast<int>(8 * (from & 7));
      *At<uint64_t>(to) = low[j] >> shift | high[j] << 1 << (63 - shift);
      continue;
    }
    if (first + j * kThreads >= box.units) continue;
    uint8_t bytes[8];
    MESHIFT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const bool in_run = begin[j] + i >= 0 && begin[j] + i < box.run_bytes;
      if (in_run) bytes[i] = *At<const uint8_t>(from + i);
    }
    MESHIFT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const bool in_run = begin[j] + i >= 0 && begin[j] + i < box.run_bytes;
      if (in_run) *At<uint8_t>(to + i) = bytes[i];
    }
  }
}

MESHIFT_HOST_DEVICE inline void CopyBoxesBody(const CopyBoxesParams& params,
                                              ThreadPosition position) {
  for (uint32_t tile = position.block; tile < params.num_tiles; tile += position.blocks) {
    const uint32_t i = BoxOfTile(params, tile);
    const CopyBox& box = params.boxes[i];
    const uint32_t before = i == 0 ? 0 : params.boxes[i - 1].tile_end;
    const uint32_t first = (tile - before) * kTileUnits + position.thread;
    if (box.run_bytes > 0) {
      MoveRuns(params, box, first);
      continue;
    }
    uint32_t numbers[kUnitsPerThread];
    MESHIFT_UNROLL
    for (int j = 0; j < kUnitsPerThread; ++j) numbers[j] = first + j * kThreads;
    int64_t src[kUnitsPerThread];
    int64_t dst[kUnitsPerThread];
    FindPlaces(params, box, 0, numbers, src, dst);
    switch (box.unit_bytes) {
      case 16:
        MoveUnits<Bytes16>(box, first, src, dst);
        break;
      case 8:
        MoveUnits<uint64_t>(box, first, src, dst);
        break;
      case 4:
        MoveUnits<uint32_t>(box, first, src, dst);
        break;
      case 2:
        MoveUnits<uint16_t>(box, first, src, dst);
        break;
      default:
        MoveUnits<uint8_t>(box, first, src, dst);
        break;
    }
  }
}

// Transposes kLanes words of kLanes elements each: element j of word i becomes element i of word j.
template <int kLanes, typename Word>
MESHIFT_HOST_DEVICE void TransposeWords(Word* words) {
  if constexpr (kLanes == 2) {
    const Word first = words[0];
    words[0] = (first & 0xffff) | (words[1] << 16);
    words[1] = (first >> 16) | (words[1] & 0xffff0000);
  } else if constexpr (kLanes == 4) {
    // First 2x2 blocks of 16 bits, then the bytes within each.
    MESHIFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      Word pair[] = {words[i], words[i + 2]};
      TransposeWords<2>(pair);
      words[i] = pair[0];
      words[i + 2] = pair[1];
    }
    MESHIFT_UNROLL
    for (int i = 0; i < 4; i += 2) {
      const Word first = words[i];
      words[i] = (first & 0x00ff00ff) | ((words[i + 1] & 0x00ff00ff) << 8);
      words[i + 1] = ((first >> 8) & 0x00ff00ff) | (words[i + 1] & 0xff00ff00);
    }
  }
}

// One half of the transposing copy of a tile. With kLoad it reads words of kLanes elements that
// are contiguous in the source, transposes them and writes them to shared memory. Without kLoad it
// writes words that are contiguous in the target from shared memory. __syncthreads() separates the
// halves. With kLoad a thread issues all its loads before its stores.
template <typename T, int kLanes, bool kLoad>
MESHIFT_HOST_DEVICE void TransposeUnits(const CopyBoxesParams& params, const CopyBox& box,
                                        uint32_t tile, uint32_t thread, void* memory) {
  using Word = std::conditional_t<kLanes == 1, T, uint32_t>;
  static_assert(sizeof(Word) == kLanes * sizeof(T));
  constexpr uint32_t kTile = TransposeTile(sizeof(T), kLanes);
  constexpr uint32_t kWords = kTile / kLanes;  // along each side
  constexpr uint32_t kRows = kThreads / kWords;
  constexpr uint32_t kPasses = kWords / kRows;
  auto* shared = static_cast<Word*>(memory);
  // Rows have one word of padding, so that the words of a column are in different banks.
  const auto at = [](uint32_t word1, uint32_t lane1, uint32_t word0) {
    return (lane1 * kWords + word1) * (kWords + 1) + word0;
  };
  const CopyDim& dim0 = params.dims[box.first_dim];
  const CopyDim& dim1 = params.dims[box.first_dim + 1];
  // Tiles run along dim 0, then dim 1, then over the indices of the other dims.
  const uint32_t tiles0 = (dim0.size + kTile - 1) / kTile;
  const uint32_t tiles1 = (dim1.size + kTile - 1) / kTile;
  const uint32_t quotient0 = tile / tiles0;
  uint32_t rest = quotient0 / tiles1;
  // Consecutive threads access consecutive words of the contiguous dim.
  const uint32_t column = thread % kWords;
  const uint32_t row = thread / kWords;
  const uint32_t i0 = (tile - quotient0 * tiles0) * kTile + (kLoad ? row : column) * kLanes;
  const uint32_t i1 = (quotient0 - rest * tiles1) * kTile + (kLoad ? column : row) * kLanes;
  int64_t offset = kLoad ? i0 * dim0.src_stride + i1 * dim1.src_stride
                         : i0 * dim0.dst_stride + i1 * dim1.dst_stride;
  for (int d = 2; d < box.rank; ++d) {
    const CopyDim& dim = params.dims[box.first_dim + d];
    const uint32_t quotient = DivideBy(dim.size, dim.magic, rest);
    const uint32_t index = rest - quotient * dim.size;
    offset += index * (kLoad ? dim.src_stride : dim.dst_stride);
    rest = quotient;
  }
  // Sizes are multiples of kLanes, so a word is completely inside or outside of the box.
  const uint32_t along = kLoad ? i0 : i1;
  const uint32_t along_size = kLoad ? dim0.size : dim1.size;
  const uint32_t rows_left =
      (kLoad ? i1 < dim1.size : i0 < dim0.size) && along < along_size ? along_size - along : 0;
  const int64_t stride = kLoad ? dim0.src_stride : dim1.dst_stride;
  uint64_t address = (kLoad ? box.src : box.dst) + offset;
  constexpr uint32_t kStep = kRows * kLanes;
  if constexpr (kLoad) {
    Word words[kPasses][kLanes];
    MESHIFT_UNROLL
    for (uint32_t p = 0; p < kPasses; ++p) {
      if (p * kStep >= rows_left) break;
      MESHIFT_UNROLL
      for (int k = 0; k < kLanes; ++k) words[p][k] = *At<const Word>(address + k * stride);
      address += kStep * stride;
    }
    MESHIFT_UNROLL
    for (uint32_t p = 0; p < kPasses; ++p) {
      if (p * kStep >= rows_left) break;
      TransposeWords<kLanes>(words[p]);
      MESHIFT_UNROLL
      for (int k = 0; k < kLanes; ++k) shared[at(column, k, row + p * kRows)] = words[p][k];
    }
  } else {
    MESHIFT_UNROLL
    for (uint32_t p = 0; p < kPasses; ++p) {
      if (p * kStep >= rows_left) break;
      MESHIFT_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        *At<Word>(address + k * stride) = shared[at(row + p * kRows, k, column)];
      }
      address += kStep * stride;
    }
  }
}

// The largest tile with its padding: 32 x 33 units of 16 bytes.
constexpr int kTransposeSharedBytes = 32 * 33 * 16;
static_assert(kTransposeSharedBytes >= 128 * 33 * 4 && kTransposeSharedBytes >= 64 * 65 * 4);

// Tile `tile` of the launch: the half before __syncthreads() (kLoad), or the half after it.
template <bool kLoad>
MESHIFT_HOST_DEVICE void TransposeTileBody(const CopyBoxesParams& params, uint32_t tile,
                                           uint32_t thread, void* shared) {
  const uint32_t i = BoxOfTile(params, tile);
  const CopyBox& box = params.boxes[i];
  const uint32_t number = tile - (i == 0 ? 0 : params.boxes[i - 1].tile_end);
  switch (box.unit_bytes) {
    case 16:
      return TransposeUnits<Bytes16, 1, kLoad>(params, box, number, thread, shared);
    case 8:
      return TransposeUnits<uint64_t, 1, kLoad>(params, box, number, thread, shared);
    case 4:
      return TransposeUnits<uint32_t, 1, kLoad>(params, box, number, thread, shared);
    case 2:
      return box.lanes == 2
                 ? TransposeUnits<uint16_t, 2, kLoad>(params, box, number, thread, shared)
                 : TransposeUnits<uint16_t, 1, kLoad>(params, box, number, thread, shared);
    default:
      return box.lanes == 4
                 ? TransposeUnits<uint8_t, 4, kLoad>(params, box, number, thread, shared)
                 : TransposeUnits<uint8_t, 1, kLoad>(params, box, number, thread, shared);
  }
}

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_COPY_BODIES_H_
