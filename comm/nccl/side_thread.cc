#include "comm/nccl/side_thread.h"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "comm/nccl/device.h"

namespace meshift {

SideThread::SideThread(std::shared_ptr<CudaDevice> device, std::function<bool()> work)
    : thread_([state = state_, device = std::move(device), work = std::move(work)]() mutable {
        bool result = false;
        {
          const CudaDevice::Scope scope(*device);
          result = work();
          work = nullptr;  // destroys its captures
        }
        device = nullptr;
        const MutexLock lock(state->mutex);
        state->done = true;
        state->result = result;
        state->changed.notify_all();
      }) {}

std::unique_ptr<SideThread> SideThread::Start(std::shared_ptr<CudaDevice> device,
                                              std::function<bool()> work) {
  return std::unique_ptr<SideThread>(new SideThread(std::move(device), std::move(work)));
}

bool SideThread::Await(std::chrono::nanoseconds patience) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  lock.WaitFor(state.changed, patience, [&]() MESHIFT_REQUIRES(state.mutex) { return state.done; });
  return state.done && state.result;
}

bool SideThread::IsDone() {
  const MutexLock lock(state_->mutex);
  return state_->done;
}

SideThread::~SideThread() {
  if (IsDone()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace meshift
