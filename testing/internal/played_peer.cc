#include "testing/internal/played_peer.h"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/handshake.h"

namespace meshift {

std::optional<Frame> PlayedPeer::Next(bool waits) {
  while (true) {
    absl::StatusOr<std::optional<Frame>> frame = reader_.Next();
    if (!frame.ok()) return std::nullopt;
    if (*frame) return *std::move(frame);
    std::array<char, 4096> bytes;
    const ssize_t size = recv(socket_.fd(), bytes.data(), bytes.size(), waits ? 0 : MSG_DONTWAIT);
    if (size <= 0) return std::nullopt;
    reader_.Add({bytes.data(), static_cast<size_t>(size)});
  }
}

absl::Status PlayedRank::Greet() {
  RankHandshake handshake(job_, key_, std::string(kNonceBytes, 'r'));
  absl::Status status = socket_.SendAll(handshake.Hello());
  while (status.ok() && !handshake.welcome()) {
    const std::optional<Frame> frame = Next();
    if (!frame) return absl::UnavailableError("the hub has hung up");
    std::string said;
    status = handshake.Take(*frame, &said);
    if (status.ok()) status = socket_.SendAll(said);
  }
  return status;
}

absl::Status PlayedHub::Greet() {
  HubHandshake handshake(&key_, std::string(kNonceBytes, 'h'));
  while (!handshake.proven()) {
    // Byte by byte, so that the bytes after the handshake are left for Next().
    char byte = 0;
    if (recv(socket_.fd(), &byte, 1, 0) <= 0) return absl::UnavailableError("hung up");
    std::string said;
    absl::Status status = handshake.Take({&byte, 1}, &said);
    if (status.ok()) status = socket_.SendAll(said);
    if (!status.ok()) return status;
  }
  return socket_.SendAll(handshake.Welcome(""));
}

Socket DialPort(int port) {
  return *Dial(Resolve("127.0.0.1", port)->front(),
               std::chrono::steady_clock::now() + std::chrono::seconds(20));
}

Socket Accepted(const Listening& listening) {
  while (true) {
    if (Socket socket = listening.Accept(); socket.open()) {
      Tune(socket);
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Contains(const absl::Status& status, const std::string& part) {
  return Message(status).find(part) != std::string::npos;
}

}  // namespace meshift
