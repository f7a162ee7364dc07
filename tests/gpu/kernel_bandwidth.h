// Measures the speed of the kernels, relative to a device-to-device copy in the same run.
#ifndef MESHIFT_TESTS_GPU_KERNEL_BANDWIDTH_H_
#define MESHIFT_TESTS_GPU_KERNEL_BANDWIDTH_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "testing/internal/cuda/device_fixture.h"

namespace meshift {

struct BandwidthRow {
  std::string what;
  double gb_per_s = 0;  // 10^9 bytes read and written
  double of_copy = 0;   // relative to cuMemcpyDtoD, whose reads and writes count, too
};

struct Bandwidth {
  std::vector<BandwidthRow> rows;
  int left_out = 0;  // rows skipped because the time was over
};

// The first row is the copy itself. `bytes`: the size of the largest buffer of each kernel. Reports
// the median of the repetitions. Begins no more rows after `until`.
absl::StatusOr<Bandwidth> MeasureBandwidth(DeviceFixture& device, int64_t bytes, int repetitions,
                                           std::chrono::steady_clock::time_point until);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_KERNEL_BANDWIDTH_H_
