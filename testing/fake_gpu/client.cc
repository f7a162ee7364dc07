#include "testing/fake_gpu/client.h"

#include <dlfcn.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "testing/fake_gpu/connection.h"

namespace meshift::fake {
namespace {

// The contents of the 128 bytes of a unique id.
struct IdContents {
  char magic[8];
  uint64_t process;
  uint64_t number;
  uint16_t port;
};
static_assert(sizeof(IdContents) <= sizeof(ncclUniqueId));
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'n', 'c', 'c', 'l'};

// A process that ends normally first sends its remaining messages; a hub waits for its ranks.
constexpr std::chrono::milliseconds kFlushTime(500);
constexpr std::chrono::seconds kHubWaits(5);

uint64_t RandomName() {
  uint64_t name = 0;
  while (name == 0 && getrandom(&name, sizeof(name), 0) != sizeof(name)) {
  }
  return name;
}

// Delivers the hub's messages within the process.
class OwnSink : public Sink {
 public:
  explicit OwnSink(std::function<void(Message)> deliver) : deliver_(std::move(deliver)) {}
  void Deliver(Message message) override { deliver_(std::move(message)); }

 private:
  const std::function<void(Message)> deliver_;
};

class OwnLink : public Link {
 public:
  OwnLink(std::shared_ptr<Hub> hub, const std::function<void(const Link*, Message)>& dispatch)
      : hub_(std::move(hub)), sink_(std::make_shared<OwnSink>([this, dispatch](Message message) {
          dispatch(this, std::move(message));
        })) {}
  void Send(Message message) override { hub_->Handle(sink_, std::move(message)); }
  // This process ends.
  void Gone() { hub_->Gone(sink_); }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<OwnSink> sink_;
};

class SocketLink : public Link {
 public:
  SocketLink(int fd, const std::function<void(const Link*, Message)>& dispatch) {
    connection_ = Connection::Start(
        fd,
        [this, dispatch](const std::shared_ptr<Connection>&, Message message) {
          dispatch(this, std::move(message));
        },
        [this, dispatch](const std::shared_ptr<Connection>&) {
          Message gone;
          gone.kind = Message::Kind::kPeerDead;
          dispatch(this, std::move(gone));
        });
  }
  void Send(Message message) override { connection_->Deliver(std::move(message)); }
  void Flush() override { connection_->Flush(kFlushTime); }

 private:
  std::shared_ptr<Connection> connection_;
};

void Accept(int listener, const std::shared_ptr<Hub>& hub,
            const std::function<void(const std::shared_ptr<Connection>&)>& note) {
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    note(Connection::Start(
        fd,
        [hub](const std::shared_ptr<Connection>& from, Message message) {
          hub->Handle(from, std::move(message));
        },
        [hub](const std::shared_ptr<Connection>& from) { hub->Gone(from); }));
  }
}

Core* CoreOf(const char* path, int flags) {
  void* library = dlopen(path, RTLD_NOW | flags);
  if (library == nullptr) return nullptr;
  auto* core = reinterpret_cast<decltype(&meshift_fake_core)>(dlsym(library, "meshift_fake_core"));
  return core == nullptr ? nullptr : core();
}

}  // namespace

Core* FindCore() {
  static Core* const core = []() -> Core* {
    if (const char* path = std::getenv("MESHIFT_CUDA_LIBRARY"); path != nullptr) {
      if (Core* named = CoreOf(path, 0); named != nullptr) return named;
    }
    if (void* symbol = dlsym(RTLD_DEFAULT, "meshift_fake_core"); symbol != nullptr) {
      return reinterpret_cast<decltype(&meshift_fake_core)>(symbol)();
    }
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&FindCore), &self) == 0) return nullptr;
    std::string path = self.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + "libfake_cuda.so";
    return CoreOf(path.c_str(), 0);
  }();
  return core;
}

Client& Client::Get() {
  static Client& client = *new Client();
  return client;
}

