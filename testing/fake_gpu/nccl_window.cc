// The functions of nccl.h for memory that all ranks of a communicator register.
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>
#include <map>

#include "testing/fake_gpu/comm.h"
#include "testing/fake_gpu/recorder.h"

namespace meshift::fake {
namespace {

// A rank's part of a registration, as it is sent to the others.
struct Registration {
  uint64_t bytes = 0;
  int64_t flags = 0;
};

// Memory from ncclMemAlloc, and its number of windows.
struct Memory {
  Mutex mutex;
  std::map<uint64_t, uint64_t> bases;  // allocation by address
  std::map<uint64_t, int> windows;     // by address
};
Memory& TheMemory() {
  static Memory& memory = *new Memory();
  return memory;
}

// A registration in progress.
struct Registering {
  Comm* comm = nullptr;
  Window* window = nullptr;
  Registration own;
  ncclWindow_t* handle = nullptr;
  bool answered = false;  // guarded by the communicator's mutex
};
using RegisteringRef = std::shared_ptr<Registering>;

// `answer` has the registrations of all ranks.
void Registered(const RegisteringRef& registering, const Message& answer) {
  Comm* comm = registering->comm;
  for (int rank = 0; answer.payload != nullptr && rank < comm->ranks; ++rank) {
    Registration theirs;
    std::memcpy(&theirs, answer.payload->data() + static_cast<size_t>(rank) * sizeof(theirs),
                sizeof(theirs));
    if (theirs.bytes != registering->own.bytes || theirs.flags != registering->own.flags) {
      TheCore().Violation(
          fmt::format("ncclCommWindowRegister: rank {} registers {} bytes with flags {}, rank {} "
                      "{} bytes with flags {}",
                      comm->rank, registering->own.bytes, registering->own.flags, rank,
                      theirs.bytes, theirs.flags));
      break;
    }
  }
  MutexLock lock(comm->mutex);
  registering->window->live = true;
  registering->answered = true;
  __atomic_store_n(registering->handle, reinterpret_cast<ncclWindow_t>(registering->window),
                   __ATOMIC_RELEASE);
  comm->changed.notify_all();
}

// The live symmetric window that contains [address, address + bytes). Needs the communicator's
// lock.
const Window* WindowAt(const Comm& comm, uint64_t address, uint64_t bytes) {
  for (const std::unique_ptr<Window>& window : comm.windows) {
    if (window->live && window->symmetric && address >= window->address &&
        address + bytes <= window->address + window->bytes) {
      return window.get();
    }
  }
  return nullptr;
}

ncclResult_t EnterFor(const char* function, ncclComm_t handle, Comm** comm) {
  const int fault =
      TheCore().Enter(function, kAllocates, fmt::format("{}", static_cast<void*>(handle)));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  return FindComm(function, handle, comm);
}

}  // namespace

void FindWindows(Comm* comm, OpCall* call, uint64_t send_bytes, uint64_t receive_bytes) {
  MutexLock lock(comm->mutex);
  const Window* send = WindowAt(*comm, call->send, send_bytes);
  const Window* receive = WindowAt(*comm, call->receive, receive_bytes);
  if (send == nullptr || receive == nullptr) return;
  call->op.send_window = send->number;
  call->op.send_offset = static_cast<int64_t>(call->send - send->address);
  call->op.receive_window = receive->number;
  call->op.receive_offset = static_cast<int64_t>(call->receive - receive->address);
}

}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

