#include "comm/control/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/handshake.h"
#include "comm/control/message_router.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;

constexpr int kEvents = 8192;  // of epoll at most, per turn

Bytes Share(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// The bytes for which a queued frame counts against kMaxWaiting.
size_t Weight(const Bytes& bytes) {
  constexpr size_t kKindAt = 4;  // after the length
  const bool shared = (*bytes)[kKindAt] == static_cast<char>(Kind::kExchange);
  return sizeof(Bytes) + (shared ? bytes->size() / 64 : bytes->size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hub>> Hub::Start(int64_t world_size, JobKey key,
                                                std::optional<Listening> listening) {
  MESHIFT_ASSIGN_OR_RETURN(auto ends, SocketPair());
  Socket epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN;
  if (!epoll.open() || epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, ends.second.fd(), &event) != 0) {
    return absl::UnavailableError(fmt::format("epoll: {}", std::system_category().message(errno)));
  }
  std::unique_ptr<Hub> hub(new Hub(world_size, std::move(key), std::move(listening),
                                   std::move(ends.first), std::move(ends.second),
                                   std::move(epoll)));
  hub->thread_ = std::thread([h = hub.get()] { h->Run(); });
  return hub;
}

Hub::Hub(int64_t world_size, JobKey key, std::optional<Listening> listening, Socket wake,
         Socket woken, Socket epoll)
    : world_size_(world_size),
      key_(std::move(key)),
      listening_(std::move(listening)),
      wake_(std::move(wake)),
      woken_(std::move(woken)),
      epoll_(std::move(epoll)),
      by_rank_(world_size),
      router_(world_size,
              [this](int64_t rank, const Bytes& bytes) {
                if (by_rank_[rank] != nullptr) Send(*by_rank_[rank], bytes);
              }),
      reserve_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      buffer_(kTurnBytes),
      events_(kEvents) {}

Hub::~Hub() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.SendAll("x").IgnoreError();
  thread_.join();
}

void Hub::Adopt(Socket socket) {
  {
    const MutexLock lock(mutex_);
    adopted_.push_back(std::move(socket));
  }
  wake_.SendAll("x").IgnoreError();
}

void Hub::Run() {
  if (listening_) {
    epoll_event event = {};
    event.data.ptr = &accepting_;  // marks the listening socket
    epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, listening_->socket().fd(), &event);
    SetAccepting(true);
  }
  while (true) {
    // When memory runs out, the hub continues. Read() and HandleFrames() close the connection that
    // needed it. Here messages may be lost; ranks that wait for them end with their time-out.
    try {
      {
        const MutexLock lock(mutex_);
        for (Socket& socket : std::exchange(adopted_, {})) Admit(std::move(socket), /*own=*/true);
        if (stopping_) break;
      }
      Turn();
    } catch (const std::bad_alloc&) {
      continue;
    }
  }
  try {
    Leave();
  } catch (const std::bad_alloc&) {
    return;
  }
}

int Hub::Timeout() const {
  if (!more_.empty()) return 0;
  Clock::time_point next = Clock::time_point::max();
  if (strangers_ > 0) next = connections_.front().since + kHandshakeTime;
  if (listening_ && !accepting_) next = std::min(next, accept_after_);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
}

void Hub::Turn() {
  const int count = epoll_wait(epoll_.fd(), events_.data(), kEvents, Timeout());
  // First the frames that earlier turns left over, at most kTurnFrames per connection.
  std::vector<Connection*> more = std::move(more_);
  more_.clear();
  for (Connection* connection : more) {
    connection->more = false;
    if (!connection->closed) HandleFrames(*connection);
  }
  bool accept = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event event = events_[i];
    if (event.data.ptr == nullptr) {
      static_cast<void>(recv(woken_.fd(), buffer_.data(), buffer_.size(), MSG_DONTWAIT));
      continue;
    }
    if (event.data.ptr == &accepting_) {
      accept = true;
      continue;
    }
    Connection& connection = *static_cast<Connection*>(event.data.ptr);
    if (connection.closed) continue;
    if ((event.events & EPOLLOUT) != 0) Flush(connection);
    if ((event.events & ~EPOLLOUT) != 0) Read(connection);
  }
  Reap();
  router_.EndTurn();
  if (listening_) {
    const Clock::time_point now = Clock::now();
    DropLateStrangers(now);
    if (!accepting_ && now >= accept_after_) SetAccepting(true);
    if (accept && accepting_) Accept();
  }
  Reap();
}

