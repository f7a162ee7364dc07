// Checks the CUDA kernels on a device against the CPU, bit by bit, and measures them against a
// device-to-device copy.
//
//   kernel_check [copies [rounds [MiB]]]
//
// Cases of copies (default 150), rounds of the other cases (3), size of the buffers that are timed
// (512).
//
// Ends with 0: all is right; 1: something is wrong; 2: bad usage; 3: there is no GPU to check.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/device_fixture.h"
#include "comm/cuda/kernel_cases.h"
#include "tests/gpu/kernel_bandwidth.h"

namespace meshift {
namespace {

// Prints a row of the table; whether all cases were right.
bool Print(const char* what, const absl::StatusOr<CaseTally>& tally) {
  if (!tally.ok()) {
    fmt::print("{:<20} failed: {}\n", what, Message(tally.status()));
    return false;
  }
  fmt::print("{:<20}{:>10}{:>10}\n", what, tally->run, tally->wrong);
  if (tally->wrong > 0) fmt::print("  the first wrong one: {}\n", tally->first_wrong);
  return tally->wrong == 0;
}

int Check(int copies, int rounds, int64_t mib) {
  auto opened = DeviceFixture::Create(0);
  if (!opened.ok()) {
    fmt::print(stderr, "no GPU to check: {}\n", Message(opened.status()));
    return 3;
  }
  DeviceFixture& device = **opened;
  const int version = device.driver_version();
  fmt::print("device {}, driver for CUDA {}.{}\n\n", device.name(), version / 1000,
             version % 1000 / 10);
  fmt::print("{:<20}{:>10}{:>10}\n", "kernels as the CPU", "cases", "wrong");
  bool right = Print("copies of boxes", RunCopyCases(device, 1, copies));
  right = Print("casts", RunCastCases(device, 2, rounds)) && right;
  right = Print("reductions", RunReduceCases(device, 3, rounds)) && right;
  right = Print("divisions", RunScaleCases(device, 4, 5 * rounds)) && right;
  right = Print("fills", RunFillCases(device, 5, rounds)) && right;
  std::fflush(stdout);
  constexpr int kRepetitions = 15;
  const auto rows = MeasureBandwidth(device, mib << 20, kRepetitions);
  if (!rows.ok()) {
    fmt::print("\nno bandwidth: {}\n", Message(rows.status()));
    return 1;
  }
  fmt::print("\n{:<40}{:>10}{:>12}\n", fmt::format("bandwidth, {} MiB", mib), "GB/s", "of copy");
  for (const BandwidthRow& row : *rows) {
    fmt::print("{:<40}{:>10.0f}{:>12.2f}\n", row.what, row.gb_per_s, row.of_copy);
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const int copies = argc > 1 ? std::atoi(argv[1]) : 150;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const int64_t mib = argc > 3 ? std::atoll(argv[3]) : 512;
  if (argc > 4 || copies < 1 || rounds < 1 || mib < 1) {
    fmt::print(stderr, "usage: kernel_check [copies [rounds [MiB]]]\n");
    return 2;
  }
  return meshift::Check(copies, rounds, mib);
}
