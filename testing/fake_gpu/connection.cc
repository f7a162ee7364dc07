#include "testing/fake_gpu/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace meshift::fake {
namespace {

// The fixed part of a message.
struct Header {
  Message::Kind kind;
  int32_t rank;
  int32_t peer;
  uint32_t has_payload;
  uint64_t request;
  uint64_t comm;
  uint64_t seq;
  int64_t a;
  int64_t b;
  int64_t c;
  OpDescription op;
  uint64_t text_bytes;
  uint64_t payload_bytes;
};
static_assert(std::is_trivially_copyable_v<Header>);

bool SendAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(fd, at, bytes, 0);
    if (received <= 0) return false;
    at += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

bool SendMessage(int fd, const Message& message) {
  Header header = {};
  header.kind = message.kind;
  header.rank = message.rank;
  header.peer = message.peer;
  header.request = message.request;
  header.comm = message.comm;
  header.seq = message.seq;
  header.a = message.a;
  header.b = message.b;
  header.c = message.c;
  header.op = message.op;
  header.text_bytes = message.text.size();
  header.has_payload = message.payload != nullptr ? 1 : 0;
  header.payload_bytes = message.payload != nullptr ? message.payload->size() : 0;
  return SendAll(fd, &header, sizeof(header)) &&
         SendAll(fd, message.text.data(), message.text.size()) &&
         (message.payload == nullptr ||
          SendAll(fd, message.payload->data(), message.payload->size()));
}

bool ReceiveMessage(int fd, Message* message) {
  Header header;
  if (!ReceiveAll(fd, &header, sizeof(header))) return false;
  message->kind = header.kind;
  message->rank = header.rank;
  message->peer = header.peer;
  message->request = header.request;
  message->comm = header.comm;
  message->seq = header.seq;
  message->a = header.a;
  message->b = header.b;
  message->c = header.c;
  message->op = header.op;
  message->text.resize(header.text_bytes);
  if (!ReceiveAll(fd, message->text.data(), message->text.size())) return false;
  if (header.has_payload == 0) return true;
  message->payload = std::make_shared<std::vector<char>>(header.payload_bytes);
  return ReceiveAll(fd, message->payload->data(), message->payload->size());
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

std::shared_ptr<Connection> Connection::Start(int fd, OnMessage on_message, OnClose on_close) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::shared_ptr<Connection> connection(new Connection(fd));
  std::thread([connection, on_message = std::move(on_message), on_close = std::move(on_close)] {
    connection->Read(on_message, on_close);
  }).detach();
  std::thread([connection] { connection->Write(); }).detach();
  return connection;
}

Connection::~Connection() { close(fd_); }

void Connection::Deliver(Message message) {
  MutexLock lock(mutex_);
  if (closed_) return;
  outbox_.push_back(std::move(message));
  changed_.notify_all();
}

void Connection::Flush(std::chrono::milliseconds most) {
  MutexLock lock(mutex_);
  lock.WaitFor(changed_, most, [&] { return closed_ || (outbox_.empty() && !writing_); });
}

void Connection::Read(const OnMessage& on_message, const OnClose& on_close) {
  const std::shared_ptr<Connection> self = shared_from_this();
  Message message;
  while (ReceiveMessage(fd_, &message)) on_message(self, std::exchange(message, Message()));
  {
    MutexLock lock(mutex_);
    closed_ = true;
    outbox_.clear();
    changed_.notify_all();
  }
  on_close(self);
}

void Connection::Write() {
  while (true) {
    Message message;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      changed_.notify_all();
      lock.Wait(changed_, [&] { return closed_ || !outbox_.empty(); });
      if (closed_) return;
      writing_ = true;
      message = std::move(outbox_.front());
      outbox_.pop_front();
    }
    if (!SendMessage(fd_, message)) {
      shutdown(fd_, SHUT_RDWR);  // the reader notices
      return;
    }
  }
}

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 256) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    if (fd >= 0) close(fd);
    return -1;
  }
  *port = ntohs(address.sin_port);
  return fd;
}

int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (fd >= 0) close(fd);
    return -1;
  }
  return fd;
}

}  // namespace meshift::fake
