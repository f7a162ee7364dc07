#include "comm/control/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Failed(std::string_view what) {
  return absl::UnavailableError(fmt::format("{}: {}", what, std::system_category().message(errno)));
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// Messages are small and urgent; a host that has vanished is noticed within half a minute.
void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

// Connects to one address; waits at most two seconds.
absl::StatusOr<Socket> Dial(const addrinfo& address, Clock::time_point deadline) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return Failed("socket");
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Failed("connect");
    if (!socket.Await(POLLOUT, std::min(deadline, Clock::now() + std::chrono::seconds(2)))) {
      return absl::UnavailableError("connect: no answer");
    }
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return Failed("connect");
    }
  }
  fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
  Tune(socket.fd());
  return socket;
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
    // A signal came, or there is more time than one call can wait.
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

absl::StatusOr<Listening> Listening::Open(int port) {
  if (port < 0 || port > 65535) return InvalidArgument("port {} is not between 0 and 65535", port);
  Listening listening;
  listening.socket_ = Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in6 address6 = {};
  address6.sin6_family = AF_INET6;
  address6.sin6_port = htons(static_cast<uint16_t>(port));
  address6.sin6_addr = in6addr_any;
  sockaddr_in address4 = {};
  address4.sin_family = AF_INET;
  address4.sin_port = address6.sin6_port;
  auto* address = reinterpret_cast<sockaddr*>(&address6);
  socklen_t size = sizeof(address6);
  if (listening.socket_.open()) {
    SetOption(listening.socket_.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  } else {  // a host without IPv6
    listening.socket_ = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listening.socket_.open()) return Failed("socket");
    address = reinterpret_cast<sockaddr*>(&address4);
    size = sizeof(address4);
  }
  const int fd = listening.socket_.fd();
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd, address, size) != 0 || listen(fd, SOMAXCONN) != 0) {
    return Failed(fmt::format("listen on port {}", port));
  }
  if (getsockname(fd, address, &size) != 0) return Failed("getsockname");
  // Both families keep the port in the same place.
  listening.port_ = ntohs(reinterpret_cast<sockaddr_in*>(address)->sin_port);
  return listening;
}

Socket Listening::Accept() const {
  Socket accepted(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted.open()) Tune(accepted.fd());
  return accepted;
}

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "";
}

std::vector<std::string> HostAddresses() {
  std::vector<std::string> hosts;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return hosts;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 ||
        (i->ifa_flags & IFF_LOOPBACK) != 0 || i->ifa_addr->sa_family != AF_INET) {
      continue;
    }
    std::array<char, INET_ADDRSTRLEN> text = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      hosts.emplace_back(text.data());
    }
  }
  freeifaddrs(list);
  return hosts;
}

absl::StatusOr<Socket> DialAny(const std::vector<std::string>& hosts, int port,
                               Clock::time_point deadline) {
  absl::Status last = absl::UnavailableError("no host is given");
  do {
    for (const std::string& host : hosts) {
      addrinfo hints = {};
      hints.ai_socktype = SOCK_STREAM;
      addrinfo* list = nullptr;
      const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
      if (error != 0) {
        last = absl::UnavailableError(fmt::format("{}: {}", host, gai_strerror(error)));
        continue;
      }
      for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
        absl::StatusOr<Socket> socket = Dial(*i, deadline);
        if (socket.ok()) {
          freeaddrinfo(list);
          return socket;
        }
        last = socket.status();
      }
      freeaddrinfo(list);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  return absl::DeadlineExceededError(fmt::format("nobody answers on port {} of {}: {}", port,
                                                 fmt::join(hosts, ", "), Message(last)));
}

}  // namespace meshift
