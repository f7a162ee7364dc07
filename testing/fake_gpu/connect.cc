// Connections between ranks. NCCL makes them in the first calls that need them, and the ranks at
// both ends must take part (NCCL_RUNTIME_CONNECT=0: all are made at the start). A call of a
// blocking communicator blocks meanwhile; it also blocks while the queue of work is full.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

#include "testing/fake_gpu/comm.h"

namespace meshift::fake {
namespace {

// The most launches of a communicator that wait in the driver's queue.
constexpr size_t kWorkQueue = 1024;

struct Connecting {
  std::atomic<int> missing = 1;
  std::atomic<bool> done = false;
  std::vector<std::pair<Comm*, uint64_t>> cancels;
  std::vector<std::pair<Comm*, std::string>> made;
  std::function<void(bool)> then;
};

void Finish(const std::shared_ptr<Connecting>& connecting, bool connected) {
  if (connecting->done.exchange(true)) return;
  for (const auto& [comm, number] : connecting->cancels) RemoveCancel(comm, number);
  for (const auto& [comm, what] : connecting->made) {
    MutexLock lock(comm->mutex);
    if (connected) comm->connected.insert(what);
  }
  connecting->then(connected);
}

// The result of a call that cannot continue.
ncclResult_t EndOf(Comm* comm) {
  MutexLock lock(comm->mutex);
  if (comm->error != ncclSuccess) return comm->error;
  return comm->state == CommState::kAborted ? ncclInternalError : ncclSuccess;
}

ncclResult_t EndOf(const std::vector<PreparedLaunch>& launches) {
  for (const PreparedLaunch& launch : launches) {
    if (const ncclResult_t end = EndOf(launch.comm); end != ncclSuccess) return end;
  }
  return ncclSuccess;
}

// The missing connections of the launches.
std::vector<std::pair<Comm*, std::pair<std::string, int>>> Missing(
    const std::vector<PreparedLaunch>& launches) {
  std::vector<std::pair<Comm*, std::pair<std::string, int>>> missing;
  const char* const at_first_calls = std::getenv("NCCL_RUNTIME_CONNECT");
  if (at_first_calls != nullptr && std::string_view(at_first_calls) == "0") return missing;
  for (const PreparedLaunch& launch : launches) {
    if (launch.comm->ranks == 1) continue;
    std::set<std::string> seen;
    MutexLock lock(launch.comm->mutex);
    for (const auto& need : launch.needs) {
      if (launch.comm->connected.contains(need.first) || !seen.insert(need.first).second) continue;
      missing.emplace_back(launch.comm, need);
    }
  }
  return missing;
}

bool HasRoom(const std::vector<PreparedLaunch>& launches) {
  for (const PreparedLaunch& launch : launches) {
    MutexLock lock(launch.comm->mutex);
    if (launch.comm->unfinished.size() >= kWorkQueue) return false;
  }
  return true;
}

bool AnyHeld(const std::vector<PreparedLaunch>& launches) {
  for (const PreparedLaunch& launch : launches) {
    if (TheCore().IsHeld(launch.comm->device)) return true;
  }
  return false;
}

// Counts the calling thread as blocked.
class BlockedScope {
 public:
  explicit BlockedScope(const std::vector<PreparedLaunch>& launches) : launches_(launches) {
    Count(1);
  }
  ~BlockedScope() { Count(-1); }

 private:
  void Count(int change) {
    for (const PreparedLaunch& launch : launches_) {
      MutexLock lock(launch.comm->mutex);
      launch.comm->blocked += change;
      launch.comm->changed.notify_all();
    }
  }
  const std::vector<PreparedLaunch>& launches_;
};

}  // namespace

void Connect(const std::vector<PreparedLaunch>& launches, const std::function<void(bool)>& then) {
  const auto missing = Missing(launches);
  if (missing.empty()) return then(true);
  auto connecting = std::make_shared<Connecting>();
  connecting->then = then;
  connecting->missing = static_cast<int>(missing.size()) + 1;
  for (const auto& [comm, need] : missing) connecting->made.emplace_back(comm, need.first);
  for (const PreparedLaunch& launch : launches) {
    connecting->cancels.emplace_back(
        launch.comm, AddCancel(launch.comm, [connecting] { Finish(connecting, false); }));
  }
  for (const auto& [comm, need] : missing) {
    Message message;
    message.kind = Message::Kind::kConnect;
    message.comm = comm->id;
    message.rank = comm->rank;
    message.peer = need.second;
    message.text = need.first;
    Client::Get().Call(comm->link, std::move(message), [connecting](const Message&) {
      if (--connecting->missing == 0) Finish(connecting, true);
    });
  }
  if (--connecting->missing == 0) Finish(connecting, true);
}

ncclResult_t BlockUntilLaunchable(const std::vector<PreparedLaunch>& launches) {
  if (Missing(launches).empty() && HasRoom(launches) && !AnyHeld(launches)) return ncclSuccess;
  const BlockedScope scope(launches);
  const auto connected = std::make_shared<std::atomic<bool>>(false);
  Connect(launches, [connected](bool made) { *connected = made; });
  while (true) {
    if (const ncclResult_t end = EndOf(launches); end != ncclSuccess) return end;
    if (*connected && HasRoom(launches) && !AnyHeld(launches)) return ncclSuccess;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace meshift::fake
