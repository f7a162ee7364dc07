// Passes messages on between the ranks of a job. Runs on a thread of its own, in rank 0's process.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto hub, Hub::Start(8, token, std::move(listening)));
//   hub->Adopt(std::move(socket));          // a rank of this process
//
// Knows who is there and what is being waited for; everything else is between the clients
// (comm/control/client.h). Messages never wait for a slow rank: what it does not take is kept.
#ifndef MESHIFT_COMM_CONTROL_HUB_H_
#define MESHIFT_COMM_CONTROL_HUB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/control/frame.h"
#include "comm/control/socket.h"

namespace meshift {

class Hub {
 public:
  // `listening`: where ranks of other processes connect, if there are any.
  static absl::StatusOr<std::unique_ptr<Hub>> Start(int64_t world_size, std::string token,
                                                    std::optional<Listening> listening);
  // Tells the ranks that it leaves.
  ~Hub();

  void Adopt(Socket socket);

 private:
  struct Connection {
    Socket socket;
    FrameReader reader;
    std::string out;    // what could not be sent yet
    int64_t rank = -1;  // before its hello
    bool closed = false;
  };
  enum class Presence : uint8_t { kNever, kHere, kLeft, kGone };
  // One call of a root that some have announced.
  struct Announced {
    Frame first;
    int64_t count = 0;
    std::optional<Frame> settled;  // as unequal
  };
  struct Root {
    std::vector<int64_t> ranks;
    std::map<int64_t, Announced> calls;
  };

  Hub(int64_t world_size, std::string token, std::optional<Listening> listening, Socket wake,
      Socket woken);
  void Run();
  void Read(Connection& connection);
  void Flush(Connection& connection);
  void Close(Connection& connection);
  void Handle(Connection& connection, Frame frame);
  void OnHello(Connection& connection, const Frame& frame);
  void OnExchange(const Frame& frame);
  void OnMissing(Frame frame);
  void OnJoin(const Frame& frame);
  void OnAnnounce(const Frame& frame);
  void OnAsk(const Frame& frame);
  void Send(int64_t rank, const Frame& frame);
  void SendToRoot(const std::string& root, const Frame& frame, int64_t but);
  void SendToAll(const Frame& frame, int64_t but);

  const int64_t world_size_;
  const std::string token_;
  const std::optional<Listening> listening_;
  const Socket wake_;   // a byte sent here ...
  const Socket woken_;  // ... wakes the thread, which alone has what follows

  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> by_rank_;
  std::vector<Presence> presence_;
  std::vector<Frame> byes_;                                      // kBye or kLeave of who left
  std::vector<int64_t> went_;                                    // kLeft or kGone, in their order
  std::map<int64_t, std::map<int64_t, std::string>> exchanges_;  // number -> rank -> bytes
  std::map<std::string, Root> roots_;

  Mutex mutex_;
  bool stopping_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<Socket> adopted_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HUB_H_
