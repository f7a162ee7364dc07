// Plays the other side of a connection for tests of the control channel: a rank that sends to a
// hub, or a hub that sends to a rank; and other helpers of these tests.
//
//   PlayedRank rank(std::move(socket), {.rank = 2, .world_size = 3}, key);
//   ASSERT_TRUE(rank.Greet().ok());
//   ASSERT_TRUE(rank.Send({.kind = Frame::Kind::kBye}).ok());
#ifndef MESHIFT_TESTING_INTERNAL_PLAYED_PEER_H_
#define MESHIFT_TESTING_INTERNAL_PLAYED_PEER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/control/frame.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"

namespace meshift {

// Reads frames of any kind and length.
class PlayedPeer {
 public:
  explicit PlayedPeer(Socket socket) : socket_(std::move(socket)) {}

  absl::Status Send(const Frame& frame) const { return socket_.SendAll(Encode(frame)); }
  // The next frame; nullopt: the connection has ended, or `waits` is false and no frame has
  // arrived.
  std::optional<Frame> Next(bool waits = true);
  const Socket& socket() const { return socket_; }
  void HangUp() { socket_ = Socket(); }

 protected:
  Socket socket_;
  FrameReader reader_;
};

class PlayedRank : public PlayedPeer {
 public:
  PlayedRank(Socket socket, const JobRank& job, JobKey key)
      : PlayedPeer(std::move(socket)), job_(job), key_(std::move(key)) {}
  // Waits until the hub accepts it; or returns the reason why it does not.
  absl::Status Greet();

 private:
  JobRank job_;
  JobKey key_;
};

class PlayedHub : public PlayedPeer {
 public:
  PlayedHub(Socket socket, JobKey key) : PlayedPeer(std::move(socket)), key_(std::move(key)) {}
  // Accepts any rank.
  absl::Status Greet();

 private:
  JobKey key_;
};

// Connects to a port of this host.
Socket DialPort(int port);
// Accepts the next connection.
Socket Accepted(const Listening& listening);

bool Contains(const absl::Status& status, const std::string& part);

// Collects the errors that on_failure receives.
class Failures {
 public:
  std::function<void(const absl::Status&)> Listener() {
    return [this](const absl::Status& status) {
      const MutexLock lock(mutex_);
      told_.push_back(status);
      changed_.notify_all();
    };
  }
  // Waits for the first error; returns all.
  std::vector<absl::Status> Await() {
    MutexLock lock(mutex_);
    lock.WaitFor(changed_, std::chrono::seconds(20), [&] { return !told_.empty(); });
    return told_;
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<absl::Status> told_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_PLAYED_PEER_H_
