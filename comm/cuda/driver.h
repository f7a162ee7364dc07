// The CUDA driver, loaded at run time: one binary works with and without it.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto driver, CudaDriver::Load());   // libcuda.so.1
//   MESHIFT_RETURN_IF_ERROR(driver->Init(0));                    // cuInit(0)
//   CUdeviceptr data = 0;
//   MESHIFT_RETURN_IF_ERROR(driver->MemAlloc(&data, 1 << 20));
//
// For each function of MESHIFT_CUDA_FUNCTIONS there is a method of that name, which takes what the
// function takes in cuda.h and returns a Status: "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of
// memory)". What cuda.h says of the function holds, threads included. Those of
// MESHIFT_CUDA_OPTIONAL_FUNCTIONS are to be called only where Has...() says so. Not a public
// header.
#ifndef MESHIFT_COMM_CUDA_DRIVER_H_
#define MESHIFT_COMM_CUDA_DRIVER_H_

#include <cuda.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver_functions.h"

namespace meshift {

// The driver's functions. Immutable once made; every method is as thread-safe as cuda.h says.
class CudaDriver {
 public:
  // 12.4: the oldest whose functions are all there, and that compiles the kernels' PTX
  // (third_party/cuda/fatbin.bzl). Drivers older than the toolkit have not been tried.
  static constexpr int kMinVersion = 12040;

  // Loads `path`; without one, $MESHIFT_CUDA_LIBRARY, else libcuda.so.1. UNAVAILABLE where there is
  // no such library, FAILED_PRECONDITION where it lacks a function, each naming what was looked
  // for. Calls nothing of it. The library stays loaded until the process ends.
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

  // Whether all work of `stream` (before `event`) is done; its error where it failed.
  absl::StatusOr<bool> StreamDone(CUstream stream) const;
  absl::StatusOr<bool> EventDone(CUevent event) const;
  // Between two events that were made with timing and are done.
  absl::StatusOr<float> ElapsedMs(CUevent begin, CUevent end) const;

  // Initialises the driver. The number of devices, one or more; else FAILED_PRECONDITION, also
  // where the driver says that there is none, or is older than kMinVersion.
  absl::StatusOr<int> InitAndCountDevices() const;

  // `result` as a Status that names `call` and the error. RESOURCE_EXHAUSTED: out of memory;
  // INVALID_ARGUMENT: an invalid value; FAILED_PRECONDITION: no device or context, a stream being
  // captured; UNIMPLEMENTED: not supported; else INTERNAL.
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
  // The first form of the function, which every driver has; cuda.h's macro renames it.
  CUresult (*event_elapsed_time_)(float*, CUevent, CUevent) = nullptr;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CUDA_DRIVER_H_
