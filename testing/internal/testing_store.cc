#include "testing/internal/testing_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace meshift {
namespace {

// Reads exactly `size` bytes; a client that ends early ends the connection.
bool Read(const Socket& socket, void* bytes, size_t size) {
  return size == 0 || recv(socket.fd(), bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

std::optional<std::string> ReadText(const Socket& socket) {
  uint64_t size = 0;
  if (!Read(socket, &size, sizeof(size)) || size > 65536) return std::nullopt;
  std::string text(size, '\0');
  if (!Read(socket, text.data(), size)) return std::nullopt;
  return text;
}

}  // namespace

TestingStore::TestingStore() : listening_(*Listening::Open(0)), thread_([this] { Run(); }) {}

TestingStore::~TestingStore() {
  stopping_ = true;
  thread_.join();
}

int TestingStore::Size() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(values_.size());
}

bool TestingStore::Has(std::string_view text) const {
  const MutexLock lock(mutex_);
  for (const auto& [key, value] : values_) {
    if (key.find(text) != std::string::npos || value.find(text) != std::string::npos) return true;
  }
  return false;
}

// Serves one connection after another, since clients ask little and leave.
void TestingStore::Run() {
  while (!stopping_) {
    if (!listening_.socket().Await(
            POLLIN, std::chrono::steady_clock::now() + std::chrono::milliseconds(20))) {
      continue;
    }
    if (const Socket socket = listening_.Accept(); socket.open()) Serve(socket);
  }
}

void TestingStore::Serve(const Socket& socket) {
  // As the real store: ignores clients that do not begin with its magic number.
  uint8_t request = 0;
  uint32_t magic = 0;
  if (!Read(socket, &request, 1) || request != 0 || !Read(socket, &magic, 4) ||
      magic != 0x3C85F7CE) {
    return;
  }
  while (Read(socket, &request, 1)) {
    if (request == 1) {  // set
      std::optional<std::string> key = ReadText(socket);
      std::optional<std::string> value = ReadText(socket);
      if (!key || !value) return;
      const MutexLock lock(mutex_);
      values_[*key] = *value;
    } else if (request == 5) {  // check
      uint64_t count = 0;
      if (!Read(socket, &count, sizeof(count)) || count != 1) return;
      const std::optional<std::string> key = ReadText(socket);
      if (!key) return;
      const MutexLock lock(mutex_);
      const char answer = values_.count(*key) != 0 ? 0 : 1;
      socket.SendAll({&answer, 1}).IgnoreError();
    } else if (request == 3) {  // get
      const std::optional<std::string> key = ReadText(socket);
      const MutexLock lock(mutex_);
      if (!key || values_.count(*key) == 0) return;
      const std::string& value = values_[*key];
      const uint64_t size = value.size();
      std::string answer(sizeof(size), '\0');
      std::memcpy(answer.data(), &size, sizeof(size));
      socket.SendAll(answer + value).IgnoreError();
    } else {
      return;
    }
  }
}

}  // namespace meshift
