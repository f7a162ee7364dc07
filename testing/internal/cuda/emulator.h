// Runs a kernel on the CPU, block by block and thread by thread, from the same source that nvcc
// compiles, with the same parameters as a launch. Slow; for tests, and for the GPU stand-in of
// tests.
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
// its parameter struct. NOT_FOUND for an unknown kernel.
absl::Status EmulateLaunch(const std::string& entry, uint32_t blocks, const void* params);

}  // namespace meshift::cuda

#endif  // MESHIFT_TESTING_INTERNAL_CUDA_EMULATOR_H_