void Hub::Admit(Socket socket, bool own) {
  absl::StatusOr<std::string> nonce = RandomBytes();
  if (!nonce.ok()) return;  // closes the connection; a rank of another process tries again
  // Strangers come first, oldest first.
  const auto before = own ? connections_.end() : std::next(connections_.begin(), strangers_);
  const auto it = connections_.emplace(before);
  it->socket = std::move(socket);
  it->own = own;
  it->since = Clock::now();
  it->handshake.emplace(&key_, *std::move(nonce));
  it->self = it;
  if (!own) ++strangers_;
  // So that Close() needs no memory.
  closed_.reserve(connections_.size());
  gone_.reserve(connections_.size());
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = &*it;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, it->socket.fd(), &event) != 0) Close(*it);
}

bool Hub::HasRoom(Clock::time_point now) {
  if (failures_ >= kMaxFailures && now - second_ < std::chrono::seconds(1)) return false;
  const bool silent = strangers_ - greeted_ >= kMaxStrangers;
  if (!silent && greeted_ < kMaxGreeted) return true;
  // The oldest connection of the kind that is at its limit.
  auto it = connections_.begin();
  for (size_t i = 0; i < strangers_; ++i, ++it) {
    if (it->closed || it->counted == silent) continue;
    if (now - it->since < (silent ? kSilentTime : kSlowTime)) return false;
    Close(*it);
    return true;
  }
  return false;
}

void Hub::Accept() {
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < kMaxStrangers; ++i) {
    if (!HasRoom(now)) {
      accept_after_ = now + std::chrono::milliseconds(10);
      return SetAccepting(false);
    }
    Reap();  // frees the connection that made room
    Socket socket = listening_->Accept();
    if (!socket.open()) {  // errno has the reason
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        RefuseForDescriptors();
      }
      return;
    }
    router_.SetNote("");
    Admit(std::move(socket), /*own=*/false);
  }
}

void Hub::RefuseForDescriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string why = fmt::format(
      "the hub in rank 0's process can take no more connections: {}; the limit of descriptors is "
      "{} (soft), {} (hard)",
      std::system_category().message(errno), limit.rlim_cur, limit.rlim_max);
  router_.SetNote(why);
  // The spare descriptor serves to send the refusal to the waiting connections, one at a time.
  reserve_ = Socket();
  const std::string refusal = Refusal(why);
  for (size_t i = 0; i < kMaxStrangers; ++i) {
    const Socket socket = listening_->Accept();
    if (!socket.open()) break;
    static_cast<void>(
        send(socket.fd(), refusal.data(), refusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    // Closing a socket with unread bytes would discard the refusal.
    static_cast<void>(shutdown(socket.fd(), SHUT_WR));
    static_cast<void>(recv(socket.fd(), buffer_.data(), buffer_.size(), MSG_DONTWAIT));
  }
  reserve_ = Socket(open("/dev/null", O_RDONLY | O_CLOEXEC));
  accept_after_ = Clock::now() + std::chrono::milliseconds(50);
  SetAccepting(false);
}

void Hub::SetAccepting(bool accepting) {
  accepting_ = accepting;
  epoll_event event = {};
  event.events = accepting ? EPOLLIN : 0U;
  event.data.ptr = &accepting_;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, listening_->socket().fd(), &event);
}

void Hub::DropLateStrangers(Clock::time_point now) {
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    failures_ = 0;
  }
  auto it = connections_.begin();
  for (size_t left = strangers_; left > 0 && now - it->since >= kHandshakeTime; --left) {
    Close(*it++);
  }
}

bool Hub::Read(Connection& connection) {
  if (connection.more) return true;  // first handle the frames in the reader
  const size_t most = connection.handshake ? kHandshakeBytes : buffer_.size();
  const ssize_t size = recv(connection.socket.fd(), buffer_.data(), most, MSG_DONTWAIT);
  if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (size <= 0) {
    Close(connection);
    return false;
  }
  try {
    const std::string_view bytes(buffer_.data(), static_cast<size_t>(size));
    if (connection.handshake) {
      Greet(connection, bytes);
    } else {
      connection.reader.Add(bytes);
      HandleFrames(connection);
    }
  } catch (const std::bad_alloc&) {
    Close(connection);
  }
  return true;
}

void Hub::Greet(Connection& connection, std::string_view bytes) {
  std::string said;
  const absl::Status status = connection.handshake->Take(bytes, &said);
  if (!said.empty()) Send(connection, Share(std::move(said)));
  if (!status.ok()) {
    if (connection.handshake->greeted()) {
      router_.NoteRefusal(connection.handshake->hello().rank, Message(status));
    }
    return Close(connection);
  }
  if (!connection.own && !connection.counted && connection.handshake->greeted()) {
    connection.counted = true;
    ++greeted_;
  }
  if (connection.handshake->proven()) LetIn(connection);
}

