// How long a job waits for what should not take long. Not a public header.
#ifndef MESHIFT_COMM_NCCL_JOB_TIMES_H_
#define MESHIFT_COMM_NCCL_JOB_TIMES_H_

#include <chrono>

namespace meshift {

// After a failure: how long work may take to leave the device before a waiting thread goes on.
constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(300);
// And for how long a call whose launch NCCL still works on waits for the abort, which takes 0.6 to
// 1.0 s: NCCL's threads look up every half second.
constexpr std::chrono::nanoseconds kSettleGrace = std::chrono::seconds(5);
// How long NCCL is waited for when all is over, before its threads are left to the process.
constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_JOB_TIMES_H_
