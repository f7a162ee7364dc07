#include "comm/control/hub.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/control/frame.h"
#include "comm/control/socket.h"

namespace meshift {

using Kind = Frame::Kind;

absl::StatusOr<std::unique_ptr<Hub>> Hub::Start(int64_t world_size, std::string token,
                                                std::optional<Listening> listening) {
  MESHIFT_ASSIGN_OR_RETURN(auto ends, SocketPair());
  std::unique_ptr<Hub> hub(new Hub(world_size, std::move(token), std::move(listening),
                                   std::move(ends.first), std::move(ends.second)));
  hub->thread_ = std::thread([h = hub.get()] { h->Run(); });
  return hub;
}

Hub::Hub(int64_t world_size, std::string token, std::optional<Listening> listening, Socket wake,
         Socket woken)
    : world_size_(world_size),
      token_(std::move(token)),
      listening_(std::move(listening)),
      wake_(std::move(wake)),
      woken_(std::move(woken)),
      by_rank_(world_size),
      presence_(world_size, Presence::kNever),
      byes_(world_size) {}

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
  std::vector<pollfd> fds;
  while (true) {
    {
      const MutexLock lock(mutex_);
      for (Socket& socket : adopted_) {
        connections_.push_back(std::make_unique<Connection>());
        connections_.back()->socket = std::move(socket);
      }
      adopted_.clear();
      if (stopping_) break;
    }
    fds.clear();
    fds.push_back({woken_.fd(), POLLIN, 0});
    if (listening_) fds.push_back({listening_->socket().fd(), POLLIN, 0});
    const size_t first = fds.size();
    const size_t count = connections_.size();
    for (const auto& connection : connections_) {
      const int events = connection->out.empty() ? POLLIN : POLLIN | POLLOUT;
      fds.push_back({connection->socket.fd(), static_cast<short>(events), 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0) continue;  // a signal

    if (fds[0].revents != 0) {
      std::array<char, 64> ignored;
      static_cast<void>(recv(woken_.fd(), ignored.data(), ignored.size(), MSG_DONTWAIT));
    }
    if (listening_ && fds[1].revents != 0) {
      if (Socket socket = listening_->Accept(); socket.open()) {
        connections_.push_back(std::make_unique<Connection>());
        connections_.back()->socket = std::move(socket);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      Connection& connection = *connections_[i];
      const short events = fds[first + i].revents;
      if ((events & POLLOUT) != 0) Flush(connection);
      if ((events & ~POLLOUT) != 0) Read(connection);
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->closed; });
  }
  // What rank 0 said just before, its goodbye above all, is for the others.
  for (const auto& connection : connections_) Read(*connection);
  SendToAll({.kind = Kind::kBye, .rank = -1}, -1);
}

void Hub::Read(Connection& connection) {
  std::array<char, 1 << 16> bytes;
  while (!connection.closed) {
    const ssize_t size = recv(connection.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) return Close(connection);
    connection.reader.Add({bytes.data(), static_cast<size_t>(size)});
    while (!connection.closed) {
      absl::StatusOr<std::optional<Frame>> frame = connection.reader.Next();
      if (!frame.ok()) return Close(connection);
      if (!frame->has_value()) break;
      Handle(connection, **std::move(frame));
    }
  }
}

void Hub::Flush(Connection& connection) {
  size_t sent = 0;
  while (sent < connection.out.size()) {
    const ssize_t size = send(connection.socket.fd(), connection.out.data() + sent,
                              connection.out.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) break;  // full; or gone, which reading will tell
    sent += static_cast<size_t>(size);
  }
  connection.out.erase(0, sent);
}

void Hub::Close(Connection& connection) {
  connection.closed = true;
  connection.socket.Shutdown();
  const int64_t rank = connection.rank;
  if (rank < 0) return;
  by_rank_[rank] = nullptr;
  if (presence_[rank] == Presence::kLeft) return;
  presence_[rank] = Presence::kGone;
  went_.push_back(rank);
  SendToAll({.kind = Kind::kGone, .rank = rank}, rank);
}

void Hub::Handle(Connection& connection, Frame frame) {
  if (frame.kind == Kind::kHello) return OnHello(connection, frame);
  if (connection.rank < 0) return Close(connection);
  const int64_t sender = connection.rank;
  switch (frame.kind) {
    case Kind::kExchange:
      frame.rank = sender;
      return OnExchange(frame);
    case Kind::kMissing:
      frame.rank = sender;
      return OnMissing(std::move(frame));
    case Kind::kJoin:
      return OnJoin(frame);
    case Kind::kAnnounce:
      frame.rank = sender;
      return OnAnnounce(frame);
    case Kind::kAsk:
      frame.rank = sender;
      return OnAsk(frame);
    case Kind::kAnswer: {
      const int64_t asker = std::exchange(frame.rank, sender);
      return Send(asker, frame);
    }
    case Kind::kFail:
      frame.rank = sender;
      SendToRoot(frame.root, frame, sender);
      // Before its process ends, which may be this one.
      return Send(sender, {.kind = Kind::kPassed, .root = frame.root});
    case Kind::kBye:
    case Kind::kLeave:
      if (presence_[sender] != Presence::kHere) return Close(connection);
      presence_[sender] = Presence::kLeft;
      went_.push_back(sender);
      frame.rank = sender;
      byes_[sender] = std::move(frame);
      SendToAll(byes_[sender], sender);
      // As of a kFail.
      if (byes_[sender].kind == Kind::kLeave) Send(sender, {.kind = Kind::kPassed});
      return;
    default:
      return Close(connection);
  }
}

void Hub::OnHello(Connection& connection, const Frame& frame) {
  Frame welcome{.kind = Kind::kWelcome};
  if (connection.rank >= 0 || frame.text != token_) {
    welcome.text = "it belongs to another job";
  } else if (frame.number != world_size_) {
    welcome.text = fmt::format("its job has {} ranks, not {}", world_size_, frame.number);
  } else if (frame.rank < 0 || frame.rank >= world_size_) {
    welcome.text = fmt::format("rank {} is not between 0 and {}", frame.rank, world_size_ - 1);
  } else if (presence_[frame.rank] != Presence::kNever) {
    welcome.text = fmt::format("rank {} has been here already", frame.rank);
  }
  connection.out += Encode(welcome);
  Flush(connection);
  if (!welcome.text.empty()) return Close(connection);
  connection.rank = frame.rank;
  by_rank_[frame.rank] = &connection;
  presence_[frame.rank] = Presence::kHere;
  // What it has missed.
  for (const int64_t rank : went_) {
    const bool left = presence_[rank] == Presence::kLeft;
    Send(frame.rank, left ? byes_[rank] : Frame{.kind = Kind::kGone, .rank = rank});
  }
}

void Hub::OnExchange(const Frame& frame) {
  std::map<int64_t, std::string>& given = exchanges_[frame.number];
  given[frame.rank] = frame.text;
  if (static_cast<int64_t>(given.size()) < world_size_) return;
  std::vector<std::string> all;
  all.reserve(given.size());
  for (auto& [rank, bytes] : given) all.push_back(std::move(bytes));
  exchanges_.erase(frame.number);
  SendToAll({.kind = Kind::kExchange, .number = frame.number, .text = EncodeList(all)}, -1);
}

void Hub::OnMissing(Frame frame) {
  const auto it = exchanges_.find(frame.number);
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    if (it == exchanges_.end() || it->second.count(rank) == 0) missing.push_back(rank);
  }
  frame.text = EncodeRanks(missing);
  Send(frame.rank, frame);
}

void Hub::OnJoin(const Frame& frame) {
  Root& root = roots_[frame.root];
  if (!root.ranks.empty()) return;
  for (const int64_t rank : DecodeRanks(frame.text)) {
    if (rank >= 0 && rank < world_size_) root.ranks.push_back(rank);
  }
}

void Hub::OnAnnounce(const Frame& frame) {
  Root& root = roots_[frame.root];
  Announced& call = root.calls[frame.number];
  if (call.settled) return Send(frame.rank, *call.settled);
  if (call.count == 0) call.first = frame;
  ++call.count;
  if (frame.high != call.first.high || frame.low != call.first.low) {
    call.settled = Frame{.kind = Kind::kSettled,
                         .number = frame.number,
                         .code = static_cast<int64_t>(absl::StatusCode::kFailedPrecondition),
                         .root = frame.root,
                         .text = fmt::format("the ranks disagree in call {}: rank {} has {}, but "
                                             "rank {} has {}",
                                             frame.number, call.first.rank, call.first.text,
                                             frame.rank, frame.text)};
    return SendToRoot(frame.root, *call.settled, -1);
  }
  if (call.count < static_cast<int64_t>(root.ranks.size())) return;
  root.calls.erase(frame.number);
  SendToRoot(frame.root, {.kind = Kind::kSettled, .number = frame.number, .root = frame.root}, -1);
}

void Hub::OnAsk(const Frame& frame) {
  for (const int64_t rank : roots_[frame.root].ranks) {
    if (rank == frame.rank) continue;
    if (by_rank_[rank] != nullptr) {
      Send(rank, frame);
    } else {
      const Frame::State state = presence_[rank] == Presence::kLeft   ? Frame::kHasLeft
                                 : presence_[rank] == Presence::kGone ? Frame::kIsGone
                                                                      : Frame::kNotMade;
      Send(frame.rank, {.kind = Kind::kAnswer, .rank = rank, .id = frame.id, .code = state});
    }
  }
}

void Hub::Send(int64_t rank, const Frame& frame) {
  if (rank < 0 || rank >= world_size_ || by_rank_[rank] == nullptr) return;
  Connection& connection = *by_rank_[rank];
  connection.out += Encode(frame);
  Flush(connection);
}

void Hub::SendToRoot(const std::string& root, const Frame& frame, int64_t but) {
  // Rank 0 is told last: knowing of an error, its process may end, and this hub with it.
  const std::vector<int64_t>& ranks = roots_[root].ranks;
  for (auto rank = ranks.rbegin(); rank != ranks.rend(); ++rank) {
    if (*rank != but) Send(*rank, frame);
  }
}

void Hub::SendToAll(const Frame& frame, int64_t but) {
  for (int64_t rank = world_size_ - 1; rank >= 0; --rank) {
    if (rank != but) Send(rank, frame);
  }
}

}  // namespace meshift
