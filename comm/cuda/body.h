// Helpers for the bodies of CUDA kernels: a thread's position in the grid, and access to memory by
// address. A body is a function of a kernel's parameters and the thread's position. nvcc compiles
// it for the device (kernels.cu); any compiler compiles it for the CPU, where
// testing/internal/cuda/emulator.h runs a whole grid thread by thread.
//
//   FillBody(params, {.block = blockIdx.x, .blocks = gridDim.x, .thread = threadIdx.x});
//
// Nothing checks its arguments. Internal to comm/cuda.
#ifndef MESHIFT_COMM_CUDA_BODY_H_
#define MESHIFT_COMM_CUDA_BODY_H_

#include <cstdint>

#include "comm/kernels/host_device.h"

#ifdef __CUDACC__
#define MESHIFT_UNROLL _Pragma("unroll")
#else
#define MESHIFT_UNROLL
#endif

namespace meshift::cuda {

// Grids and blocks have one dimension.
struct ThreadPosition {
  uint32_t block;
  uint32_t blocks;
  uint32_t thread;
};

// A pointer to an address, aligned for T, in the device's global memory, or in the CPU's memory.
template <typename T>
MESHIFT_HOST_DEVICE T* At(uint64_t address) {
#ifdef __CUDA_ARCH__
  return static_cast<T*>(__cvta_global_to_generic(address));
#else
  return reinterpret_cast<T*>(address);
#endif
}

// `kCount` elements that are loaded or stored in one access, of at most 16 bytes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_BODY_H_