ncclResult_t ncclMemAlloc(void** result, size_t bytes) {
  const int fault = TheCore().Enter("ncclMemAlloc", kAllocates, fmt::format("{} bytes", bytes));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  if (result == nullptr || bytes == 0) return ncclInvalidArgument;
  const int device = TheCore().CurrentDevice();
  if (device < 0 || TheCore().ForbiddenByCapture("ncclMemAlloc")) return ncclUnhandledCudaError;
  // The real granularity is 2 MiB, and the real allocation may be larger than requested.
  constexpr uint64_t kAlignment = NCCL_WIN_REQUIRED_ALIGNMENT;
  uint64_t base = 0;
  if (!TheCore().Allocate(device, bytes + kAlignment, &base)) return ncclUnhandledCudaError;
  const uint64_t address = (base + kAlignment - 1) / kAlignment * kAlignment;
  MutexLock lock(TheMemory().mutex);
  TheMemory().bases[address] = base;
  *result = reinterpret_cast<void*>(address);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  const int fault =
      TheCore().Enter("ncclMemFree", kAllocates | kSynchronises, fmt::format("{}", memory));
  if (fault != 0) return static_cast<ncclResult_t>(fault);
  if (memory == nullptr) return ncclSuccess;
  const auto address = reinterpret_cast<uint64_t>(memory);
  uint64_t base = 0;
  {
    MutexLock lock(TheMemory().mutex);
    if (const auto found = TheMemory().bases.find(address); found != TheMemory().bases.end()) {
      base = found->second;
      TheMemory().bases.erase(found);
    }
    if (TheMemory().windows.contains(address)) {
      TheCore().Violation("ncclMemFree of memory that is registered with a communicator");
    }
  }
  if (base != 0 && TheCore().Free(base)) return ncclSuccess;
  TheCore().Violation("ncclMemFree of what ncclMemAlloc did not allocate");
  return ncclInvalidArgument;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* memory, size_t bytes,
                                    ncclWindow_t* result, int flags) {
  Core& core = TheCore();
  Comm* comm = nullptr;
  if (const ncclResult_t found = EnterFor("ncclCommWindowRegister", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  CallerScope scope("ncclCommWindowRegister", comm);
  if (memory == nullptr || result == nullptr || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0) {
    return ncclInvalidArgument;
  }
  if (core.ForbiddenByCapture("ncclCommWindowRegister")) return ncclInvalidUsage;
  const auto address = reinterpret_cast<uint64_t>(memory);
  const Access access = {.address = address, .bytes = bytes};
  if (!core.Check("ncclCommWindowRegister", {access}, comm->device)) return ncclInvalidArgument;
  if (address % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    core.Violation(fmt::format("ncclCommWindowRegister: {:#x} is not a multiple of {}", address,
                               NCCL_WIN_REQUIRED_ALIGNMENT));
  }
  auto registering = std::make_shared<Registering>();
  registering->comm = comm;
  registering->own = {.bytes = bytes, .flags = flags};
  registering->handle = result;
  *result = nullptr;
  Message message;
  {
    MutexLock lock(comm->mutex);
    int64_t symmetric = 0;
    for (const std::unique_ptr<Window>& window : comm->windows) {
      symmetric += window->symmetric ? 1 : 0;
      if (window->live && address < window->address + window->bytes &&
          window->address < address + bytes) {
        core.Violation("ncclCommWindowRegister of memory that is registered already");
      }
    }
    comm->windows.push_back(std::make_unique<Window>());
    registering->window = comm->windows.back().get();
    *registering->window = {.address = address,
                            .bytes = bytes,
                            .number = symmetric,
                            .symmetric = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0};
    message.comm = comm->id;
    message.rank = comm->rank;
    message.seq = comm->collectives;
    message.b = static_cast<int64_t>(comm->splits);
    if (registering->window->symmetric) ++comm->collectives;
  }
  {
    MutexLock lock(TheMemory().mutex);
    ++TheMemory().windows[address];
  }
  if (!registering->window->symmetric || comm->ranks == 1) {
    Registered(registering, Message());
    return ncclSuccess;
  }
  // The ranks meet in an all-gather that no real operation equals.
  message.kind = Message::Kind::kCollective;
  message.op = {.kind = OpKind::kAllGather,
                .dtype = ncclUint8,
                .op = 0,
                .root = -1,
                .count = sizeof(Registration)};
  const char* own = reinterpret_cast<const char*>(&registering->own);
  message.payload = std::make_shared<std::vector<char>>(own, own + sizeof(Registration));
  if (comm->blocking) {
    Client::Get().Call(comm->link, std::move(message),
                       [registering](const Message& answer) { Registered(registering, answer); });
    MutexLock lock(comm->mutex);
    lock.Wait(comm->changed, [&] {
      return registering->answered || (comm->error != ncclSuccess && comm->error != ncclInProgress);
    });
    return registering->answered ? ncclSuccess : comm->error;
  }
  BeginBusy(comm);
  Client::Get().Call(comm->link, std::move(message), [registering](const Message& answer) {
    LaterAtRandom([registering, answer] {
      Registered(registering, answer);
      EndBusy(registering->comm);
    });
  });
  return ResultOfMaking();
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  Core& core = TheCore();
  Comm* comm = nullptr;
  if (const ncclResult_t found = EnterFor("ncclCommWindowDeregister", handle, &comm);
      found != ncclSuccess) {
    return found;
  }
  CallerScope scope("ncclCommWindowDeregister", comm);
  if (window == nullptr) return ncclInvalidArgument;
  if (HasUnfinished(comm)) {
    core.Violation(
        "ncclCommWindowDeregister while operations are unfinished, as far as the host has made "
        "sure");
  }
  uint64_t address = 0;
  {
    MutexLock lock(comm->mutex);
    for (const std::unique_ptr<Window>& own : comm->windows) {
      if (reinterpret_cast<ncclWindow_t>(own.get()) != window || !own->live) continue;
      own->live = false;
      address = own->address;
    }
  }
  if (address == 0) {
    core.Violation("ncclCommWindowDeregister of no window of the communicator");
    return ncclInvalidArgument;
  }
  MutexLock lock(TheMemory().mutex);
  if (--TheMemory().windows[address] == 0) TheMemory().windows.erase(address);
  return ncclSuccess;
}

}  // extern "C"
