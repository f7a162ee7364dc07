// MESHIFT_HOST_DEVICE before a function: nvcc compiles it for the device as well, so that a kernel
// computes with the very source that the CPU computes with. Such code includes nothing but the
// standard library.
#ifndef MESHIFT_COMM_KERNELS_HOST_DEVICE_H_
#define MESHIFT_COMM_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define MESHIFT_HOST_DEVICE __host__ __device__
#else
#define MESHIFT_HOST_DEVICE
#endif

#endif  // MESHIFT_COMM_KERNELS_HOST_DEVICE_H_
