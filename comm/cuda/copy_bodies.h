// Copying boxes: the bodies of kCopyBoxesEntry and kTransposeBoxesEntry (kernel_params.h).
#ifndef MESHIFT_COMM_CUDA_COPY_BODIES_H_
#define MESHIFT_COMM_CUDA_COPY_BODIES_H_

#include <bit>
#include <cstdint>

#include "comm/cuda/body.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/host_device.h"

namespace meshift::cuda {

struct alignas(16) Bytes16 {
  uint64_t low;
  uint64_t high;
};

// n / size for n <= 2^31 and size in [2, 2^31), by a multiplication: `magic` is
// ceil(2^(32 + s) / size) - 2^32, s the number of bits of size - 1.
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

// The box that has tile number `tile`.
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

// How far the units first, first + kThreads, ... of a box are from its addresses.
MESHIFT_HOST_DEVICE inline void FindUnits(const CopyBoxesParams& params, const CopyBox& box,
                                          uint32_t first, int64_t* src, int64_t* dst) {
  uint32_t rest[kUnitsPerThread];
  MESHIFT_UNROLL
  for (int j = 0; j < kUnitsPerThread; ++j) {
    rest[j] = first + j * kThreads;
    src[j] = 0;
    dst[j] = 0;
  }
  const int last = static_cast<int>(box.rank) - 1;
  for (int d = 0; d <= last; ++d) {
    const CopyDim& dim = params.dims[box.first_dim + d];
    MESHIFT_UNROLL
    for (int j = 0; j < kUnitsPerThread; ++j) {
      uint32_t index = rest[j];
      if (d < last) {
        rest[j] = DivideBy(dim.size, dim.magic, index);
        index -= rest[j] * dim.size;
      }
      src[j] += index * dim.src_stride;
      dst[j] += index * dim.dst_stride;
    }
  }
}

// Four loads, then four stores.
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

MESHIFT_HOST_DEVICE inline void CopyBoxesBody(const CopyBoxesParams& params, Place place) {
  for (uint32_t tile = place.block; tile < params.num_tiles; tile += place.blocks) {
    const uint32_t i = BoxOfTile(params, tile);
    const CopyBox& box = params.boxes[i];
    const uint32_t before = i == 0 ? 0 : params.boxes[i - 1].tile_end;
    const uint32_t first = (tile - before) * kTileUnits + place.thread;
    int64_t src[kUnitsPerThread];
    int64_t dst[kUnitsPerThread];
    FindUnits(params, box, first, src, dst);
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

// One tile of a transposing copy: rows of the source go to shared memory (kLoad), columns of that
// to the target, so that both sides are read and written along what lies side by side. Between the
// two all threads of the block meet.
template <typename T, bool kLoad>
MESHIFT_HOST_DEVICE void TransposeUnits(const CopyBoxesParams& params, const CopyBox& box,
                                        uint32_t tile, uint32_t thread, T* shared) {
  constexpr uint32_t kTile = TransposeTile(sizeof(T));
  constexpr uint32_t kRows = kThreads / kTile;
  const CopyDim& dim0 = params.dims[box.first_dim];
  const CopyDim& dim1 = params.dims[box.first_dim + 1];
  // Tiles run along dim 0, then dim 1, then over the indices of the other dims.
  const uint32_t tiles0 = (dim0.size + kTile - 1) / kTile;
  const uint32_t tiles1 = (dim1.size + kTile - 1) / kTile;
  const uint32_t along0 = tile % tiles0 * kTile;
  const uint32_t along1 = tile / tiles0 % tiles1 * kTile;
  uint32_t rest = tile / tiles0 / tiles1;
  int64_t offset = 0;
  for (int d = 2; d < box.rank; ++d) {
    const CopyDim& dim = params.dims[box.first_dim + d];
    const uint32_t quotient = DivideBy(dim.size, dim.magic, rest);
    const uint32_t index = rest - quotient * dim.size;
    offset += index * (kLoad ? dim.src_stride : dim.dst_stride);
    rest = quotient;
  }
  // Lanes run along the dim whose indices are side by side.
  const uint32_t lane = thread % kTile;
  MESHIFT_UNROLL
  for (uint32_t row = thread / kTile; row < kTile; row += kRows) {
    const uint32_t i0 = along0 + (kLoad ? row : lane);
    const uint32_t i1 = along1 + (kLoad ? lane : row);
    if (i0 >= dim0.size || i1 >= dim1.size) continue;
    if constexpr (kLoad) {
      shared[row * (kTile + 1) + lane] =
          *At<const T>(box.src + offset + i0 * dim0.src_stride + i1 * dim1.src_stride);
    } else {
      *At<T>(box.dst + offset + i0 * dim0.dst_stride + i1 * dim1.dst_stride) =
          shared[lane * (kTile + 1) + row];
    }
  }
}

// A row more than square: columns then lie in different banks.
constexpr int kTransposeSharedBytes = 32 * 33 * 16;
static_assert(kTransposeSharedBytes >= 64 * 65 * 4);

// The part of tile `tile` that is before (kLoad), or behind, the meeting of the threads.
template <bool kLoad>
MESHIFT_HOST_DEVICE void TransposeTileBody(const CopyBoxesParams& params, uint32_t tile,
                                           uint32_t thread, void* shared) {
  const uint32_t i = BoxOfTile(params, tile);
  const CopyBox& box = params.boxes[i];
  const uint32_t number = tile - (i == 0 ? 0 : params.boxes[i - 1].tile_end);
  switch (box.unit_bytes) {
    case 16:
      TransposeUnits<Bytes16, kLoad>(params, box, number, thread, static_cast<Bytes16*>(shared));
      break;
    case 8:
      TransposeUnits<uint64_t, kLoad>(params, box, number, thread, static_cast<uint64_t*>(shared));
      break;
    case 4:
      TransposeUnits<uint32_t, kLoad>(params, box, number, thread, static_cast<uint32_t*>(shared));
      break;
    case 2:
      TransposeUnits<uint16_t, kLoad>(params, box, number, thread, static_cast<uint16_t*>(shared));
      break;
    default:
      TransposeUnits<uint8_t, kLoad>(params, box, number, thread, static_cast<uint8_t*>(shared));
      break;
  }
}

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_COPY_BODIES_H_
