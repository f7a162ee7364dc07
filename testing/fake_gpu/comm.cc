#include "testing/fake_gpu/comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace meshift::fake {
namespace {

struct Registry {
  Mutex mutex;
  std::set<Comm*> comms;
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry();
  return registry;
}

}  // namespace

std::vector<Comm*> AllComms() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  return {registry.comms.begin(), registry.comms.end()};
}

namespace {

// Handles a message from the hub that does not answer a call.
void Hear(const Link* link, const Message& message) {
  for (Comm* comm : AllComms()) {
    MutexLock lock(comm->mutex);
    const bool addressed =
        message.comm == 0 || (comm->id == message.comm && comm->rank == message.rank);
    const bool live = comm->state == CommState::kOpen || comm->state == CommState::kOpening ||
                      comm->state == CommState::kFinalized;
    if (comm->link.get() != link || !addressed || !live || comm->quiet) continue;
    if (comm->error == ncclSuccess) comm->error = ncclRemoteError;
    comm->last_error = message.comm == 0 ? "the process of the unique id is gone"
                                         : fmt::format("rank {} is gone", message.peer);
    comm->changed.notify_all();
  }
}

void SetAsyncError(void* handle, int64_t collectives, int result) {
  auto* comm = static_cast<Comm*>(handle);
  MutexLock lock(comm->mutex);
  comm->error_after = collectives;
  comm->error_then = static_cast<ncclResult_t>(result);
  if (collectives <= 0) comm->error = comm->error_then;
}

int64_t RecordLeaks() {
  int64_t count = 0;
  for (Comm* comm : AllComms()) {
    bool may_split = false;
    if (TheCore().IsLent(comm, &may_split)) continue;
    MutexLock lock(comm->mutex);
    if (comm->state == CommState::kDestroyed || comm->state == CommState::kAborted) continue;
    TheCore().Violation(
        fmt::format("leak: communicator {}, rank {} of {}", comm->id, comm->rank, comm->ranks));
    ++count;
  }
  if (InGroup()) {
    TheCore().Violation("leak: ncclGroupStart without ncclGroupEnd");
    ++count;
  }
  return count;
}

// The number of channels; -1: unknown communicator.
int64_t ChannelsOf(void* handle) {
  const std::vector<Comm*> all = AllComms();
  const auto found = std::find(all.begin(), all.end(), handle);
  return found == all.end() ? -1 : (*found)->tuning.channels;
}

void HearOfKilledDevice(int device) {
  for (Comm* comm : AllComms()) {
    Message dead;
    {
      MutexLock lock(comm->mutex);
      if (comm->device != device || comm->state != CommState::kOpen || comm->ranks == 1) continue;
      dead.kind = Message::Kind::kDead;
      dead.comm = comm->id;
      dead.rank = comm->rank;
    }
    Client::Get().Call(comm->link, std::move(dead), nullptr);
  }
}

}  // namespace

Core& TheCore() {
  static Core* const core = []() -> Core* {
    Core* found = FindCore();
    if (found == nullptr) {
      std::fprintf(stderr, "libfake_nccl.so needs libfake_cuda.so: set MESHIFT_CUDA_LIBRARY\n");
      std::abort();
    }
    NcclHooks hooks;
    hooks.async_error = SetAsyncError;
    hooks.record_leaks = RecordLeaks;
    hooks.killed = HearOfKilledDevice;
    hooks.channels = ChannelsOf;
    found->SetHooks(std::move(hooks));
    Client::Get().SetListener(Hear);
    return found;
  }();
  return *core;
}

Comm* NewComm() {
  auto* comm = new Comm();
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  registry.comms.insert(comm);
  return comm;
}

namespace {
thread_local std::string last_error;
}  // namespace

void SetLastError(const std::string& text) { last_error = text; }

const char* LastError() { return last_error.c_str(); }

ncclResult_t Fail(Comm* comm, ncclResult_t result, const std::string& text) {
  SetLastError(text);
  if (comm != nullptr) {
    MutexLock lock(comm->mutex);
    comm->last_error = text;
    // A non-blocking communicator keeps its first error, bad arguments too, and returns it from now
    // on.
    if (!comm->blocking && comm->error == ncclSuccess) {
      comm->error = result;
      comm->changed.notify_all();
    }
  }
  return result;
}

ncclResult_t FindBusyComm(const char* function, ncclComm_t handle, Comm** result) {
  auto* comm = reinterpret_cast<Comm*>(handle);
  if (comm == nullptr) {
    return Fail(nullptr, ncclInvalidArgument,
                fmt::format("{}: the communicator is NULL", function));
  }
  {
    Registry& registry = TheRegistry();
    MutexLock lock(registry.mutex);
    if (!registry.comms.contains(comm)) {
      TheCore().Violation(fmt::format("{}: no such communicator", function));
      return Fail(nullptr, ncclInvalidArgument, "no such communicator");
    }
  }
  MutexLock lock(comm->mutex);
  if (comm->state == CommState::kDestroyed || comm->state == CommState::kAborted) {
    TheCore().Violation(
        fmt::format("{}: the communicator was {}", function,
                    comm->state == CommState::kDestroyed ? "destroyed" : "aborted"));
    return ncclInvalidArgument;
  }
  *result = comm;
  return ncclSuccess;
}

