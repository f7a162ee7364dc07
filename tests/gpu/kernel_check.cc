// Checks the CUDA kernels on a device against the CPU, bit by bit, and compares their speed with
// that of a device-to-device copy.
//
//   kernel_check [copies [rounds [MiB [seconds]]]]
//
// Cases of copies (default 150), rounds of the other cases (3), size of the timed buffers (512; 0:
// no timing). After `seconds` seconds (default: no limit) no more cases begin, and a line names the
// skipped part.
//
// Exit codes: 0 all is right; 1 something is wrong; 2 bad usage; 3 no GPU to check.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/status.h"
#include "testing/internal/cuda/device_fixture.h"
#include "testing/internal/cuda/kernel_cases.h"
#include "tests/gpu/kernel_bandwidth.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Prints a row of the table; returns whether all cases were right.
bool Print(const char* what, const absl::StatusOr<CaseTally>& tally) {
  if (!tally.ok()) {
    fmt::print("{:<20} failed: {}\n", what, Message(tally.status()));
    return false;
  }
  fmt::print("{:<20}{:>10}{:>10}\n", what, tally->run, tally->wrong);
  if (tally->wrong > 0) fmt::print("  the first wrong one: {}\n", tally->first_wrong);
  return tally->wrong == 0;
}

struct Options {
  int copies = 150;
  int rounds = 3;
  int64_t mib = 512;
  int seconds = 0;  // 0: no limit
};

// Runs `cases` copies in parts, as long as there is time.
absl::StatusOr<CaseTally> Copies(DeviceFixture& device, int cases, Clock::time_point until) {
  constexpr int kPart = 10;
  CaseTally all;
  for (uint64_t seed = 1; all.run < cases && (seed == 1 || Clock::now() < until); ++seed) {
    const int part = std::min(kPart, cases - static_cast<int>(all.run));
    MESHIFT_ASSIGN_OR_RETURN(const CaseTally tally, RunCopyCases(device, seed, part));
    all.run += part;
    all.wrong += tally.wrong;
    if (all.first_wrong.empty()) all.first_wrong = tally.first_wrong;
  }
  return all;
}

int Check(const Options& options) {
  const auto until = options.seconds == 0 ? Clock::time_point::max()
                                          : Clock::now() + std::chrono::seconds(options.seconds);
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
  bool right = Print("copies of boxes", Copies(device, options.copies, until));
  using Run = absl::StatusOr<CaseTally> (*)(DeviceFixture&, uint64_t, int);
  const struct {
    const char* what;
    Run run;
    uint64_t seed;
    int rounds;
  } kinds[] = {{"casts", RunCastCases, 2, options.rounds},
               {"reductions", RunReduceCases, 3, options.rounds},
               {"divisions", RunScaleCases, 4, 5 * options.rounds},
               {"fills", RunFillCases, 5, options.rounds}};
  for (const auto& kind : kinds) {
    if (Clock::now() >= until) {
      fmt::print("{:<20} left out: {} s are over\n", kind.what, options.seconds);
      continue;
    }
    right = Print(kind.what, kind.run(device, kind.seed, kind.rounds)) && right;
  }
  std::fflush(stdout);
  if (options.mib == 0) return right ? 0 : 1;
  constexpr int kRepetitions = 15;
  const auto measured = MeasureBandwidth(device, options.mib << 20, kRepetitions, until);
  if (!measured.ok()) {
    fmt::print("\nno bandwidth: {}\n", Message(measured.status()));
    return 1;
  }
  fmt::print("\n{:<40}{:>10}{:>12}\n", fmt::format("bandwidth, {} MiB", options.mib), "GB/s",
             "of copy");
  for (const BandwidthRow& row : measured->rows) {
    fmt::print("{:<40}{:>10.0f}{:>12.2f}\n", row.what, row.gb_per_s, row.of_copy);
  }
  if (measured->left_out > 0) {
    fmt::print("{} more left out: {} s are over\n", measured->left_out, options.seconds);
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  meshift::Options options;
  if (argc > 1) options.copies = std::atoi(argv[1]);
  if (argc > 2) options.rounds = std::atoi(argv[2]);
  if (argc > 3) options.mib = std::atoll(argv[3]);
  if (argc > 4) options.seconds = std::atoi(argv[4]);
  if (argc > 5 || options.copies < 1 || options.rounds < 1 || options.mib < 0 ||
      options.seconds < 0) {
    fmt::print(stderr, "usage: kernel_check [copies [rounds [MiB [seconds]]]]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return meshift::Check(options);
}
