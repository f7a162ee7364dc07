// A device for tests and checks: its primary context, a stream, kernels and memory.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto device, DeviceFixture::Create(0));
//   MESHIFT_ASSIGN_OR_RETURN(CUdeviceptr data, device->Allocate(1 << 20));
//   MESHIFT_RETURN_IF_ERROR(device->kernels().FillZero(..., device->stream()));
//   MESHIFT_RETURN_IF_ERROR(device->Synchronize());
//
// Use it only on the thread that made it; the device's context becomes current there.
#ifndef MESHIFT_TESTING_INTERNAL_CUDA_DEVICE_FIXTURE_H_
#define MESHIFT_TESTING_INTERNAL_CUDA_DEVICE_FIXTURE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/kernels.h"

namespace meshift {

class DeviceFixture {
 public:
  // UNAVAILABLE or FAILED_PRECONDITION without a driver, or if device `ordinal` does not exist.
  static absl::StatusOr<std::unique_ptr<DeviceFixture>> Create(int ordinal);
  ~DeviceFixture();
  DeviceFixture(const DeviceFixture&) = delete;
  DeviceFixture& operator=(const DeviceFixture&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  const CudaKernels& kernels() const { return *kernels_; }
  CUstream stream() const { return stream_; }
  const std::string& name() const { return name_; }       // "NVIDIA H100 80GB HBM3"
  int driver_version() const { return driver_version_; }  // 13000: CUDA 13.0

  // Memory is freed with the fixture.
  absl::StatusOr<CUdeviceptr> Allocate(int64_t bytes);
  absl::Status Synchronize() const { return driver_->StreamSynchronize(stream_); }
  // Captures the work that `work` puts on the stream into a graph, and launches the graph once.
  absl::Status RunAsGraph(absl::FunctionRef<absl::Status()> work) const;
  // The device's time, in milliseconds, for the work that `work` puts on the stream.
  absl::StatusOr<float> TimeMs(absl::FunctionRef<absl::Status()> work) const;

 private:
  DeviceFixture() = default;
  absl::Status Open(int ordinal);

  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<CudaKernels> kernels_;
  CUdevice device_ = -1;  // -1: no context to release
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::vector<CUdeviceptr> memory_;
  std::string name_;
  int driver_version_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CUDA_DEVICE_FIXTURE_H_
