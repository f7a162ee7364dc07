// Opens, connects and owns the TCP and Unix sockets of the control channel.
//
//   MESHIFT_ASSIGN_OR_RETURN(Listening hub, Listening::Open(0));
//   MESHIFT_ASSIGN_OR_RETURN(auto addresses, Resolve("127.0.0.1", hub.port()));
//   MESHIFT_ASSIGN_OR_RETURN(Socket socket, Dial(addresses[0], deadline));
//   MESHIFT_RETURN_IF_ERROR(socket.SendAll(bytes));
//
// For Linux, IPv4 and IPv6; nothing is encrypted. Errors of the kernel are UNAVAILABLE. Internal to
// comm/control.
#ifndef MESHIFT_COMM_CONTROL_SOCKET_H_
#define MESHIFT_COMM_CONTROL_SOCKET_H_

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

// Owns a file descriptor, and closes it. Several threads may use it, one of them for SendAll().
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
  // Sends all bytes; may block. UNAVAILABLE if the other side is gone. Raises no SIGPIPE.
  absl::Status SendAll(std::string_view bytes) const;
  // Waits for one of `events` (POLLIN, POLLOUT) or the end of the connection; signals do not end
  // the wait. False if neither happens by `until`, or if the kernel refuses to wait.
  bool Await(short events, std::chrono::steady_clock::time_point until) const;
  // Ends both directions, which wakes a thread that reads.
  void Shutdown() const;

 private:
  int fd_ = -1;
};

absl::StatusOr<std::pair<Socket, Socket>> SocketPair();

class Listening {
 public:
  // `port` 0: a free port. `host` is the numeric address of one interface; empty: all. Blocks and
  // retries until `deadline`, mainly for a port that is taken: an earlier job, or a process that
  // dials from that port, may be about to end. UNAVAILABLE: the port stays taken, or the address is
  // not one of this host's.
  // INVALID_ARGUMENT: the port is not in 0..65535.
  static absl::StatusOr<Listening> Open(int port, const std::string& host = "",
                                        std::chrono::steady_clock::time_point deadline = {});

  const Socket& socket() const { return socket_; }
  int port() const { return port_; }
  // Accepts a pending connection without waiting. The result is not open() if there is none, or if
  // the kernel refuses; errno has the reason. Does not call Tune().
  Socket Accept() const;

 private:
  Socket socket_;
  int port_ = 0;
};

// Sets a TCP connection to send small messages at once (TCP_NODELAY) and to detect a host that has
// vanished within half a minute (keep-alive).
void Tune(const Socket& socket);

// A resolved address with a port.
struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

// The addresses of a host name or numeric address. UNAVAILABLE: there are none. The look-up of a
// name may block as long as the system's resolver does.
absl::StatusOr<std::vector<Address>> Resolve(const std::string& host, int port);

// The numeric address, without the port.
std::string NumbersOf(const Address& address);

// Connects to one address, and calls Tune(); waits at most two seconds, and not beyond `deadline`.
// UNAVAILABLE: no process answers, or the socket connected to itself, which happens if the kernel
// picks the dialled port as the local one.
absl::StatusOr<Socket> Dial(const Address& address, std::chrono::steady_clock::time_point deadline);

// Checks that the limit of descriptors allows `needed` more connections, and some files beside;
// raises the soft limit to the hard one if necessary, for the whole process. Takes the lowest free
// descriptor as the number of open ones, and reserves nothing. RESOURCE_EXHAUSTED names both
// limits.
absl::Status ReserveDescriptors(int64_t needed);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SOCKET_H_
