// The functions of the CUDA driver, loaded with dlopen, so that one binary works with and without
// the driver.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto driver, CudaDriver::Load());   // libcuda.so.1
//   MESHIFT_RETURN_IF_ERROR(driver->Init(0));                    // cuInit(0)
//   CUdeviceptr data = 0;
//   MESHIFT_RETURN_IF_ERROR(driver->MemAlloc(&data, 1 << 20));
//
// Each function of MESHIFT_CUDA_FUNCTIONS is a method with the arguments of cuda.h. It returns a
// Status, such as "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". The contract of cuda.h
// applies, including thread safety. Call a function of MESHIFT_CUDA_OPTIONAL_FUNCTIONS only if
// Has...() is true. Not a public header.
#ifndef MESHIFT_COMM_CUDA_DRIVER_H_
#define MESHIFT_COMM_CUDA_DRIVER_H_

#include <cuda.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver_functions.h"

namespace meshift {

class CudaDriver {
 public:
  // CUDA 12.4, as cuDriverGetVersion gives it: the oldest driver that has all functions and
  // compiles the kernels' PTX (third_party/cuda/fatbin.bzl). Drivers older than the toolkit are not
  // tested.
  static constexpr int kMinVersion = 12040;

  // Loads `path`; if that is empty, $MESHIFT_CUDA_LIBRARY, else libcuda.so.1. Calls no function of
  // it, so the version is not checked (InitAndCountDevices does). UNAVAILABLE if the library
  // cannot be loaded, FAILED_PRECONDITION if a function is missing; the error names the library or
  // function. The library stays loaded until the process ends.
  static absl::StatusOr<std::shared_ptr<const CudaDriver>> Load(const std::string& path = "");

  const std::string& path() const { return path_; }

#define MESHIFT_CUDA_METHOD(name, symbol)     \
  template <typename... Args>                 \
  absl::Status name(Args... args) const {     \
    const CUresult result = name##_(args...); \
    if (result == CUDA_SUCCESS) [[likely]] {  \
      return absl::OkStatus();                \
    }                                         \
    return StatusOf(result, #symbol);         \
  }
  MESHIFT_CUDA_FUNCTIONS(MESHIFT_CUDA_METHOD)
  MESHIFT_CUDA_OPTIONAL_FUNCTIONS(MESHIFT_CUDA_METHOD)
#undef MESHIFT_CUDA_METHOD
#define MESHIFT_CUDA_HAS(name, symbol) \
  bool Has##name() const { return name##_ != nullptr; }
  MESHIFT_CUDA_OPTIONAL_FUNCTIONS(MESHIFT_CUDA_HAS)
#undef MESHIFT_CUDA_HAS

  // Whether all work on the stream, or before the event, is done. An error if the work has failed.
  absl::StatusOr<bool> StreamDone(CUstream stream) const;
  absl::StatusOr<bool> EventDone(CUevent event) const;
  // The time between two events, in ms. Both must have been created with timing and be done.
  absl::StatusOr<float> ElapsedMs(CUevent begin, CUevent end) const;

  // Initialises the driver and returns the number of devices, at least 1. FAILED_PRECONDITION if
  // there are none, or the driver is older than kMinVersion; else errors as those of StatusOf().
  absl::StatusOr<int> InitAndCountDevices() const;

  // `result` as a Status that names `call` and the error. RESOURCE_EXHAUSTED: out of memory;
  // INVALID_ARGUMENT: an invalid value; FAILED_PRECONDITION: no device, context or initialisation,
  // a stub library, a driver that does not fit, no code for the device, PTX that the driver cannot
  // compile, or a capture that is unsupported, implicit or invalidated; UNIMPLEMENTED: not
  // supported; OK for CUDA_SUCCESS; else INTERNAL.
  absl::Status StatusOf(CUresult result, const char* call) const;

 private:
  CudaDriver() = default;

  std::string path_;
#define MESHIFT_CUDA_MEMBER(name, symbol) decltype(&::symbol) name##_ = nullptr;
  MESHIFT_CUDA_FUNCTIONS(MESHIFT_CUDA_MEMBER)
  MESHIFT_CUDA_OPTIONAL_FUNCTIONS(MESHIFT_CUDA_MEMBER)
#undef MESHIFT_CUDA_MEMBER
  decltype(&::cuGetErrorName) get_error_name_ = nullptr;
  decltype(&::cuGetErrorString) get_error_string_ = nullptr;
  // The first version of the function, which every driver has; a macro of cuda.h renames it.
  CUresult (*event_elapsed_time_)(float*, CUevent, CUevent) = nullptr;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CUDA_DRIVER_H_
