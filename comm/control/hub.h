// Passes messages on between the ranks of a job. Runs on a thread of its own, in rank 0's process.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto hub, Hub::Start(8, key, std::move(listening)));
//   hub->Adopt(std::move(socket));          // a rank of this process
//
// Here are the connections: who may come in (comm/control/greeting.h), how much of each is read
// and written in a turn, and who is dropped. Who is told what is comm/control/switchboard.h.
// Messages never wait for a slow rank: what it does not take is kept, up to a limit.
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
#include "comm/control/greeting.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "comm/control/switchboard.h"

namespace meshift {

class Hub {
 public:
  // Of connections that are not let in yet: how many there are at a time before their hello, and
  // between hello and proof; how long each may take; and how old one must be that makes room for
  // another. Then how many may fail in a second before the next ones wait.
  static constexpr size_t kMaxStrangers = 64;
  static constexpr size_t kMaxGreeted = 512;
  static constexpr std::chrono::seconds kGreetingTime{5};
  static constexpr std::chrono::milliseconds kSilentTime{100};
  static constexpr std::chrono::milliseconds kSlowTime{1000};
  static constexpr int64_t kMaxFailures = 1000;
  // Of a rank that is in: bytes read and written in one turn, frames handled in one, and bytes that
  // wait until it takes them (those of an exchange, which all ranks share, count a 64th).
  static constexpr size_t kTurnBytes = size_t{256} << 10;
  static constexpr int kTurnFrames = 64;
  static constexpr size_t kMaxWaiting = size_t{4} << 20;

  // `listening`: where ranks of other processes connect, if there are any. UNAVAILABLE: the kernel
  // lacks what the hub needs.
  static absl::StatusOr<std::unique_ptr<Hub>> Start(int64_t world_size, JobKey key,
                                                    std::optional<Listening> listening);
  // Tells the ranks that it leaves; waits a second for those that have not taken all yet.
  ~Hub();

  void Adopt(Socket socket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Socket socket;
    bool own = false;  // of this process: no stranger
    Clock::time_point since;
    std::optional<HubGreeting> greeting;  // until it is let in
    bool counted = false;                 // in greeted_
    FrameReader reader;
    int64_t rank = -1;
    std::deque<Bytes> out;
    size_t sent = 0;     // bytes of out's first
    size_t waiting = 0;  // bytes of out, as kMaxWaiting counts them
    bool more = false;   // whole frames wait in the reader
    bool watched_for_room = false;
    bool closed = false;
    std::list<Connection>::iterator self;
  };
  using Connections = std::list<Connection>;

  Hub(int64_t world_size, JobKey key, std::optional<Listening> listening, Socket wake, Socket woken,
      Socket epoll);
  void Run();
  // In milliseconds, as epoll_wait has it.
  int Timeout() const;
  void Turn();
  void Admit(Socket socket, bool own);
  void Accept();
  void RefuseForDescriptors();
  // Whether another stranger may come now; makes room where one has been silent.
  bool HasRoom(Clock::time_point now);
  void SetAccepting(bool accepting);
  void DropLateStrangers(Clock::time_point now);
  // Whether something came.
  bool Read(Connection& connection);
  void Greet(Connection& connection, std::string_view bytes);
  void LetIn(Connection& connection);
  void HandleFrames(Connection& connection);
  void Send(Connection& connection, const Bytes& bytes);
  void Flush(Connection& connection);
  void Watch(Connection& connection, bool for_room);
  void Drop(Connection& connection, const std::string& why);
  void Close(Connection& connection);
  // Frees what was closed, and says which ranks are gone.
  void Reap();
  void Leave();

  const int64_t world_size_;
  const JobKey key_;
  const std::optional<Listening> listening_;
  const Socket wake_;   // a byte sent here ...
  const Socket woken_;  // ... wakes the thread, which alone has what follows
  const Socket epoll_;

  Connections connections_;  // strangers by age
  std::vector<Connection*> by_rank_;
  std::vector<Connection*> more_;
  std::vector<Connection*> closed_;
  std::vector<int64_t> gone_;  // ranks whose connection was closed in this turn
  Switchboard board_;
  size_t strangers_ = 0;  // not let in yet
  size_t greeted_ = 0;    // of them, those that have said hello
  bool accepting_ = false;
  Clock::time_point accept_after_;
  Clock::time_point second_;  // the one in which failures_ are counted
  int64_t failures_ = 0;
  Socket reserve_;  // a descriptor to give up where there is no other
  std::vector<char> buffer_;
  std::vector<epoll_event> events_;

  Mutex mutex_;
  bool stopping_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<Socket> adopted_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HUB_H_
