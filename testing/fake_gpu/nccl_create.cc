// The functions of nccl.h that make communicators.
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/recorder.h"

namespace meshift::fake {
namespace {

// Identifies a device: NCCL takes equal host and bus id for one GPU.
std::string DeviceName(int device) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const char* id = std::getenv("NCCL_HOSTID");
  return fmt::format("{} device {}", id != nullptr ? id : host, device);
}

// A call that the hub answers, and its effect on the communicator.
struct Opening {
  Comm* comm = nullptr;          // the new one; null: none is made
  Comm* parent = nullptr;        // busy until it is open, for non-blocking ones
  ncclComm_t* handle = nullptr;  // receives the new communicator of a split
  bool answered = false;         // guarded by the parent's or the new one's mutex
  ncclResult_t result = ncclSuccess;
  std::atomic<bool> ended = false;  // for a non-blocking parent
};
using OpeningRef = std::shared_ptr<Opening>;

// The communicator whose mutex guards `answered`.
Comm* Anchor(const Opening& opening) {
  return opening.comm != nullptr ? opening.comm : opening.parent;
}

void Finished(const OpeningRef& opening, ncclResult_t result) {
  Comm* anchor = Anchor(*opening);
  MutexLock lock(anchor->mutex);
  opening->answered = true;
  opening->result = result;
  anchor->changed.notify_all();
}

void Answered(const OpeningRef& opening, const Message& answer) {
  const bool refused = answer.kind == Message::Kind::kRefused;
  Comm* comm = opening->comm;
  if (comm != nullptr) {
    MutexLock lock(comm->mutex);
    if (refused) {
      comm->last_error = answer.text;
      comm->error = ncclInvalidUsage;
    } else {
      comm->id = answer.comm;
      comm->rank = answer.rank;
      comm->ranks = static_cast<int>(answer.a);
      if (comm->state == CommState::kOpening) comm->state = CommState::kOpen;
    }
  }
  Finished(opening, refused ? ncclInvalidUsage : ncclSuccess);
}

bool IsAborted(Comm* comm) {
  MutexLock lock(comm->mutex);
  return comm->state == CommState::kAborted;
}

// Counts the calling thread as blocked.
class BlockedScope {
 public:
  explicit BlockedScope(Comm* comm) : comm_(comm) { Count(1); }
  ~BlockedScope() { Count(-1); }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  void Count(int change) {
    if (comm_ == nullptr) return;
    MutexLock lock(comm_->mutex);
    comm_->blocked += change;
    comm_->changed.notify_all();
  }
  Comm* const comm_;
};

ncclResult_t Await(const OpeningRef& opening) {
  Comm* anchor = Anchor(*opening);
  const BlockedScope scope(opening->parent);
  // An abort of the parent by another thread ends the wait.
  while (opening->parent == nullptr || !IsAborted(opening->parent)) {
    MutexLock lock(anchor->mutex);
    const bool ended = lock.WaitFor(anchor->changed, std::chrono::milliseconds(1), [&] {
      return opening->answered || (anchor->error != ncclSuccess && anchor->error != ncclInProgress);
    });
    if (!ended) continue;
    if (!opening->answered) return anchor->error;
    if (opening->result != ncclSuccess) SetLastError(anchor->last_error);
    return opening->result;
  }
  return ncclInternalError;
}

void StoreHandle(const Opening& opening) {
  if (opening.handle == nullptr) return;
  __atomic_store_n(opening.handle, reinterpret_cast<ncclComm_t>(opening.comm), __ATOMIC_RELEASE);
}

// Ends a call of a non-blocking communicator, on a thread of NCCL's.
void EndOpening(const OpeningRef& opening, uint64_t cancel, const Message& answer) {
  if (opening->ended.exchange(true)) return;
  Answered(opening, answer);
  StoreHandle(*opening);
  if (opening->parent != nullptr) {
    RemoveCancel(opening->parent, cancel);
    {
      MutexLock lock(opening->parent->mutex);
      --opening->parent->opening;
    }
    EndBusy(opening->parent);
  }
  // A child exists before it is ready.
  if (opening->comm != nullptr) LaterAtRandom([opening] { EndBusy(opening->comm); });
}

// Sends the call. A blocking communicator then waits in Await; a non-blocking one is busy for a
// while.
ncclResult_t Open(const OpeningRef& opening, const LinkRef& link, Message message, bool blocking) {
  if (blocking) {
    Client::Get().Call(link, std::move(message),
                       [opening](const Message& answer) { Answered(opening, answer); });
    return ncclSuccess;
  }
  if (opening->comm != nullptr) BeginBusy(opening->comm);
  uint64_t cancel = 0;
  if (opening->parent != nullptr) {
    BeginBusy(opening->parent);
    {
      MutexLock lock(opening->parent->mutex);
      ++opening->parent->opening;
    }
    // The thread stores the child even if the parent is aborted meanwhile.
    cancel = AddCancel(opening->parent, [opening] {
      LaterAtRandom([opening] {
        Message aborted;
        aborted.kind = Message::Kind::kRefused;
        aborted.text = "the parent was aborted";
        EndOpening(opening, 0, aborted);
      });
    });
  }
  Client::Get().Call(link, std::move(message), [opening, cancel](const Message& answer) {
    LaterAtRandom([opening, cancel, answer] { EndOpening(opening, cancel, answer); });
  });
  return ncclInProgress;
}

// Checks the parent before a split.
ncclResult_t CheckParent(Comm* parent) {
  Core& core = TheCore();
  bool may_split = false;
  if (core.IsLent(parent, &may_split) && !may_split) {
    core.Violation("ncclCommSplit of a lent communicator without permission");
  }
  if (core.ForbiddenByCapture("ncclCommSplit")) return ncclInvalidUsage;
  if (HasUnfinished(parent)) {
    core.Violation(
        "ncclCommSplit while operations of the parent are unfinished, as far as the host has made "
        "sure");
  }
  MutexLock lock(parent->mutex);
  if (parent->state == CommState::kOpen) return ncclSuccess;
  core.Violation("ncclCommSplit of a finalized communicator");
  return ncclInvalidUsage;
}

// Makes the child of a parent: `message` asks the hub for it; null `comm`: the rank gets none.
ncclResult_t OpenChild(Comm* parent, Comm* child, ncclComm_t* result, Message message) {
  auto opening = std::make_shared<Opening>();
  opening->comm = child;
  opening->parent = parent;
  opening->handle = child == nullptr ? nullptr : result;
  *result = nullptr;
  if (child != nullptr) {
    child->device = parent->device;
    child->link = parent->link;
    MutexLock lock(parent->mutex);
    if (parent->config.splitShare == 1) {
      child->parent = parent;
      ++parent->sharing_children;
    }
  }
  const auto begin = [opening, parent, message]() -> ncclResult_t {
    if (parent->ranks == 1) {
      // No other rank takes part.
      Message answer;
      answer.kind = Message::Kind::kDone;
      answer.a = 1;
      if (parent->blocking) {
        Answered(opening, answer);
        return ncclSuccess;
      }
    }
    return Open(opening, parent->link, message, parent->blocking);
  };
  const auto wait = [opening, parent] {
    const ncclResult_t opened = Await(opening);
    if (opened == ncclSuccess || IsAborted(parent)) StoreHandle(*opening);
    return opened;
  };
  GroupBegin();
  GroupAddJob(parent, begin, wait);
  const ncclResult_t opened = GroupFinish();
  return opened == ncclInProgress ? ResultOfMaking() : opened;
}

// Records a communicator's configuration and name, for tests.
void RecordConfig(const Comm* comm, const char* how, const void* from) {
  TheCore().Enter(
      "communicator", kPlainCall,
      fmt::format("{} {} {} ctas {} to {} collnet {}", static_cast<const void*>(comm), how, from,
                  comm->config.minCTAs, comm->config.maxCTAs, comm->config.collnetEnable));
  if (comm->config.commName == nullptr) return;
  const std::string name = fmt::format("communicator {}", comm->config.commName);
  TheCore().Enter(name.c_str(), kPlainCall, "");
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const int fault = TheCore().Enter("ncclGetUniqueId", kPlainCall, ""); fault != 0) {
    return static_cast<ncclResult_t>(fault);
  }
  if (id == nullptr) return Fail(nullptr, ncclInvalidArgument, "ncclGetUniqueId: NULL");
  return Client::Get().MakeId(id) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Core& core = TheCore();
  const int fault =
      core.Enter("ncclCommInitRankConfig", kCreatesComm, fmt::format("rank {} of {}", rank, ranks));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  if (core.ForbiddenByCapture("ncclCommInitRankConfig")) return ncclInvalidUsage;
  if (result == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return Fail(nullptr, ncclInvalidArgument, fmt::format("rank {} of {}", rank, ranks));
  }
  *result = nullptr;
  const int device = core.CurrentDevice();
  if (device < 0) {
    return Fail(nullptr, ncclUnhandledCudaError, "no CUDA context is current");
  }
  Comm* comm = NewComm();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->device = device;
  if (const ncclResult_t configured = Configure(config, nullptr, comm); configured != ncclSuccess) {
    comm->state = CommState::kAborted;
    return configured;
  }
  auto opening = std::make_shared<Opening>();
  opening->comm = comm;
  const auto begin = [opening, comm, id, result]() -> ncclResult_t {
    Message message;
    message.kind = Message::Kind::kJoin;
    comm->link = Client::Get().LinkTo(id, &message.comm);
    if (comm->link == nullptr) {
      MutexLock lock(comm->mutex);
      comm->state = CommState::kAborted;
      SetLastError("no process listens at the unique id's address");
      return ncclSystemError;
    }
    message.rank = comm->rank;
    message.a = comm->ranks;
    message.text = DeviceName(comm->device);
    if (!comm->blocking) *result = reinterpret_cast<ncclComm_t>(comm);
    return Open(opening, comm->link, std::move(message), comm->blocking);
  };
  const auto wait = [opening, comm, result] {
    const ncclResult_t opened = Await(opening);
    if (opened == ncclSuccess) {
      *result = reinterpret_cast<ncclComm_t>(comm);
    } else {
      MutexLock lock(comm->mutex);
      comm->state = CommState::kAborted;
    }
    return opened;
  };
  GroupBegin();
  GroupAddJob(comm, begin, wait);
  return GroupFinish();
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* result,
                           ncclConfig_t* config) {
  Core& core = TheCore();
  const int fault =
      core.Enter("ncclCommSplit", kCreatesComm,
                 fmt::format("{} color {} key {}", static_cast<void*>(handle), color, key));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  Comm* parent = nullptr;
  if (const ncclResult_t found = FindComm("ncclCommSplit", handle, &parent); found != ncclSuccess) {
    return found;
  }
  CallerScope scope("ncclCommSplit", parent);
  if (result == nullptr || color < NCCL_SPLIT_NOCOLOR) {
    return Fail(parent, ncclInvalidArgument, fmt::format("ncclCommSplit: color {}", color));
  }
  if (const ncclResult_t ok = CheckParent(parent); ok != ncclSuccess) return ok;
  Comm* child = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    child = NewComm();
    if (const ncclResult_t ok = Configure(config, parent, child); ok != ncclSuccess) {
      child->state = CommState::kAborted;
      return ok;
    }
    RecordConfig(child, "split from", handle);
  }
  Message message;
  message.kind = Message::Kind::kSplit;
  message.comm = parent->id;
  message.rank = parent->rank;
  message.a = color;
  message.b = key;
  {
    MutexLock lock(parent->mutex);
    message.seq = parent->splits++;
  }
  return OpenChild(parent, child, result, std::move(message));
}

}  // extern "C"
