// Random cases for the kernels on a real device. Each runs there and on the CPU, in memory with
// equal bytes, and must leave equal bytes, also around its output.
//
//   MESHIFT_ASSIGN_OR_RETURN(CaseTally tally, RunCopyCases(*device, /*seed=*/1, /*cases=*/500));
//   if (tally.wrong > 0) Print(tally.first_wrong);    // "cast of 4097 bf16 to f32, ..."
#ifndef MESHIFT_TESTING_INTERNAL_CUDA_KERNEL_CASES_H_
#define MESHIFT_TESTING_INTERNAL_CUDA_KERNEL_CASES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "testing/internal/cuda/device_fixture.h"

namespace meshift {

struct CaseTally {
  int64_t run = 0;
  int64_t wrong = 0;
  std::string first_wrong;  // names a case
};

// Every second batch of cases runs as one captured graph. An error of the driver ends the run.
absl::StatusOr<CaseTally> RunCopyCases(DeviceFixture& device, uint64_t seed, int cases);
// Every pair of dtypes, `rounds` times; for reductions every op and dtype.
absl::StatusOr<CaseTally> RunCastCases(DeviceFixture& device, uint64_t seed, int rounds);
absl::StatusOr<CaseTally> RunReduceCases(DeviceFixture& device, uint64_t seed, int rounds);
absl::StatusOr<CaseTally> RunScaleCases(DeviceFixture& device, uint64_t seed, int rounds);
absl::StatusOr<CaseTally> RunFillCases(DeviceFixture& device, uint64_t seed, int rounds);

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_CUDA_KERNEL_CASES_H_
