#include "comm/nccl/ending_thread.h"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"

namespace meshift {

EndingThread::EndingThread(std::shared_ptr<CudaDevice> device, std::function<bool()> end)
    : thread_([state = state_, device = std::move(device), end = std::move(end)]() mutable {
        bool refused = false;
        {
          const CudaDevice::Scope scope(*device);
          refused = !end();
          end = nullptr;  // with what it has kept
        }
        const MutexLock lock(state->mutex);
        state->done = true;
        state->refused = refused;
        state->changed.notify_all();
      }) {}

std::unique_ptr<EndingThread> EndingThread::Abort(std::shared_ptr<const NcclLibrary> nccl,
                                                  std::shared_ptr<CudaDevice> device,
                                                  std::vector<ncclComm_t> comms,
                                                  std::vector<std::shared_ptr<void>> kept) {
  return std::unique_ptr<EndingThread>(
      new EndingThread(std::move(device),
                       [nccl = std::move(nccl), comms = std::move(comms), kept = std::move(kept)] {
                         bool aborted = true;
                         nccl->GroupStart();
                         for (const ncclComm_t comm : comms) {
                           aborted = nccl->CommAbort(comm) == ncclSuccess && aborted;
                         }
                         return nccl->GroupEnd() == ncclSuccess && aborted;
                       }));
}

std::unique_ptr<EndingThread> EndingThread::Destroy(std::shared_ptr<const NcclLibrary> nccl,
                                                    std::shared_ptr<CudaDevice> device,
                                                    std::vector<ncclComm_t> comms) {
  return std::unique_ptr<EndingThread>(
      new EndingThread(std::move(device), [nccl = std::move(nccl), comms = std::move(comms)] {
        bool destroyed = true;
        for (const ncclComm_t comm : comms) {
          destroyed = nccl->CommDestroy(comm) == ncclSuccess && destroyed;
        }
        return destroyed;
      }));
}

bool EndingThread::Await(std::chrono::nanoseconds patience) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  lock.WaitFor(state.changed, patience, [&]() MESHIFT_REQUIRES(state.mutex) { return state.done; });
  return state.done && !state.refused;
}

bool EndingThread::IsDone() {
  const MutexLock lock(state_->mutex);
  return state_->done;
}

EndingThread::~EndingThread() {
  if (IsDone()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace meshift
