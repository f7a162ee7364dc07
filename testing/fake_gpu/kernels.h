// The kernels that the stand-in knows, by name: the memory that a launch reads and writes, and
// plain CPU code with the same effect.
//
//   const Kernel* kernel = FindKernel("meshift_fill");   // null: unknown
//   std::vector<char> params(kernel->param_bytes);
//   std::string error = kernel->describe(params.data(), &accesses);
//   kernel->run(params.data(), memory);
#ifndef MESHIFT_TESTING_FAKE_GPU_KERNELS_H_
#define MESHIFT_TESTING_FAKE_GPU_KERNELS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "comm/cuda/kernel_params.h"
#include "testing/fake_gpu/device_memory.h"
#include "testing/fake_gpu/work.h"

namespace meshift::fake {

struct Kernel {
  std::string name;
  size_t param_bytes = 0;
  // Lists the memory that a launch with these parameters accesses. Returns an error in the
  // parameters, or "".
  std::string (*describe)(const void* params, std::vector<Access>* accesses) = nullptr;
  void (*run)(const void* params, const DeviceMemory& memory) = nullptr;
  unsigned threads = cuda::kThreads;  // block size that it is compiled for
};

const Kernel* FindKernel(const std::string& name);
const std::vector<Kernel>& AllKernels();

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_KERNELS_H_
