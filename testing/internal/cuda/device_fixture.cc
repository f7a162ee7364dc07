#include "testing/internal/cuda/device_fixture.h"

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/kernels.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<DeviceFixture>> DeviceFixture::Create(int ordinal) {
  std::unique_ptr<DeviceFixture> fixture(new DeviceFixture());
  MESHIFT_RETURN_IF_ERROR(fixture->Open(ordinal));
  return fixture;
}

absl::Status DeviceFixture::Open(int ordinal) {
  MESHIFT_ASSIGN_OR_RETURN(driver_, CudaDriver::Load());
  MESHIFT_ASSIGN_OR_RETURN(const int count, driver_->InitAndCountDevices());
  if (ordinal < 0 || ordinal >= count) {
    return FailedPrecondition("device {} does not exist; the driver has {}", ordinal, count);
  }
  MESHIFT_RETURN_IF_ERROR(driver_->DriverGetVersion(&driver_version_));
  CUdevice device = 0;
  MESHIFT_RETURN_IF_ERROR(driver_->DeviceGet(&device, ordinal));
  char name[256] = {};
  MESHIFT_RETURN_IF_ERROR(driver_->DeviceGetName(name, 255, device));
  name_ = name;
  CUcontext context = nullptr;
  MESHIFT_RETURN_IF_ERROR(driver_->DevicePrimaryCtxRetain(&context, device));
  device_ = device;
  MESHIFT_RETURN_IF_ERROR(driver_->CtxSetCurrent(context));
  MESHIFT_RETURN_IF_ERROR(driver_->StreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  MESHIFT_RETURN_IF_ERROR(driver_->EventCreate(&begin_, CU_EVENT_DEFAULT));
  MESHIFT_RETURN_IF_ERROR(driver_->EventCreate(&end_, CU_EVENT_DEFAULT));
  MESHIFT_ASSIGN_OR_RETURN(kernels_, CudaKernels::Create(driver_));
  return absl::OkStatus();
}

DeviceFixture::~DeviceFixture() {
  // At the end of a check; earlier errors were reported before.
  if (device_ < 0) return;
  if (stream_ != nullptr) driver_->StreamSynchronize(stream_).IgnoreError();
  kernels_.reset();
  for (const CUdeviceptr memory : memory_) driver_->MemFree(memory).IgnoreError();
  if (begin_ != nullptr) driver_->EventDestroy(begin_).IgnoreError();
  if (end_ != nullptr) driver_->EventDestroy(end_).IgnoreError();
  if (stream_ != nullptr) driver_->StreamDestroy(stream_).IgnoreError();
  driver_->DevicePrimaryCtxRelease(device_).IgnoreError();
}

absl::StatusOr<CUdeviceptr> DeviceFixture::Allocate(int64_t bytes) {
  CUdeviceptr memory = 0;
  MESHIFT_RETURN_IF_ERROR(driver_->MemAlloc(&memory, static_cast<size_t>(bytes)));
  memory_.push_back(memory);
  return memory;
}

absl::Status DeviceFixture::RunAsGraph(absl::FunctionRef<absl::Status()> work) const {
  MESHIFT_RETURN_IF_ERROR(
      driver_->StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const absl::Status worked = work();
  CUgraph graph = nullptr;
  const absl::Status captured = driver_->StreamEndCapture(stream_, &graph);
  MESHIFT_RETURN_IF_ERROR(worked);
  MESHIFT_RETURN_IF_ERROR(captured);
  CUgraphExec exec = nullptr;
  absl::Status status = driver_->GraphInstantiate(&exec, graph, 0ULL);
  if (status.ok()) status = driver_->GraphLaunch(exec, stream_);
  if (status.ok()) status = Synchronize();
  if (exec != nullptr) driver_->GraphExecDestroy(exec).IgnoreError();
  driver_->GraphDestroy(graph).IgnoreError();
  return status;
}

absl::StatusOr<float> DeviceFixture::TimeMs(absl::FunctionRef<absl::Status()> work) const {
  MESHIFT_RETURN_IF_ERROR(driver_->EventRecord(begin_, stream_));
  MESHIFT_RETURN_IF_ERROR(work());
  MESHIFT_RETURN_IF_ERROR(driver_->EventRecord(end_, stream_));
  MESHIFT_RETURN_IF_ERROR(driver_->EventSynchronize(end_));
  return driver_->ElapsedMs(begin_, end_);
}

}  // namespace meshift