ncclResult_t FindComm(const char* function, ncclComm_t handle, Comm** result) {
  if (const ncclResult_t found = FindBusyComm(function, handle, result); found != ncclSuccess) {
    return found;
  }
  MutexLock lock((*result)->mutex);
  if ((*result)->error != ncclSuccess) return (*result)->error;
  if ((*result)->busy > 0 || (*result)->unseen) {
    TheCore().Violation(fmt::format(
        "{}: the communicator is used before ncclCommGetAsyncError has said that it is ready",
        function));
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

CallerScope::CallerScope(const char* function, Comm* comm) : comm_(comm) {
  if (comm_->callers.fetch_add(1) > 0) {
    TheCore().Violation(fmt::format("{}: two threads use one communicator at once", function));
  }
}

CallerScope::~CallerScope() { --comm_->callers; }

namespace {

ncclResult_t TakeConfig(const ncclConfig_t* config, const Comm* parent, Comm* comm) {
  if (config == nullptr) {
    if (parent != nullptr) {
      comm->config = parent->config;
      comm->blocking = parent->blocking;
    }
    return ncclSuccess;
  }
  const ncclConfig_t expected = NCCL_CONFIG_INITIALIZER;
  if (config->magic != expected.magic || config->size < sizeof(size_t)) {
    return Fail(nullptr, ncclInvalidArgument, "ncclConfig_t was not initialised");
  }
  if (config->size < sizeof(ncclConfig_t)) {
    return Fail(nullptr, ncclInvalidArgument, "ncclConfig_t of an older version is not modelled");
  }
  const auto undefined = [](int value) { return value == NCCL_CONFIG_UNDEF_INT; };
  const auto boolean = [&](int value) { return undefined(value) || value == 0 || value == 1; };
  const auto positive = [&](int value) { return undefined(value) || value > 0; };
  if (!boolean(config->blocking) || !boolean(config->splitShare) || !boolean(config->shrinkShare) ||
      !positive(config->minCTAs) || !positive(config->maxCTAs) || !positive(config->nvlsCTAs) ||
      !(undefined(config->cgaClusterSize) ||
        (config->cgaClusterSize >= 0 && config->cgaClusterSize <= 8)) ||
      !(undefined(config->CTAPolicy) || (config->CTAPolicy >= 0 && config->CTAPolicy <= 3)) ||
      // Compare before defaults are filled in: an unset value is less than any number.
      config->minCTAs > config->maxCTAs) {
    return Fail(nullptr, ncclInvalidArgument, "a value of ncclConfig_t is out of range");
  }
  comm->config = *config;
  comm->blocking = undefined(config->blocking) || config->blocking == 1;
  return ncclSuccess;
}

}  // namespace

ncclResult_t Configure(const ncclConfig_t* config, const Comm* parent, Comm* comm) {
  if (const ncclResult_t taken = TakeConfig(config, parent, comm); taken != ncclSuccess) {
    return taken;
  }
  comm->tuning = TuneByEnvironment(comm->config);
  const int ranks = parent == nullptr ? comm->ranks : parent->ranks;
  if (ranks == 1 || comm->tuning.refused.empty()) return ncclSuccess;
  return Fail(nullptr, ncclInvalidUsage, comm->tuning.refused);
}

void BeginBusy(Comm* comm) {
  MutexLock lock(comm->mutex);
  ++comm->busy;
  comm->unseen = true;
  comm->busy_thread = TheCore().ThreadId();
}

void EndBusy(Comm* comm) {
  MutexLock lock(comm->mutex);
  --comm->busy;
  comm->changed.notify_all();
}

ncclResult_t ResultOfMaking() {
  return TheCore().RandomBelow(2) == 0 ? ncclSuccess : ncclInProgress;
}

void SeenReady(Comm* comm) {
  std::vector<void*> streams;
  {
    MutexLock lock(comm->mutex);
    comm->unseen = false;
    streams.swap(comm->deferred);
  }
  if (!streams.empty()) TheCore().EndDefer(streams);
}

void LaterAtRandom(std::function<void()> run) {
  TheCore().Later(std::chrono::microseconds(TheCore().RandomBelow(400)), std::move(run));
}

uint64_t AddCancel(Comm* comm, std::function<void()> cancel) {
  MutexLock lock(comm->mutex);
  comm->cancels.emplace(++comm->next_cancel, std::move(cancel));
  return comm->next_cancel;
}

void RemoveCancel(Comm* comm, uint64_t number) {
  MutexLock lock(comm->mutex);
  comm->cancels.erase(number);
}

bool HasUnfinished(Comm* comm) {
  PointRef last;
  {
    MutexLock lock(comm->mutex);
    last = comm->last;
  }
  return last != nullptr && !TheCore().HostKnowsDone(last);
}

void CancelUnfinished(Comm* comm) {
  std::vector<ItemRef> items;
  {
    MutexLock lock(comm->mutex);
    items.swap(comm->unfinished);
  }
  for (const ItemRef& item : items) TheCore().Cancel(item);
}

}  // namespace meshift::fake
