// ncclCommAbort. It tells the kernels to stop at once, then frees the communicator's resources. For
// that it may have to wait for all work of the device, and for graphs with captured operations. If
// another communicator's kernels hold up that work, the wait does not end. So communicators are
// aborted in one group, which tells all of them to stop before it waits for any.
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/recorder.h"

namespace meshift::fake {
namespace {

// Another communicator of the device that may have unfinished work, as far as the host knows, and
// that its user may abort; null if there is none.
Comm* Beside(const Comm* aborted) {
  for (Comm* comm : AllComms()) {
    bool may_split = false;
    if (comm->device != aborted->device || TheCore().IsLent(comm, &may_split)) continue;
    {
      MutexLock lock(comm->mutex);
      if (comm->state == CommState::kAborted || comm->state == CommState::kDestroyed) continue;
    }
    if (HasUnfinished(comm)) return comm;
  }
  return nullptr;
}

}  // namespace

void AwaitAborts(const std::vector<Comm*>& comms) {
  for (const Comm* comm : comms) {
    if (const Comm* beside = Beside(comm); beside != nullptr) {
      TheCore().Violation(fmt::format(
          "ncclCommAbort of communicator {} while operations of communicator {} of its device are "
          "unfinished, as far as the host has made sure: it may wait for them, so both are aborted "
          "in one group",
          comm->id, beside->id));
    }
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (Comm* comm : comms) {
    while (!TheCore().IsIdle(comm->device) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    AwaitGraphs("ncclCommAbort", comm);
  }
}

}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API

extern "C" ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const int fault =
      TheCore().Enter("ncclCommAbort", kCreatesComm, fmt::format("{}", static_cast<void*>(handle)));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  if (handle == nullptr) return ncclSuccess;
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindBusyComm("ncclCommAbort", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  RefuseLent("ncclCommAbort", comm);
  Close(comm, CommState::kAborted);
  std::map<uint64_t, std::function<void()>> cancels;
  {
    meshift::MutexLock lock(comm->mutex);
    cancels = comm->cancels;
  }
  for (const auto& [number, cancel] : cancels) cancel();
  {
    // After the wait nothing of the communicator comes to a stream, no thread is inside a blocked
    // call, and its split children exist, for their owners to end.
    meshift::MutexLock lock(comm->mutex);
    lock.Wait(comm->changed,
              [&] { return comm->launching == 0 && comm->blocked == 0 && comm->opening == 0; });
  }
  CancelUnfinished(comm);
  GroupBegin();
  GroupAddAbort(comm);
  return GroupFinish();
}
