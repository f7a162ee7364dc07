// The functions of nccl.h that end communicators, and that return their state.
#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <thread>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/recorder.h"

namespace meshift::fake {
namespace {

// Blocks until the communicator has no unfinished launch; false: it has an error.
bool AwaitLaunches(Comm* comm) {
  MutexLock lock(comm->mutex);
  lock.Wait(comm->changed, [&] {
    return comm->unfinished.empty() || comm->error != ncclSuccess ||
           comm->state == CommState::kAborted;
  });
  return comm->error == ncclSuccess && comm->state != CommState::kAborted;
}

// Blocks until all ranks destroy the communicator, or have ended it otherwise. All count as ranks
// of one host, whose proxies serve each other (NCCL's documentation of ncclCommDestroy: "intra-node
// collective").
void AwaitOthers(const char* function, Comm* comm) {
  const auto quiet = [comm] {
    MutexLock lock(comm->mutex);
    comm->quiet = true;
    comm->changed.notify_all();
  };
  if (comm->ranks == 1 || comm->link == nullptr) return quiet();
  Message message;
  message.kind = Message::Kind::kDestroy;
  message.comm = comm->id;
  message.rank = comm->rank;
  Client::Get().Call(comm->link, std::move(message), [quiet](const Message&) { quiet(); });
  MutexLock lock(comm->mutex);
  const bool came = lock.WaitFor(comm->changed, kPatience, [&] {
    return comm->quiet || comm->error != ncclSuccess || comm->state == CommState::kAborted;
  });
  if (!came) {
    TheCore().Violation(
        fmt::format("{} of communicator {}: other ranks do not destroy or abort "
                    "theirs",
                    function, comm->id));
  }
}

// Waits for this rank's launches only, not for other ranks.
ncclResult_t FinalizeAndWait(const char* function, Comm* comm) {
  if (AwaitLaunches(comm)) AwaitGraphs(function, comm);
  MutexLock lock(comm->mutex);
  return comm->error;
}

// For non-blocking communicators: continues in the background until the launches are done.
void FinalizeInBackground(Comm* comm) {
  bool ready = !TheCore().InGraph(comm);
  bool failed = false;
  {
    MutexLock lock(comm->mutex);
    ready = ready && comm->unfinished.empty();
    failed = comm->error != ncclSuccess || comm->state == CommState::kAborted;
  }
  if (ready || failed) {
    EndBusy(comm);
  } else {
    LaterAtRandom([comm] { FinalizeInBackground(comm); });
  }
}

// For a non-blocking communicator, the call that learns that an earlier one is done frees NCCL's
// memory for it (src/init.cc, ncclCommGetAsyncError). So two threads must not ask at once, and for
// a lent communicator only the thread that made the earlier call may ask.
class AskerScope {
 public:
  explicit AskerScope(Comm* comm) : comm_(comm) {
    const bool alone = comm->askers.fetch_add(1) == 0;
    if (comm->blocking) return;
    if (!alone) {
      TheCore().Violation("ncclCommGetAsyncError of a non-blocking communicator by two threads");
    }
    bool may_split = false;
    if (!TheCore().IsLent(comm, &may_split)) return;
    MutexLock lock(comm->mutex);
    if (comm->unseen && comm->busy_thread != TheCore().ThreadId()) {
      TheCore().Violation(
          "ncclCommGetAsyncError of a lent non-blocking communicator while a call of another "
          "thread is in progress");
    }
  }
  ~AskerScope() { --comm_->askers; }
  AskerScope(const AskerScope&) = delete;
  AskerScope& operator=(const AskerScope&) = delete;

