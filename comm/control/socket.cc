#include "comm/control/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Failed(std::string_view what) {
  return absl::UnavailableError(fmt::format("{}: {}", what, std::system_category().message(errno)));
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// The address of one end of a connection, or of a listening socket.
Address EndOf(int fd, int (*end)(int, sockaddr*, socklen_t*)) {
  Address address;
  address.size = sizeof(address.bytes);
  if (end(fd, reinterpret_cast<sockaddr*>(&address.bytes), &address.size) != 0) address.size = 0;
  return address;
}

int PortOf(const Address& address) {
  // The port is at the same offset in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.bytes).sin_port);
}

bool operator==(const Address& a, const Address& b) {
  if (a.bytes.ss_family != b.bytes.ss_family || PortOf(a) != PortOf(b)) return false;
  if (a.bytes.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a.bytes).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b.bytes).sin_addr.s_addr;
  }
  const auto& a6 = reinterpret_cast<const sockaddr_in6&>(a.bytes).sin6_addr;
  const auto& b6 = reinterpret_cast<const sockaddr_in6&>(b.bytes).sin6_addr;
  return std::equal(std::begin(a6.s6_addr), std::end(a6.s6_addr), std::begin(b6.s6_addr));
}

}  // namespace

Socket::~Socket() {
  if (open()) close(fd_);
}

absl::Status Socket::SendAll(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EINTR) {
      return Failed("send");
    }
  }
  return absl::OkStatus();
}

bool Socket::Await(short events, Clock::time_point until) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd poll_fd = {fd_, events, 0};
    const int ready =
        poll(&poll_fd, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX)));
    if (ready > 0) return true;
    // Interrupted by a signal, or the time is longer than one call of poll can wait.
    const bool again = ready < 0 ? errno == EINTR : left.count() > INT_MAX;
    if (!again) return false;
  }
}

void Socket::Shutdown() const { shutdown(fd_, SHUT_RDWR); }

absl::StatusOr<std::pair<Socket, Socket>> SocketPair() {
  std::array<int, 2> fds = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return Failed("socketpair");
  }
  return std::pair(Socket(fds[0]), Socket(fds[1]));
}

namespace {

// Tries once to listen on the address.
absl::StatusOr<Socket> Listen(const Address& address) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return Failed("socket");
  const int fd = socket.fd();
  if (address.bytes.ss_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    return Failed(fmt::format("listen on port {}", PortOf(address)));
  }
  return socket;
}

// The address that stands for all addresses of this host.
Address Wildcard(int family, int port) {
  Address address;
  if (family == AF_INET6) {
    auto& bytes = reinterpret_cast<sockaddr_in6&>(address.bytes);
    bytes.sin6_family = AF_INET6;
    bytes.sin6_port = htons(static_cast<uint16_t>(port));
    bytes.sin6_addr = in6addr_any;
    address.size = sizeof(bytes);
  } else {
    auto& bytes = reinterpret_cast<sockaddr_in&>(address.bytes);
    bytes.sin_family = AF_INET;
    bytes.sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(bytes);
  }
  return address;
}

}  // namespace

absl::StatusOr<Listening> Listening::Open(int port, const std::string& host,
                                          Clock::time_point deadline) {
  if (port < 0 || port > 65535) return InvalidArgument("port {} is not between 0 and 65535", port);
  std::vector<Address> addresses;
  if (host.empty()) {
    // The IPv4 one serves a host without IPv6.
    addresses = {Wildcard(AF_INET6, port), Wildcard(AF_INET, port)};
  } else {
    MESHIFT_ASSIGN_OR_RETURN(addresses, Resolve(host, port));
  }
  while (true) {
    absl::Status last;
    for (const Address& address : addresses) {
      absl::StatusOr<Socket> socket = Listen(address);
      if (!socket.ok()) {
        last = socket.status();
        continue;
      }
      Listening listening;
      listening.socket_ = *std::move(socket);
      listening.port_ = PortOf(EndOf(listening.socket_.fd(), getsockname));
      return listening;
    }
    if (Clock::now() >= deadline) return last;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket Listening::Accept() const {
  return Socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
}

void Tune(const Socket& socket) {
  const int fd = socket.fd();
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

absl::StatusOr<std::vector<Address>> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return absl::UnavailableError(fmt::format("{}: {}", host, gai_strerror(error)));
  std::vector<Address> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    Address address;
    address.size = i->ai_addrlen;
    std::memcpy(&address.bytes, i->ai_addr, i->ai_addrlen);
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  return addresses;
}

std::string NumbersOf(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* bytes = address.bytes.ss_family == AF_INET6
                          ? static_cast<const void*>(
                                &reinterpret_cast<const sockaddr_in6&>(address.bytes).sin6_addr)
                          : &reinterpret_cast<const sockaddr_in&>(address.bytes).sin_addr;
  const char* const done =
      inet_ntop(address.bytes.ss_family, bytes, text.data(), static_cast<socklen_t>(text.size()));
  return done == nullptr ? "" : done;
}

absl::StatusOr<Socket> Dial(const Address& address, Clock::time_point deadline) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return Failed("socket");
  const int fd = socket.fd();
  // Lets another job listen on the local port that the kernel picks here.
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
    if (errno != EINPROGRESS) return Failed("connect");
    if (!socket.Await(POLLOUT, std::min(deadline, Clock::now() + std::chrono::seconds(2)))) {
      return absl::UnavailableError("connect: no answer");
    }
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return Failed("connect");
    }
  }
  if (EndOf(fd, getsockname) == EndOf(fd, getpeername)) {
    // Connected to itself. Closes without TIME_WAIT, in which the port would stay taken.
    const linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return absl::UnavailableError("connect: no process listens there");
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  Tune(socket);
  return socket;
}

absl::Status ReserveDescriptors(int64_t needed) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  // The lowest free descriptor tells how many are open; the program may open some more.
  const Socket lowest(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const rlim_t used = lowest.open() ? static_cast<rlim_t>(lowest.fd()) : limit.rlim_cur;
  constexpr int64_t kOthers = 64;  // descriptors that the program may open beside
  const rlim_t all = used + static_cast<rlim_t>(needed + kOthers);
  if (all <= limit.rlim_cur) return absl::OkStatus();
  const rlim_t soft = limit.rlim_cur;
  if (all <= limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(fmt::format(
      "{} connections need {} descriptors, and the limit is {} (soft), {} (hard); raise ulimit -n",
      needed, all, soft, limit.rlim_max));
}

}  // namespace meshift
