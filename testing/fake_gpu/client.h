// Connects a process to the hubs of its communicators: directly to its own hub, by sockets to those
// of other processes.
//
//   Client& client = Client::Get();
//   ncclUniqueId id;
//   client.MakeId(&id);
//   LinkRef link = client.LinkTo(id, &number);
//   client.Call(link, message, [](Message answer) { ... });   // on any thread
#ifndef MESHIFT_TESTING_FAKE_GPU_CLIENT_H_
#define MESHIFT_TESTING_FAKE_GPU_CLIENT_H_

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "testing/fake_gpu/connection.h"
#include "testing/fake_gpu/core.h"
#include "testing/fake_gpu/hub.h"

namespace meshift::fake {

// The libfake_cuda.so of this process: the loaded one, else the one beside this library. Null if
// there is none.
Core* FindCore();

// A connection to one hub.
class Link {
 public:
  virtual ~Link() = default;
  virtual void Send(Message message) = 0;
  // Waits until all messages are handed to the system.
  virtual void Flush() {}
};
using LinkRef = std::shared_ptr<Link>;

class Client {
 public:
  using Callback = std::function<void(Message)>;

  static Client& Get();

  // Makes an id and starts the hub that it names in this process. False: no socket.
  bool MakeId(ncclUniqueId* id);
  // The link to the hub that an id names, and the id's number there; null: no hub answers.
  LinkRef LinkTo(const ncclUniqueId& id, uint64_t* number);

  // Sends a message and calls `done` with the answer, maybe before this returns.
  void Call(const LinkRef& link, Message message, Callback done);
  // For messages that do not answer a call: a peer is dead, or (comm 0) the hub is.
  void SetListener(std::function<void(const Link*, const Message&)> listener);

 private:
  void Dispatch(const Link* link, Message message);
  void CallAtExit();
  void AtExit();
  LinkRef OwnLink();

  Mutex mutex_;
  std::shared_ptr<Hub> hub_;
  bool at_exit_ = false;
  uint16_t port_ = 0;
  uint64_t process_ = 0;  // a random name of this process
  LinkRef own_;
  std::map<uint64_t, LinkRef> others_;  // by the name of the process
  std::unordered_map<uint64_t, Callback> calls_;
  std::function<void(const Link*, const Message&)> listener_;
  std::vector<std::weak_ptr<Connection>> accepted_;
  std::atomic<uint64_t> next_ = 1;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_CLIENT_H_
