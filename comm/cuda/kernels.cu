// The CUDA kernels that kernel_params.h names, and kernels.h launches. Their bodies are in
// copy_bodies.h and element_bodies.h. The kernels check no parameters.
#include "comm/cuda/copy_bodies.h"
#include "comm/cuda/element_bodies.h"
#include "comm/cuda/kernel_params.h"

namespace meshift::cuda {
namespace {

__device__ ThreadPosition Here() { return {blockIdx.x, gridDim.x, threadIdx.x}; }

// The minimum number of blocks per multiprocessor, for __launch_bounds__. With more blocks
// registers would spill; meshift_copy_boxes already spills one.
constexpr int kCopyBlocks = 3;
constexpr int kTransposeBlocks = 2;
constexpr int ReduceBlocksOf(int code) {
  const bool is_byte =
      code == kCodeI8 || code == kCodeU8 || code == kCodeF8E4M3 || code == kCodeF8E5M2;
  return is_byte ? 2 : (code == kCodeC128 ? 3 : 4);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, kCopyBlocks)
    meshift_copy_boxes(const __grid_constant__ CopyBoxesParams params) {
  CopyBoxesBody(params, Here());
}

extern "C" __global__ void __launch_bounds__(kThreads, kTransposeBlocks)
    meshift_transpose_boxes(const __grid_constant__ CopyBoxesParams params) {
  __shared__ alignas(16) unsigned char shared[kTransposeSharedBytes];
  for (uint32_t tile = blockIdx.x; tile < params.num_tiles; tile += gridDim.x) {
    TransposeTileBody<true>(params, tile, threadIdx.x, shared);
    __syncthreads();
    TransposeTileBody<false>(params, tile, threadIdx.x, shared);
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    meshift_fill(const __grid_constant__ FillParams params) {
  FillBody(params, Here());
}

#define MESHIFT_CAST_KERNEL(name, code)                                \
  extern "C" __global__ void __launch_bounds__(kThreads)               \
      meshift_cast_##name(const __grid_constant__ CastParams params) { \
    CastBody<code>(params, Here());                                    \
  }
MESHIFT_CAST_KERNEL(bool, kCodeBool)
MESHIFT_CAST_KERNEL(i8, kCodeI8)
MESHIFT_CAST_KERNEL(i16, kCodeI16)
MESHIFT_CAST_KERNEL(i32, kCodeI32)
MESHIFT_CAST_KERNEL(i64, kCodeI64)
MESHIFT_CAST_KERNEL(u8, kCodeU8)
MESHIFT_CAST_KERNEL(u16, kCodeU16)
MESHIFT_CAST_KERNEL(u32, kCodeU32)
MESHIFT_CAST_KERNEL(u64, kCodeU64)
MESHIFT_CAST_KERNEL(f16, kCodeF16)
MESHIFT_CAST_KERNEL(bf16, kCodeBF16)
MESHIFT_CAST_KERNEL(f32, kCodeF32)
MESHIFT_CAST_KERNEL(f64, kCodeF64)
MESHIFT_CAST_KERNEL(f8e4m3, kCodeF8E4M3)
MESHIFT_CAST_KERNEL(f8e5m2, kCodeF8E5M2)
MESHIFT_CAST_KERNEL(c64, kCodeC64)
MESHIFT_CAST_KERNEL(c128, kCodeC128)
#undef MESHIFT_CAST_KERNEL

#define MESHIFT_REDUCE_KERNEL(name, code)                                      \
  extern "C" __global__ void __launch_bounds__(kThreads, ReduceBlocksOf(code)) \
      meshift_reduce_##name(const __grid_constant__ ReduceParams params) {     \
    ReduceBody<code>(params, Here());                                          \
  }
MESHIFT_REDUCE_KERNEL(i8, kCodeI8)
MESHIFT_REDUCE_KERNEL(i16, kCodeI16)
MESHIFT_REDUCE_KERNEL(i32, kCodeI32)
MESHIFT_REDUCE_KERNEL(i64, kCodeI64)
MESHIFT_REDUCE_KERNEL(u8, kCodeU8)
MESHIFT_REDUCE_KERNEL(u16, kCodeU16)
MESHIFT_REDUCE_KERNEL(u32, kCodeU32)
MESHIFT_REDUCE_KERNEL(u64, kCodeU64)
MESHIFT_REDUCE_KERNEL(f16, kCodeF16)
MESHIFT_REDUCE_KERNEL(bf16, kCodeBF16)
MESHIFT_REDUCE_KERNEL(f32, kCodeF32)
MESHIFT_REDUCE_KERNEL(f64, kCodeF64)
MESHIFT_REDUCE_KERNEL(f8e4m3, kCodeF8E4M3)
MESHIFT_REDUCE_KERNEL(f8e5m2, kCodeF8E5M2)
MESHIFT_REDUCE_KERNEL(c64, kCodeC64)
MESHIFT_REDUCE_KERNEL(c128, kCodeC128)
#undef MESHIFT_REDUCE_KERNEL

}  // namespace meshift::cuda
