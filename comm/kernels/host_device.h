// MESHIFT_HOST_DEVICE before a function: nvcc compiles it for the device too, so that CUDA kernels
// and the CPU share the source of their arithmetic. Empty for other compilers. A header with such
// functions may include only the standard library and headers that nvcc can compile.
#ifndef MESHIFT_COMM_KERNELS_HOST_DEVICE_H_
#define MESHIFT_COMM_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define MESHIFT_HOST_DEVICE __host__ __device__
#else
#define MESHIFT_HOST_DEVICE
#endif

#endif  // MESHIFT_COMM_KERNELS_HOST_DEVICE_H_
