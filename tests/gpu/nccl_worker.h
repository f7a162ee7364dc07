// One rank of nccl_check: a process of its own, which runs conformance cases on the NCCL engine.
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
  // No further cases are begun after that, but for the first; it does not hold for ever.
  std::chrono::seconds budget = std::chrono::seconds(600);
  int max_ctas = 1;              // all ranks' kernels have to fit on one device at once
  bool batch_invariant = false;  // plans under that promise
  bool times = true;             // measures the host's times, which takes up to a minute
  std::string result;  // file that rank 0 writes, before it measures times and again afterwards
};

// What rank 0 writes, and the parent reads.
struct WorkerResult {
  int64_t planned = 0;  // cases that were asked for
  int64_t cases = 0;
  int64_t runs = 0;
  int64_t wrong = 0;
  int64_t replicas_differ = 0;
  int64_t miscounted = 0;
  double seconds = 0;
  // Of the host, as in HostTime; 0: not measured.
  double raw_us = 0;
  double polled_us = 0;
  double call_us = 0;
  std::string nccl_version;
  // Of the promise: "kept by NCCL's all-reduce", "kept in order: why"; empty where none was asked
  // for.
  std::string promise;
  std::string first;  // what is wrong; empty: nothing

  std::string ToString() const;  // one line, that Parse reads
  static absl::StatusOr<WorkerResult> Parse(const std::string& line);
};

// Loads the driver and NCCL and counts devices; else the reason why not.
absl::Status ProbeGpu();

// Runs as the rank that torchrun's variables say, on device 0. An error of any rank is returned.
absl::Status RunWorker(const WorkerOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_NCCL_WORKER_H_