void Hub::LetIn(Connection& connection) {
  const Frame& hello = connection.handshake->hello();
  const int64_t rank = hello.rank;
  const std::string refusal = router_.Refuse(rank, hello.number);
  Send(connection, Share(connection.handshake->Welcome(refusal)));
  if (!refusal.empty()) return Close(connection);
  if (!connection.own) {
    --strangers_;
    --greeted_;
  }
  if (!connection.own) Tune(connection.socket);
  connections_.splice(connections_.end(), connections_, connection.self);
  connection.handshake.reset();
  connection.reader.SetLimits(MemberLimits(Side::kRank, world_size_));
  connection.rank = rank;
  by_rank_[rank] = &connection;
  router_.Enter(rank);
}

void Hub::HandleFrames(Connection& connection) {
  for (int i = 0; i < kTurnFrames && !connection.closed; ++i) {
    absl::Status status;
    try {
      absl::StatusOr<std::optional<Frame>> frame = connection.reader.Next();
      if (frame.ok() && !frame->has_value()) return;
      status = frame.ok() ? router_.Handle(connection.rank, **std::move(frame)) : frame.status();
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("the hub has no memory for it");
    }
    if (!status.ok()) return Drop(connection, Message(status));
  }
  if (connection.closed) return;
  connection.more = true;
  more_.push_back(&connection);
}

void Hub::Send(Connection& connection, const Bytes& bytes) {
  if (connection.closed) return;
  connection.waiting += Weight(bytes);
  connection.out.push_back(bytes);
  Flush(connection);
  if (connection.waiting > kMaxWaiting) Close(connection);
}

void Hub::Flush(Connection& connection) {
  constexpr size_t kPieces = 64;  // buffers of one sendmsg
  size_t budget = kTurnBytes;
  while (!connection.out.empty() && budget > 0) {
    std::array<iovec, kPieces> pieces;
    size_t count = 0;
    size_t total = 0;
    for (const Bytes& bytes : connection.out) {
      if (count == kPieces || total >= budget) break;
      const size_t from = count == 0 ? connection.sent : 0;
      const size_t size = std::min(bytes->size() - from, budget - total);
      pieces[count++] = {const_cast<char*>(bytes->data()) + from, size};
      total += size;
    }
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t size = sendmsg(connection.socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      // The peer is gone; the next read detects it.
      connection.out.clear();
      connection.sent = connection.waiting = 0;
    }
    if (size < 0) break;
    budget -= std::min(budget, static_cast<size_t>(size));
    connection.sent += static_cast<size_t>(size);
    while (!connection.out.empty() && connection.sent >= connection.out.front()->size()) {
      connection.sent -= connection.out.front()->size();
      connection.waiting -= Weight(connection.out.front());
      connection.out.pop_front();
    }
    if (static_cast<size_t>(size) < total) break;
  }
  Watch(connection, !connection.out.empty());
}

void Hub::Watch(Connection& connection, bool for_room) {
  if (connection.watched_for_room == for_room) return;
  connection.watched_for_room = for_room;
  epoll_event event = {};
  event.events = for_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &connection;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, connection.socket.fd(), &event);
}

void Hub::Drop(Connection& connection, const std::string& why) {
  try {
    Send(connection, Share(Encode({.kind = Kind::kDropped, .text = CutMessage(why)})));
  } catch (const std::bad_alloc&) {
    // Close without sending a reason.
  }
  Close(connection);
}

void Hub::Close(Connection& connection) {
  if (connection.closed) return;
  connection.closed = true;
  closed_.push_back(&connection);
  if (connection.rank < 0) return;
  by_rank_[connection.rank] = nullptr;
  // Reap() tells the router, which may be in the middle of sending to many ranks.
  gone_.push_back(connection.rank);
}

void Hub::Reap() {
  // After a bad_alloc a rank may be handled twice; the second Exit() does nothing.
  for (const int64_t rank : gone_) router_.Exit(rank);
  gone_.clear();
  for (Connection* connection : closed_) {
    if (connection->handshake && !connection->own) {
      --strangers_;
      if (connection->counted) --greeted_;
      ++failures_;
    }
    if (connection->more) std::erase(more_, connection);
    connections_.erase(connection->self);
  }
  closed_.clear();
}

void Hub::Leave() {
  // Forward frames that have arrived, such as rank 0's kBye. The time limit holds even if a rank
  // keeps sending.
  const Clock::time_point enough = Clock::now() + std::chrono::milliseconds(100);
  for (bool more = true; more && Clock::now() < enough;) {
    more = false;
    for (Connection& connection : connections_) {
      if (connection.closed || connection.rank < 0) continue;
      if (std::exchange(connection.more, false)) {
        HandleFrames(connection);
        more = true;
      } else {
        more |= Read(connection);
      }
    }
  }
  more_.clear();
  Reap();
  router_.EndTurn();
  router_.Leave();
  const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
  for (Connection& connection : connections_) {
    while (!connection.closed && connection.rank >= 0 && !connection.out.empty() &&
           connection.socket.Await(POLLOUT, end)) {
      Flush(connection);
    }
  }
}

}  // namespace meshift
