// The kernels on a device against the CPU's operations. Skipped without a device.
// MESHIFT_COPY_CASES: number of copy cases; each has many boxes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "testing/internal/cuda/device_fixture.h"
#include "testing/internal/cuda/kernel_cases.h"

namespace meshift {
namespace {

class KernelsOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = DeviceFixture::Create(0);
    if (!device.ok()) GTEST_SKIP() << "no GPU: " << Message(device.status());
    device_ = *std::move(device);
  }

  static void ExpectAllRight(const absl::StatusOr<CaseTally>& tally, int64_t least) {
    ASSERT_TRUE(tally.ok()) << tally.status();
    EXPECT_EQ(tally->wrong, 0) << "of " << tally->run << "; the first: " << tally->first_wrong;
    EXPECT_GE(tally->run, least);
  }

  std::unique_ptr<DeviceFixture> device_;
};

int CopyCases() {
  const char* cases = std::getenv("MESHIFT_COPY_CASES");
  return cases == nullptr ? 200 : std::atoi(cases);
}

TEST_F(KernelsOnDevice, CopyAsOnTheCpu) {
  ExpectAllRight(RunCopyCases(*device_, 1, CopyCases()), CopyCases());
}
TEST_F(KernelsOnDevice, CastAsOnTheCpu) { ExpectAllRight(RunCastCases(*device_, 2, 1), 242); }
TEST_F(KernelsOnDevice, ReduceAsOnTheCpu) { ExpectAllRight(RunReduceCases(*device_, 3, 1), 100); }
TEST_F(KernelsOnDevice, ScaleAsOnTheCpu) { ExpectAllRight(RunScaleCases(*device_, 4, 2), 32); }
TEST_F(KernelsOnDevice, FillAsOnTheCpu) { ExpectAllRight(RunFillCases(*device_, 5, 1), 80); }

TEST_F(KernelsOnDevice, RefuseBadArguments) {
  const CudaKernels& kernels = device_->kernels();
  int x = 0;
  EXPECT_EQ(Message(kernels.FillIdentity(&x, 1, DType::kI32, ReduceOp::kAvg, nullptr)),
            "avg has no identity: P(avg) keeps its value on every coordinate");
  EXPECT_EQ(Message(kernels.FillZero(&x, -1, nullptr)), "a count of -1 bytes is negative");
  EXPECT_EQ(Message(kernels.Cast(&x, DType::kI32, &x, DType::kI32, -1, nullptr)),
            "a count of -1 is negative");
  EXPECT_TRUE(kernels.Cast(nullptr, DType::kI32, nullptr, DType::kF32, 0, nullptr).ok());
  EXPECT_TRUE(kernels.ReduceBuffers({nullptr}, nullptr, 0, DType::kF32, {}, nullptr).ok());
}

}  // namespace
}  // namespace meshift
