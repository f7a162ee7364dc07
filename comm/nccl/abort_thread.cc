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
        {
          const Device::Scope scope(*device);
          // The results say nothing new.
          nccl->GroupStart();
          for (const ncclComm_t comm : comms) nccl->CommAbort(comm);
          nccl->GroupEnd();
        }
        const MutexLock lock(state->mutex);
        state->done = true;
        state->changed.notify_all();
      }) {}

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
