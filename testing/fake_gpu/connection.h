// Messages through a socket. One thread reads and another writes, so that sending never blocks.
//
//   auto connection = Connection::Start(fd, on_message, on_close);
//   connection->Deliver(message);
#ifndef MESHIFT_TESTING_FAKE_GPU_CONNECTION_H_
#define MESHIFT_TESTING_FAKE_GPU_CONNECTION_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "testing/fake_gpu/message.h"

namespace meshift::fake {

class Connection : public Sink, public std::enable_shared_from_this<Connection> {
 public:
  using OnMessage = std::function<void(const std::shared_ptr<Connection>&, Message)>;
  using OnClose = std::function<void(const std::shared_ptr<Connection>&)>;

  // Owns `fd`. Calls the functions on the reading thread; `on_close` last and once.
  static std::shared_ptr<Connection> Start(int fd, OnMessage on_message, OnClose on_close);
  ~Connection() override;

  void Deliver(Message message) override;

  // Waits until all messages so far are handed to the system, at most for `most`.
  void Flush(std::chrono::milliseconds most);

 private:
  explicit Connection(int fd) : fd_(fd) {}
  void Read(const OnMessage& on_message, const OnClose& on_close);
  void Write();

  const int fd_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> outbox_;
  bool writing_ = false;
  bool closed_ = false;
};

// Listens on the loopback interface; returns the socket and sets its port. -1: it failed.
int Listen(uint16_t* port);
// Connects to a port of the loopback interface; returns the socket. -1: it failed.
int Connect(uint16_t port);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_CONNECTION_H_
