// The meeting point of the ranks of communicators: forms communicators, checks that all members
// issue the same operations, computes the results and sends them back. Each process that makes a
// unique id has one. Ranks of that process call it directly, others through a socket
// (connection.h).
//
//   hub.Handle(client, &sink, message);     // answers go to sinks, maybe of other clients
//   hub.Gone(client);                       // its process is dead
//
// Thread-safe. Delivers without holding its lock.
#ifndef MESHIFT_TESTING_FAKE_GPU_HUB_H_
#define MESHIFT_TESTING_FAKE_GPU_HUB_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "testing/fake_gpu/launch_order.h"
#include "testing/fake_gpu/message.h"

namespace meshift::fake {

using SinkRef = std::shared_ptr<Sink>;

class Hub {
 public:
  explicit Hub(uint64_t seed) : seed_(seed) {}

  void Handle(const SinkRef& from, Message message);
  void Gone(const SinkRef& client);
  // Whether no communicator is left.
  bool Empty();

 private:
  enum class State { kIn, kLeft, kDead };
  struct Member {
    SinkRef sink;
    std::string device;
    State state = State::kIn;
    bool destroying = false;
    bool quiet = false;  // all ranks destroy theirs: it may leave without an error
    uint64_t destroy_request = 0;
  };
  struct Collective {
    OpDescription op;
    int first_rank = 0;
    int64_t splits = 0;       // splits of the communicator on the first rank before it
    int64_t empty_calls = 0;  // calls without elements on the first rank before it
    int trees = 0;            // see RunCollective
    int arrived = 0;
    bool broken = false;
    std::vector<Payload> inputs;
    std::vector<uint64_t> requests;
  };
  struct Transfer {
    OpDescription op;
    uint64_t request = 0;
    Payload data;
  };
  struct Pair {
    std::deque<Transfer> sends;
    std::deque<Transfer> receives;
    bool broken = false;
  };
  struct Split {
    std::map<int, Message> calls;  // by rank
  };
  struct Comm {
    uint64_t id = 0;
    std::vector<Member> members;
    std::vector<int> ring;
    std::map<uint64_t, Collective> collectives;
    std::map<std::pair<int, int>, Pair> pairs;  // by sender and receiver
    std::map<uint64_t, Split> splits;
    std::map<std::string, std::map<int, Message>> connects;  // by connection, then rank
    bool dead = false;  // a member is dead: no operation ends any more
  };
  struct Join {
    int64_t ranks = 0;
    bool failed = false;
    std::map<int, std::pair<Message, SinkRef>> calls;  // by rank
  };
  using Outbox = std::vector<std::pair<SinkRef, Message>>;
  // A complete collective, which is computed without the lock.
  struct Ready {
    bool any = false;
    Collective collective;
    std::vector<std::pair<SinkRef, Message>> answers;  // by rank, without data
    std::vector<int> ring;
  };

  void HandleJoin(const SinkRef& from, Message message, Outbox* out);
  void HandleSplit(Comm& comm, Message message, Outbox* out);
  void HandleCollective(Comm& comm, Message message, Outbox* out, Ready* ready);
  void HandleTransfer(Comm& comm, Message message, Outbox* out);
  static void HandleConnect(Comm& comm, Message message, Outbox* out);
  void HandleLaunched(Comm& comm, const Message& message, Outbox* out);
  void HandleDestroy(Comm& comm, const Message& message, Outbox* out);
  void Leave(Comm& comm, int rank, State state, Outbox* out);
  void Violation(const Comm& comm, const std::string& text, Outbox* out);
  Comm& NewComm(std::vector<Member> members);
  // The answer to the call that made a member of a new communicator.
  static Message Made(const Comm& comm, int rank, uint64_t request);

  const uint64_t seed_;
  Mutex mutex_;
  uint64_t next_comm_ = 1;
  std::map<uint64_t, Comm> comms_;
  std::map<uint64_t, Join> joins_;  // by the number of the unique id
  std::set<uint64_t> used_ids_;
  LaunchOrder order_;
};

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_HUB_H_
