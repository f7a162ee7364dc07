#include "comm/nccl/abort_thread.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {
namespace {

constexpr std::chrono::seconds kPatience(2);

}  // namespace

AbortThread::AbortThread(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device,
                         std::vector<ncclComm_t> comms, std::vector<std::shared_ptr<void>> kept)
    : thread_([state = state_, nccl = std::move(nccl), device = std::move(device),
               comms = std::move(comms), kept = std::move(kept)] {
        bool refused = false;
        {
          const Device::Scope scope(*device);
          nccl->GroupStart();
          for (const ncclComm_t comm : comms) {
            refused = nccl->CommAbort(comm) != ncclSuccess || refused;
          }
          refused = nccl->GroupEnd() != ncclSuccess || refused;
        }
        const MutexLock lock(state->mutex);
        state->done = true;
        state->refused = refused;
        state->changed.notify_all();
      }) {}

bool AbortThread::Await(std::chrono::nanoseconds patience) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  lock.WaitFor(state.changed, patience, [&]() MESHIFT_REQUIRES(state.mutex) { return state.done; });
  return state.done && !state.refused;
}

AbortThread::~AbortThread() {
  State& state = *state_;
  bool done = false;
  {
    MutexLock lock(state.mutex);
    done = lock.WaitFor(state.changed, kPatience,
                        [&]() MESHIFT_REQUIRES(state.mutex) { return state.done; });
  }
  if (done) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace meshift