 private:
  Comm* const comm_;
};

void TellHubOfLeaving(Comm* comm) {
  if (comm->link == nullptr || comm->ranks == 1) return;
  Message message;
  message.kind = Message::Kind::kLeave;
  {
    MutexLock lock(comm->mutex);
    if (comm->id == 0) return;
    message.comm = comm->id;
    message.rank = comm->rank;
  }
  Client::Get().Call(comm->link, std::move(message), nullptr);
}

}  // namespace

void RefuseLent(const char* function, Comm* comm) {
  bool may_split = false;
  if (TheCore().IsLent(comm, &may_split)) {
    TheCore().Violation(fmt::format("{} of a lent communicator", function));
  }
}

void AwaitGraphs(const char* function, Comm* comm) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (TheCore().InGraph(comm)) {
    if (std::chrono::steady_clock::now() > until) {
      TheCore().Violation(fmt::format(
          "{} of communicator {} waits for graphs that have operations of it", function, comm->id));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Close(Comm* comm, CommState state) {
  SeenReady(comm);
  TellHubOfLeaving(comm);
  Comm* parent = nullptr;
  {
    MutexLock lock(comm->mutex);
    comm->state = state;
    parent = std::exchange(comm->parent, nullptr);
    comm->changed.notify_all();
  }
  if (parent != nullptr) {
    MutexLock lock(parent->mutex);
    --parent->sharing_children;
  }
}

namespace {

ncclResult_t EnterFor(const char* function, uint32_t traits, ncclComm_t comm) {
  return static_cast<ncclResult_t>(
      TheCore().Enter(function, traits, fmt::format("{}", static_cast<void*>(comm))));
}

template <typename Get>
ncclResult_t Ask(const char* function, ncclComm_t handle, int* value, Get get) {
  if (const ncclResult_t fault = EnterFor(function, kPlainCall, handle); fault != ncclSuccess) {
    return fault;
  }
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindComm(function, handle, &comm); found != ncclSuccess) {
    return found;
  }
  if (value == nullptr) return ncclInvalidArgument;
  *value = get(*comm);
  return ncclSuccess;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (const ncclResult_t fault = EnterFor("ncclCommFinalize", kCreatesComm | kSynchronises, handle);
      fault != ncclSuccess) {
    return fault;
  }
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindComm("ncclCommFinalize", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  CallerScope scope("ncclCommFinalize", comm);
  RefuseLent("ncclCommFinalize", comm);
  {
    MutexLock lock(comm->mutex);
    if (comm->state != CommState::kOpen) {
      TheCore().Violation("ncclCommFinalize of a communicator that was finalized");
      return ncclInvalidUsage;
    }
    comm->state = CommState::kFinalized;
  }
  if (comm->blocking) return FinalizeAndWait("ncclCommFinalize", comm);
  BeginBusy(comm);
  LaterAtRandom([comm] { FinalizeInBackground(comm); });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (const ncclResult_t fault = EnterFor("ncclCommDestroy", kCreatesComm | kSynchronises, handle);
      fault != ncclSuccess) {
    return fault;
  }
  if (handle == nullptr) return ncclSuccess;
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindBusyComm("ncclCommDestroy", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  CallerScope scope("ncclCommDestroy", comm);
  RefuseLent("ncclCommDestroy", comm);
  bool finalized = false;
  {
    MutexLock lock(comm->mutex);
    if ((comm->busy > 0 || comm->unseen) && comm->error == ncclSuccess) {
      TheCore().Violation("ncclCommDestroy before ncclCommGetAsyncError has said that it is ready");
    }
    if (comm->sharing_children > 0) {
      TheCore().Violation("ncclCommDestroy of a communicator whose resources a child shares");
    }
    finalized = comm->state != CommState::kOpen;
  }
  ncclResult_t result = ncclSuccess;
  if (!finalized) result = FinalizeAndWait("ncclCommDestroy", comm);
  if (result == ncclSuccess) AwaitOthers("ncclCommDestroy", comm);
  CancelUnfinished(comm);
  Close(comm, CommState::kDestroyed);
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  if (const ncclResult_t fault = EnterFor("ncclCommGetAsyncError", kPlainCall, handle);
      fault != ncclSuccess) {
    return fault;
  }
  Comm* comm = nullptr;
  if (const ncclResult_t found = FindBusyComm("ncclCommGetAsyncError", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  if (error == nullptr) return ncclInvalidArgument;
  const AskerScope asker(comm);
  const bool held = TheCore().IsHeld(comm->device);
  {
    MutexLock lock(comm->mutex);
    const bool busy = comm->busy > 0 || (held && comm->unseen);
    *error = comm->error != ncclSuccess ? comm->error : busy ? ncclInProgress : ncclSuccess;
    if (*error != ncclSuccess || !comm->unseen) return ncclSuccess;
  }
  SeenReady(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return Ask("ncclCommCount", comm, count, [](const Comm& c) { return c.ranks; });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return Ask("ncclCommCuDevice", comm, device, [](const Comm& c) { return c.device; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return Ask("ncclCommUserRank", comm, rank, [](const Comm& c) { return c.rank; });
}

ncclResult_t ncclGetVersion(int* version) {
  TheCore().Enter("ncclGetVersion", kPlainCall, "");
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  if (handle != nullptr) {
    Comm* comm = nullptr;
    if (FindBusyComm("ncclGetLastError", handle, &comm) == ncclSuccess) {
      MutexLock lock(comm->mutex);
      if (!comm->last_error.empty()) SetLastError(comm->last_error);
    }
  }
  return LastError();
}

}  // extern "C"
