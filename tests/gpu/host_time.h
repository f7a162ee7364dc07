// What a cached call costs the calling thread, beside the NCCL call that it makes.
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
  // ncclAllReduce of two floats, on a communicator of its own: a blocking one; and one that is not,
  // as the engine's, with waiting until NCCL is through with the call.
  double raw_us = 0;
  double polled_us = 0;
  double call_us = 0;  // the redistribution of the same tensor: P -> R over all ranks
};

// The median of what one `call` takes that puts work on a stream, in rounds of ten calls; `finish`
// waits for the work of a round. The first round, which plans, splits and loads, does not count. No
// further rounds are begun after `budget`, by rank 0's clock. Collective.
absl::StatusOr<double> MedianUs(Bootstrap& bootstrap, const std::function<absl::Status()>& call,
                                const std::function<absl::Status()>& finish,
                                std::chrono::milliseconds budget = std::chrono::seconds(10));

// Medians over calls that only put work on a stream. Takes about a minute where calls are slow.
// Collective over the engine's ranks, which are the bootstrap's.
absl::StatusOr<HostTime> MeasureHostTime(NcclEngine& engine, Bootstrap& bootstrap);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_HOST_TIME_H_