LinkRef Client::OwnLink() {
  if (own_ == nullptr) {
    own_ = std::make_shared<fake::OwnLink>(
        hub_, [this](const Link* link, Message message) { Dispatch(link, std::move(message)); });
  }
  return own_;
}

void Client::CallAtExit() {
  if (!std::exchange(at_exit_, true)) std::atexit([] { Client::Get().AtExit(); });
}

void Client::AtExit() {
  std::vector<LinkRef> links;
  std::vector<std::shared_ptr<Connection>> connections;
  std::shared_ptr<Hub> hub;
  LinkRef own;
  {
    MutexLock lock(mutex_);
    for (const auto& [process, link] : others_) links.push_back(link);
    hub = hub_;
    own = own_;
  }
  for (const LinkRef& link : links) {
    if (link != nullptr) link->Flush();
  }
  if (hub == nullptr) return;
  if (own != nullptr) static_cast<fake::OwnLink&>(*own).Gone();
  const auto until = std::chrono::steady_clock::now() + kHubWaits;
  while (!hub->Empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  {
    MutexLock lock(mutex_);
    for (const auto& weak : accepted_) {
      if (auto connection = weak.lock(); connection != nullptr) connections.push_back(connection);
    }
  }
  for (const auto& connection : connections) connection->Flush(kFlushTime);
}

bool Client::MakeId(ncclUniqueId* id) {
  MutexLock lock(mutex_);
  if (hub_ == nullptr) {
    const int listener = Listen(&port_);
    if (listener < 0) return false;
    process_ = RandomName();
    hub_ = std::make_shared<Hub>(FindCore()->seed());
    std::thread([this, listener, hub = hub_] {
      Accept(listener, hub, [this](const std::shared_ptr<Connection>& connection) {
        MutexLock relock(mutex_);
        accepted_.push_back(connection);
      });
    }).detach();
    CallAtExit();
  }
  IdContents contents = {};
  std::memcpy(contents.magic, kMagic, sizeof(kMagic));
  contents.process = process_;
  contents.number = next_++;
  contents.port = port_;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id, &contents, sizeof(contents));
  return true;
}

LinkRef Client::LinkTo(const ncclUniqueId& id, uint64_t* number) {
  IdContents contents;
  std::memcpy(&contents, &id, sizeof(contents));
  if (std::memcmp(contents.magic, kMagic, sizeof(kMagic)) != 0) return nullptr;
  *number = contents.number;
  MutexLock lock(mutex_);
  if (hub_ != nullptr && contents.process == process_) return OwnLink();
  LinkRef& link = others_[contents.process];
  if (link == nullptr) {
    const int fd = Connect(contents.port);
    if (fd < 0) return nullptr;
    CallAtExit();
    link = std::make_shared<SocketLink>(
        fd, [this](const Link* from, Message message) { Dispatch(from, std::move(message)); });
  }
  return link;
}

void Client::Call(const LinkRef& link, Message message, Callback done) {
  if (done) {
    MutexLock lock(mutex_);
    message.request = next_++;
    calls_.emplace(message.request, std::move(done));
  }
  link->Send(std::move(message));
}

void Client::SetListener(std::function<void(const Link*, const Message&)> listener) {
  MutexLock lock(mutex_);
  listener_ = std::move(listener);
}

void Client::Dispatch(const Link* link, Message message) {
  if (message.kind == Message::Kind::kViolation) {
    FindCore()->Violation(message.text);
    return;
  }
  Callback done;
  std::function<void(const Link*, const Message&)> listener;
  {
    MutexLock lock(mutex_);
    if (message.request == 0) {
      listener = listener_;
    } else if (const auto it = calls_.find(message.request); it != calls_.end()) {
      done = std::move(it->second);
      calls_.erase(it);
    }
  }
  if (done) done(std::move(message));
  if (listener) listener(link, message);
}

}  // namespace meshift::fake
