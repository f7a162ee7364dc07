#include "comm/cuda/driver.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/driver_functions.h"
#include "comm/engine/shared_library.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr SharedLibrary::Source kDriver = {.what = "CUDA driver",
                                           .file = "libcuda.so.1",
                                           .variable = "MESHIFT_CUDA_LIBRARY",
                                           .needs = "a GPU needs NVIDIA's driver"};

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_INVALID_VALUE:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return absl::StatusCode::kFailedPrecondition;
    case CUDA_ERROR_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CudaDriver>> CudaDriver::Load(const std::string& path) {
  MESHIFT_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(kDriver, path));
  std::shared_ptr<CudaDriver> driver(new CudaDriver());
  driver->path_ = library.path();
#define MESHIFT_CUDA_FIND(member, symbol) \
  MESHIFT_RETURN_IF_ERROR(library.Find(#symbol, &driver->member##_));
  MESHIFT_CUDA_FUNCTIONS(MESHIFT_CUDA_FIND)
#undef MESHIFT_CUDA_FIND
#define MESHIFT_CUDA_FIND(member, symbol) library.FindOptional(#symbol, &driver->member##_);
  MESHIFT_CUDA_OPTIONAL_FUNCTIONS(MESHIFT_CUDA_FIND)
#undef MESHIFT_CUDA_FIND
  MESHIFT_RETURN_IF_ERROR(library.Find("cuGetErrorName", &driver->get_error_name_));
  MESHIFT_RETURN_IF_ERROR(library.Find("cuGetErrorString", &driver->get_error_string_));
  MESHIFT_RETURN_IF_ERROR(library.Find("cuEventElapsedTime", &driver->event_elapsed_time_));
  return std::shared_ptr<const CudaDriver>(std::move(driver));
}

absl::StatusOr<bool> CudaDriver::StreamDone(CUstream stream) const {
  const CUresult result = StreamQuery_(stream);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) return StatusOf(result, "cuStreamQuery");
  return true;
}

absl::StatusOr<bool> CudaDriver::EventDone(CUevent event) const {
  const CUresult result = EventQuery_(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) return StatusOf(result, "cuEventQuery");
  return true;
}

absl::StatusOr<float> CudaDriver::ElapsedMs(CUevent begin, CUevent end) const {
  float milliseconds = 0;
  const CUresult result = event_elapsed_time_(&milliseconds, begin, end);
  if (result != CUDA_SUCCESS) return StatusOf(result, "cuEventElapsedTime");
  return milliseconds;
}

absl::StatusOr<int> CudaDriver::InitAndCountDevices() const {
  MESHIFT_RETURN_IF_ERROR(Init(0));
  int version = 0;
  MESHIFT_RETURN_IF_ERROR(DriverGetVersion(&version));
  if (version < kMinVersion) {
    const auto text = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
    return FailedPrecondition("the CUDA driver {} is for CUDA {}, and {} or newer is needed", path_,
                              text(version), text(kMinVersion));
  }
  int count = 0;
  MESHIFT_RETURN_IF_ERROR(DeviceGetCount(&count));
  if (count < 1) return FailedPrecondition("the CUDA driver {} finds no device", path_);
  return count;
}

absl::Status CudaDriver::StatusOf(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    // The stub library cannot describe its own error.
    name = "CUDA_ERROR_STUB_LIBRARY";
    text = "this libcuda is a stub, for linking only; load the driver's";
  } else {
    get_error_name_(result, &name);
    get_error_string_(result, &text);
  }
  const std::string error =
      name == nullptr ? fmt::format("error {}", static_cast<int>(result)) : std::string(name);
  return absl::Status(CodeOf(result), text == nullptr
                                          ? fmt::format("{}: {}", call, error)
                                          : fmt::format("{}: {} ({})", call, error, text));
}

}  // namespace meshift
