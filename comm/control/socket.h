// Sockets as the control channel needs them.
//
//   MESHIFT_ASSIGN_OR_RETURN(Listening hub, Listening::Open(0));
//   MESHIFT_ASSIGN_OR_RETURN(Socket socket, DialAny({"127.0.0.1"}, hub.port(), deadline));
//   MESHIFT_RETURN_IF_ERROR(socket.SendAll(bytes));
#ifndef MESHIFT_COMM_CONTROL_SOCKET_H_
#define MESHIFT_COMM_CONTROL_SOCKET_H_

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

// Owns a file descriptor. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // Sends everything, waiting where it must; UNAVAILABLE where the other side is gone. Raises no
  // SIGPIPE.
  absl::Status SendAll(std::string_view bytes) const;
  // Waits for one of `events` (poll's: POLLIN, POLLOUT) or the connection's end, whatever signals
  // come; false where there is none by `until`.
  bool Await(short events, std::chrono::steady_clock::time_point until) const;
  // Ends both directions: whoever reads is woken.
  void Shutdown() const;

 private:
  int fd_ = -1;
};

// Two ends that are connected with each other.
absl::StatusOr<std::pair<Socket, Socket>> SocketPair();

// A port that others may connect to.
class Listening {
 public:
  // `port` 0: a free one. UNAVAILABLE: the port is taken.
  static absl::StatusOr<Listening> Open(int port);

  const Socket& socket() const { return socket_; }
  int port() const { return port_; }
  // Connects nothing but what is there already; not open where nothing is.
  Socket Accept() const;

 private:
  Socket socket_;
  int port_ = 0;
};

// This host's name, and the addresses of its interfaces that are up, without loopback.
std::string HostName();
std::vector<std::string> HostAddresses();

// Connects to `port` of the first host (name or address) that answers, trying again until
// `deadline`.
absl::StatusOr<Socket> DialAny(const std::vector<std::string>& hosts, int port,
                               std::chrono::steady_clock::time_point deadline);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SOCKET_H_
