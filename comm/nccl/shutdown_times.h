// How long an NcclContext waits after a failure. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_SHUTDOWN_TIMES_H_
#define MESHIFT_COMM_NCCL_SHUTDOWN_TIMES_H_

#include <chrono>

namespace meshift {

// How long a waiting thread gives work on the device to end.
constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(300);
// How long a failed call, whose launch NCCL still works on, waits for the abort, or for NCCL on a
// lent communicator. An abort usually takes 0.6 to 1.0 s, since NCCL's threads poll every half
// second.
constexpr std::chrono::nanoseconds kSettleGrace = std::chrono::seconds(5);
// How long Close() waits, after a failure, for NCCL's destroy calls, and then as long for its abort
// calls, before it leaks their threads. Without a failure it waits until the set-up time-out, and
// then fails.
constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_SHUTDOWN_TIMES_H_
