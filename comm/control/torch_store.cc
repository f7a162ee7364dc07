#include "comm/control/torch_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/socket.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Request codes of PyTorch's TCPStore. Its numbers are in host byte order; here they are
// little-endian.
enum Request : uint8_t { kValidate = 0, kSet = 1, kGet = 3, kCheck = 5 };
constexpr uint32_t kStoreMagic = 0x3C85F7CE;
constexpr char kReady = 0;

void PutNumber(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

void PutBytes(std::string_view bytes, std::string* out) {
  PutNumber(bytes.size(), 8, out);
  *out += bytes;
}

std::string Begin() {
  std::string out(1, kValidate);
  PutNumber(kStoreMagic, 4, &out);
  return out;
}

std::string IsThere(const std::string& key) {
  std::string out(1, kCheck);
  PutNumber(1, 8, &out);
  PutBytes(key, &out);
  return out;
}

// The end of one try: a store answers a small request within 5 seconds.
Clock::time_point Soon(Clock::time_point deadline) {
  return std::min(deadline, Clock::now() + std::chrono::seconds(5));
}

absl::StatusOr<std::string> Receive(const Socket& socket, size_t size, Clock::time_point until) {
  std::string bytes(size, '\0');
  size_t there = 0;
  while (there < size) {
    if (!socket.Await(POLLIN, until)) return absl::UnavailableError("the store does not answer");
    const ssize_t got = recv(socket.fd(), bytes.data() + there, size - there, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return absl::UnavailableError("the store has hung up");
    there += static_cast<size_t>(got);
  }
  return bytes;
}

absl::StatusOr<Socket> Connect(const std::string& host, int port, Clock::time_point deadline) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(host, port));
  absl::Status last = absl::UnavailableError("it has no address");
  for (const Address& address : addresses) {
    absl::StatusOr<Socket> socket = Dial(address, deadline);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

absl::StatusOr<bool> Check(const Socket& socket, Clock::time_point until) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string answer, Receive(socket, 1, until));
  if (answer[0] != kReady && answer[0] != kReady + 1) {
    return absl::UnavailableError("the process that answers is not PyTorch's store");
  }
  return answer[0] == kReady;
}

}  // namespace

absl::Status TorchStore::Set(const std::string& key, const std::string& value,
                             Deadline deadline) const {
  absl::Status last;
  while (true) {
    const auto attempt = [&]() -> absl::Status {
      const Clock::time_point until = Soon(deadline);
      MESHIFT_ASSIGN_OR_RETURN(const Socket socket, Connect(host_, port_, until));
      std::string out = Begin();
      out.push_back(kSet);
      PutBytes(key, &out);
      PutBytes(value, &out);
      MESHIFT_RETURN_IF_ERROR(socket.SendAll(out + IsThere(key)));
      MESHIFT_ASSIGN_OR_RETURN(const bool there, Check(socket, until));
      return there ? absl::OkStatus() : absl::UnavailableError("the store did not accept the key");
    };
    last = attempt();
    if (last.ok()) return last;
    if (Clock::now() >= deadline) return absl::DeadlineExceededError(Message(last));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

absl::StatusOr<std::string> TorchStore::TryGet(const std::string& key, Deadline deadline) const {
  const Clock::time_point until = Soon(deadline);
  MESHIFT_ASSIGN_OR_RETURN(const Socket socket, Connect(host_, port_, until));
  MESHIFT_RETURN_IF_ERROR(socket.SendAll(Begin() + IsThere(key)));
  MESHIFT_ASSIGN_OR_RETURN(const bool there, Check(socket, until));
  // A get of a key that is not set makes the store hang up or wait.
  if (!there) return absl::NotFoundError(fmt::format("key {} is not set", key));
  std::string out(1, kGet);
  PutBytes(key, &out);
  MESHIFT_RETURN_IF_ERROR(socket.SendAll(out));
  MESHIFT_ASSIGN_OR_RETURN(const std::string length, Receive(socket, 8, until));
  uint64_t size = 0;
  for (size_t i = 0; i < length.size(); ++i) {
    size |= uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
  }
  if (size > kMaxValue) {
    return absl::UnavailableError(
        fmt::format("{} has {} bytes, more than {}", key, size, kMaxValue));
  }
  return Receive(socket, size, until);
}

}  // namespace meshift
