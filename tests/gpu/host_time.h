// Measures the calling thread's time for a cached call, and for the NCCL call inside it.
#ifndef MESHIFT_TESTS_GPU_HOST_TIME_H_
#define MESHIFT_TESTS_GPU_HOST_TIME_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/nccl_engine.h"

namespace meshift {

struct HostTime {
  // An ncclAllReduce of two floats on a separate communicator: on a blocking one; and on a
  // non-blocking one like the engine's, including the wait until NCCL is done with the call.
  double raw_us = 0;
  double polled_us = 0;
  double call_us = 0;  // the redistribution of the same tensor: P -> R over all ranks
};

// The median time of a `call` that puts work on a stream, in rounds of ten calls; `finish` waits
// for the work of a round. Ignores the first round, which plans, splits and loads. Begins no more
// rounds after `budget`, by rank 0's clock. Collective.
absl::StatusOr<double> MedianUs(Bootstrap& bootstrap, const std::function<absl::Status()>& call,
                                const std::function<absl::Status()>& finish,
                                std::chrono::milliseconds budget = std::chrono::seconds(10));

// Medians over calls that only put work on a stream. Takes about a minute if calls are slow.
// Collective over the engine's ranks, which must be the bootstrap's.
absl::StatusOr<HostTime> MeasureHostTime(NcclEngine& engine, Bootstrap& bootstrap);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_HOST_TIME_H_
