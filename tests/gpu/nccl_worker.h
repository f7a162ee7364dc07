// One rank of nccl_check: a process that runs conformance cases on the NCCL engine.
#ifndef MESHIFT_TESTS_GPU_NCCL_WORKER_H_
#define MESHIFT_TESTS_GPU_NCCL_WORKER_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

struct WorkerOptions {
  int64_t cases = 0;
  // No more cases begin after this time, except the first.
  std::chrono::seconds budget = std::chrono::seconds(600);
  int max_ctas = 1;              // all ranks' kernels must fit on one device at once
  bool batch_invariant = false;  // plans with that promise
  bool times = true;             // measures host times, which takes up to a minute
  std::string result;            // file that rank 0 writes before and after it measures times
};

// The result that rank 0 writes and the parent reads.
struct WorkerResult {
  int64_t planned = 0;  // requested cases
  int64_t cases = 0;
  int64_t runs = 0;
  int64_t wrong = 0;
  int64_t replicas_differ = 0;
  int64_t miscounted = 0;
  double seconds = 0;
  // Host times as in HostTime; 0: not measured.
  double raw_us = 0;
  double polled_us = 0;
  double call_us = 0;
  std::string nccl_version;
  // The promise: "kept by NCCL's all-reduce", "kept in order: why"; empty if none was requested.
  std::string promise;
  std::string first;  // the first error; empty: none

  std::string ToString() const;  // one line, which Parse reads
  static absl::StatusOr<WorkerResult> Parse(const std::string& line);
};

// Loads the driver and NCCL and counts devices; returns an error if that fails.
absl::Status ProbeGpu();

// Runs as the rank that torchrun's variables give, on device 0. Returns an error of any rank.
absl::Status RunWorker(const WorkerOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_NCCL_WORKER_H_
