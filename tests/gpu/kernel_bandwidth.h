// How fast the kernels are, as a share of a device-to-device copy measured in the same run.
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
  double of_copy = 0;   // share of the rate of cuMemcpyDtoD, which reads and writes too
};

struct Bandwidth {
  std::vector<BandwidthRow> rows;
  int left_out = 0;  // rows that there was no time for
};

// The first row is the copy itself. `bytes`: of the largest buffer of each kernel; of several
// repetitions the median counts. No further row is begun after `until`.
absl::StatusOr<Bandwidth> MeasureBandwidth(DeviceFixture& device, int64_t bytes, int repetitions,
                                           std::chrono::steady_clock::time_point until);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_KERNEL_BANDWIDTH_H_
