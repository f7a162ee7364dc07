// Sockets as the control channel needs them.
//
//   MESHIFT_ASSIGN_OR_RETURN(Listening hub, Listening::Open(0));
//   MESHIFT_ASSIGN_OR_RETURN(auto addresses, Resolve("127.0.0.1", hub.port()));
//   MESHIFT_ASSIGN_OR_RETURN(Socket socket, Dial(addresses[0], deadline));
//   MESHIFT_RETURN_IF_ERROR(socket.SendAll(bytes));
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
  // `port` 0: a free one. `host`: the address of one interface (numbers, no name); empty: all.
  // Where the port is taken, tries again until `deadline`: the socket of a process that dials from
  // it, or a job before, may just be ending. UNAVAILABLE: it stays taken.
  static absl::StatusOr<Listening> Open(int port, const std::string& host = "",
                                        std::chrono::steady_clock::time_point deadline = {});

  const Socket& socket() const { return socket_; }
  int port() const { return port_; }
  // Connects nothing but what is there already. Not open where nothing is, or where the kernel
  // gives no descriptor, with the reason in errno. Tune() it once it is worth it.
  Socket Accept() const;

 private:
  Socket socket_;
  int port_ = 0;
};

// For small and urgent messages; a host that has vanished is noticed within half a minute.
void Tune(const Socket& socket);

// Where to connect to, once names are addresses.
struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

// The addresses of a name, with the port. UNAVAILABLE: it has none.
absl::StatusOr<std::vector<Address>> Resolve(const std::string& host, int port);

// An address in numbers, without its port.
std::string NumbersOf(const Address& address);

// Connects to one address; waits at most two seconds. UNAVAILABLE: nobody answers, or this process
// itself would: dialling a port of the kernel's own range can pick that very port to dial from.
absl::StatusOr<Socket> Dial(const Address& address, std::chrono::steady_clock::time_point deadline);

// Descriptors for `needed` more connections: raises this process's soft limit as far as the hard
// one, where it has to. RESOURCE_EXHAUSTED names both limits.
absl::Status ReserveDescriptors(int64_t needed);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SOCKET_H_
