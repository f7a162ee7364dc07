// Runs a kernel on the CPU, block by block and thread by thread: the very source that nvcc
// compiles, with the very parameters of a launch. Slow; for tests, and for what stands in for a GPU
// in tests.
//
//   MESHIFT_RETURN_IF_ERROR(EmulateLaunch("meshift_fill", blocks, &params));
//
// Addresses in the parameters are addresses of this process.
#ifndef MESHIFT_TESTING_INTERNAL_CUDA_EMULATOR_H_
#define MESHIFT_TESTING_INTERNAL_CUDA_EMULATOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace meshift::cuda {

// Runs the kernel of an entry point (kernel_params.h) with `blocks` blocks of kThreads threads on
// its struct of parameters. NOT_FOUND where no kernel has that name.
absl::Status EmulateLaunch(const std::string& entry, uint32_t blocks, const void* params);

}  // namespace meshift::cuda

#endif  // MESHIFT_TESTING_INTERNAL_CUDA_EMULATOR_H_
