#include "comm/cuda/driver.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "base/status.h"

namespace meshift {
namespace {

std::string Stub(const std::string& name) {
  return std::string(std::getenv("TEST_SRCDIR")) + "/meshift/testing/internal/cuda/" + name;
}

TEST(CudaDriver, NamesAMissingLibrary) {
  const auto driver = CudaDriver::Load("/nowhere/libcuda.so.1");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      Message(driver.status()),
      "cannot load the CUDA driver library /nowhere/libcuda.so.1 (a GPU needs NVIDIA's driver; "
      "set MESHIFT_CUDA_LIBRARY to load another file): /nowhere/libcuda.so.1: cannot open shared "
      "object file: No such file or directory");
}

TEST(CudaDriver, LooksWhereTheVariableSays) {
  ASSERT_EQ(setenv("MESHIFT_CUDA_LIBRARY", "/nowhere/other.so", 1), 0);
  EXPECT_EQ(Message(CudaDriver::Load().status())
                .find("cannot load the CUDA driver library /nowhere/other.so"),
            0U);
  ASSERT_EQ(setenv("MESHIFT_CUDA_LIBRARY", Stub("libcuda_without_device.so").c_str(), 1), 0);
  const auto driver = CudaDriver::Load();
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ((*driver)->path(), Stub("libcuda_without_device.so"));
  ASSERT_EQ(unsetenv("MESHIFT_CUDA_LIBRARY"), 0);
}

TEST(CudaDriver, NamesAMissingFunction) {
  const std::string path = Stub("libcuda_without_function.so");
  const auto driver = CudaDriver::Load(path);
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(driver.status()),
            "the CUDA driver library " + path + " has no function cuEventElapsedTime");
}

TEST(CudaDriver, SaysThatThereIsNoDevice) {
  const auto driver = CudaDriver::Load(Stub("libcuda_without_device.so"));
  ASSERT_TRUE(driver.ok()) << driver.status();
  const auto count = (*driver)->InitAndCountDevices();
  EXPECT_EQ(count.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(count.status()),
            "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
}

TEST(CudaDriver, SaysThatTheDriverIsTooOld) {
  const std::string path = Stub("libcuda_of_cuda_12.so");
  const auto driver = CudaDriver::Load(path);
  ASSERT_TRUE(driver.ok()) << driver.status();
  const auto count = (*driver)->InitAndCountDevices();
  EXPECT_EQ(count.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(count.status()),
            "the CUDA driver " + path + " is for CUDA 12.3, and 12.4 or newer is needed");
}

TEST(CudaDriver, NamesTheCallAndTheError) {
  const auto loaded = CudaDriver::Load(Stub("libcuda_without_device.so"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const CudaDriver& driver = **loaded;
  CUdeviceptr data = 0;
  EXPECT_EQ(Message(driver.MemAlloc(&data, size_t{8})),
            "cuMemAlloc_v2: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
  EXPECT_EQ(Message(driver.StreamDone(nullptr).status()),
            "cuStreamQuery: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
  EXPECT_EQ(Message(driver.ElapsedMs(nullptr, nullptr).status()),
            "cuEventElapsedTime: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
  EXPECT_EQ(Message(driver.StatusOf(CUDA_ERROR_UNKNOWN, "cuSomething")), "cuSomething: error 999");
  // A container without a driver may have the stub library instead.
  EXPECT_EQ(driver.StatusOf(CUDA_ERROR_STUB_LIBRARY, "cuInit").ToString(),
            "FAILED_PRECONDITION: cuInit: CUDA_ERROR_STUB_LIBRARY (this libcuda is a stub, for "
            "linking only; load the driver's)");
  EXPECT_EQ(driver.StatusOf(CUDA_ERROR_OUT_OF_MEMORY, "").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(driver.StatusOf(CUDA_ERROR_NOT_SUPPORTED, "").code(), absl::StatusCode::kUnimplemented);
  // A driver older than the kernels' PTX.
  EXPECT_EQ(driver.StatusOf(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(driver.StatusOf(CUDA_SUCCESS, "").ok());
}

}  // namespace
}  // namespace meshift
