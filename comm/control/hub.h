// The hub forwards messages between the ranks of a job, on its own thread in rank 0's process.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto hub, Hub::Start(8, key, std::move(listening)));
//   hub->Adopt(std::move(socket));          // a rank of this process
//
// The hub accepts ranks (comm/control/handshake.h), and drops ranks that break rules.
// comm/control/message_router.h decides which messages go to which rank. A turn is one pass of the
// thread's loop over all connections. A busy rank does not delay others: one read or write of its
// connection takes at most kTurnBytes. A slow rank does not either: the hub queues its messages,
// and closes its connection above kMaxWaiting. Internal to comm/control.
#ifndef MESHIFT_COMM_CONTROL_HUB_H_
#define MESHIFT_COMM_CONTROL_HUB_H_

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/control/frame.h"
#include "comm/control/handshake.h"
#include "comm/control/message_router.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"

namespace meshift {

class Hub {
 public:
  // Limits of connections from other processes that are not accepted yet ("strangers").
  static constexpr size_t kMaxStrangers = 64;               // at a time, before their hello
  static constexpr size_t kMaxGreeted = 512;                // at a time, between hello and proof
  static constexpr std::chrono::seconds kHandshakeTime{5};  // for the whole handshake
  // At a limit above, the oldest connection of its kind is closed for a new one if it has at least
  // this age.
  static constexpr std::chrono::milliseconds kSilentTime{100};  // before its hello
  static constexpr std::chrono::milliseconds kSlowTime{1000};   // after its hello
  // After this many failed handshakes in one second, no connection is taken until the next second.
  static constexpr int64_t kMaxFailures = 1000;
  // Limits of an accepted rank: bytes read or written at a time, frames handled at a time, and
  // bytes queued for it (those of an exchange, which all ranks share, count 1/64).
  static constexpr size_t kTurnBytes = size_t{256} << 10;
  static constexpr int kTurnFrames = 64;
  static constexpr size_t kMaxWaiting = size_t{4} << 20;

  // `listening` is the port for ranks of other processes, if there are any. UNAVAILABLE: the kernel
  // refuses a socket pair or epoll. REQUIRES: 1 <= world_size <= kMaxRanks.
  static absl::StatusOr<std::unique_ptr<Hub>> Start(int64_t world_size, JobKey key,
                                                    std::optional<Listening> listening);
  // Tells the ranks that the hub leaves. First forwards frames that have arrived, for at most
  // 100 ms; then waits at most a second until all is sent.
  ~Hub();

  // Adds the connection of a rank of this process, whose handshake has no time limit here. May be
  // called on any thread. Closes the connection if the kernel or the memory refuses it.
  void Adopt(Socket socket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Socket socket;
    bool own = false;                       // adopted, from this process
    Clock::time_point since;                // when it connected
    std::optional<HubHandshake> handshake;  // until it is accepted
    bool counted = false;                   // whether greeted_ counts it
    FrameReader reader;
    int64_t rank = -1;              // -1 until it is accepted
    std::deque<Bytes> out;          // queued for it
    size_t sent = 0;                // bytes of out.front() that are sent
    size_t waiting = 0;             // bytes of `out`, as kMaxWaiting counts them
    bool more = false;              // in more_: the reader may have complete frames
    bool watched_for_room = false;  // epoll reports when the socket can take more bytes
    bool closed = false;
    std::list<Connection>::iterator self;
  };
  using Connections = std::list<Connection>;

  Hub(int64_t world_size, JobKey key, std::optional<Listening> listening, Socket wake, Socket woken,
      Socket epoll);
  void Run();
  // For epoll_wait: milliseconds, -1 for none.
  int Timeout() const;
  void Turn();
  void Admit(Socket socket, bool own);
  void Accept();
  // Sends waiting connections the reason why there is no descriptor for them.
  void RefuseForDescriptors();
  // Whether another stranger may connect now. May close an old one to make room.
  bool HasRoom(Clock::time_point now);
  void SetAccepting(bool accepting);
  void DropLateStrangers(Clock::time_point now);
  // Whether bytes arrived, or earlier ones are not handled yet.
  bool Read(Connection& connection);
  void Greet(Connection& connection, std::string_view bytes);
  void LetIn(Connection& connection);
  void HandleFrames(Connection& connection);
  void Send(Connection& connection, const Bytes& bytes);
  void Flush(Connection& connection);
  void Watch(Connection& connection, bool for_room);
  void Drop(Connection& connection, const std::string& why);
  void Close(Connection& connection);
  // Frees closed connections, and tells the router which ranks are gone.
  void Reap();
  void Leave();

  const int64_t world_size_;
  const JobKey key_;
  const std::optional<Listening> listening_;
  const Socket wake_;   // a byte sent here ...
  const Socket woken_;  // ... wakes the thread
  const Socket epoll_;

  // Only the thread uses these.
  Connections connections_;           // strangers first, oldest first
  std::vector<Connection*> by_rank_;  // null: not connected
  std::vector<Connection*> more_;     // whose readers may have complete frames left
  std::vector<Connection*> closed_;   // freed by Reap()
  std::vector<int64_t> gone_;         // ranks whose connection was closed in this turn
  MessageRouter router_;
  size_t strangers_ = 0;  // number of connections from other processes not accepted yet
  size_t greeted_ = 0;    // number of strangers that have sent their hello
  bool accepting_ = false;
  Clock::time_point accept_after_;  // if accepting_ is false
  Clock::time_point second_;        // begin of the second in which failures_ counts
  int64_t failures_ = 0;
  Socket reserve_;  // a spare descriptor, for RefuseForDescriptors()
  std::vector<char> buffer_;
  std::vector<epoll_event> events_;

  Mutex mutex_;
  bool stopping_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<Socket> adopted_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HUB_H_
