// What the bodies of kernels share: where a thread is, and memory by its address. The bodies are
// functions of a thread's place: nvcc compiles them for the device (kernels.cu), and any compiler
// for the CPU, where emulator.h runs a whole grid thread by thread.
//
//   FillBody(params, {.block = blockIdx.x, .blocks = gridDim.x, .thread = threadIdx.x});
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

struct Place {
  uint32_t block;
  uint32_t blocks;
  uint32_t thread;
};

// What is at an address; on the device it is global memory.
template <typename T>
MESHIFT_HOST_DEVICE T* At(uint64_t address) {
#ifdef __CUDA_ARCH__
  return static_cast<T*>(__cvta_global_to_generic(address));
#else
  return reinterpret_cast<T*>(address);
#endif
}

// `kCount` elements in one access.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_BODY_H_
