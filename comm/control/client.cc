#include "comm/control/client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/control/client_root.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "comm/control/handshake.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;
using Clock = std::chrono::steady_clock;

// How long the hub and peers may take to answer. meshift/bootstrap.h promises half a second.
constexpr std::chrono::milliseconds kAnswerTime(500);
constexpr size_t kMaxLeftRoots = 256;  // roots whose numbers of calls a kBye lists
constexpr size_t kJoinBytes = 32;      // at most, of a kBye per entry, beside the entry's text

// The error of a peer's failure: "rank 3 has failed: ...". If the peer failed because of another
// rank, its text has that rank's failure; only the original rank and reason are kept.
absl::Status FailureOf(int64_t rank, const absl::Status& error) {
  const std::string text = Message(error);
  constexpr std::string_view kRank = "rank ";
  for (size_t at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at + 1)) {
    if (at != 0 && !absl::EndsWith(text.substr(0, at), ": ")) continue;
    const size_t end = text.find_first_not_of("0123456789", at + kRank.size());
    for (const std::string_view verb : {" has failed: ", " is gone: "}) {
      if (text.compare(std::min(end, text.size()), verb.size(), verb) == 0) {
        return absl::Status(error.code(), text.substr(at));
      }
    }
  }
  const std::string own = fmt::format("rank {}: ", rank);
  return absl::Status(error.code(),
                      fmt::format("rank {} has failed: {}", rank,
                                  absl::StartsWith(text, own) ? text.substr(own.size()) : text));
}

// The error of a rank that left with `reason`: "rank 3: ...".
absl::Status LeftFor(int64_t rank, const absl::Status& reason) {
  const std::string own = fmt::format("rank {}", rank);
  return absl::StartsWith(Message(reason), own + ": ") ? reason : Annotate(reason, own);
}

// Decodes the text of a kBye: numbers of joins and of calls, by ranks or root.
std::map<std::string, int64_t> DecodeJoins(const std::string& text) {
  std::map<std::string, int64_t> joins;
  const absl::StatusOr<std::vector<std::string>> list = DecodeList(text);
  for (size_t i = 0; list.ok() && i + 1 < list->size(); i += 2) {
    if (int64_t times = 0; absl::SimpleAtoi((*list)[i + 1], &times)) joins[(*list)[i]] = times;
  }
  return joins;
}

// Reads once from the socket into `reader`. False at the end of the connection.
bool Receive(const Socket& socket, FrameReader* reader) {
  std::array<char, 1 << 16> bytes;
  ssize_t size = 0;
  do {
    size = recv(socket.fd(), bytes.data(), bytes.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return false;
  reader->Add({bytes.data(), static_cast<size_t>(size)});
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Start(const JobRank& job, Socket socket,
                                                      const JobKey& key, Clock::time_point until) {
  MESHIFT_ASSIGN_OR_RETURN(std::string nonce, RandomBytes());
  RankHandshake handshake(job, key, std::move(nonce));
  MESHIFT_RETURN_IF_ERROR(socket.SendAll(handshake.Hello()));
  FrameReader reader(HandshakeLimits());
  Clock::time_point wait = std::min(until, Clock::now() + kHelloTime);
  while (!handshake.welcome()) {
    absl::StatusOr<std::optional<Frame>> frame = reader.Next();
    if (!frame.ok()) {
      return absl::UnavailableError(
          fmt::format("the process that answers rank {} is not a hub of this version: {}", job.rank,
                      Message(frame.status())));
    }
    if (*frame) {
      std::string said;
      MESHIFT_RETURN_IF_ERROR(handshake.Take(**frame, &said));
      MESHIFT_RETURN_IF_ERROR(socket.SendAll(said));
      wait = std::min(until, Clock::now() + kProofTime);
      continue;
    }
    if (!socket.Await(POLLIN, wait)) {
      return absl::DeadlineExceededError(fmt::format("the hub does not answer rank {}", job.rank));
    }
    if (!Receive(socket, &reader)) {
      return absl::UnavailableError(fmt::format("the hub has hung up on rank {}", job.rank));
    }
  }
  reader.SetLimits(MemberLimits(Side::kHub, job.world_size));
  std::unique_ptr<Client> client(new Client(job, std::move(socket)));
  client->thread_ =
      std::thread([c = client.get(), r = std::move(reader)]() mutable { c->Run(std::move(r)); });
  return client;
}

Client::~Client() {
  std::vector<std::string> joins;
  bool left = false;
  {
    const MutexLock lock(mutex_);
    left = !leave_reason_.ok();
    size_t size = 0;
    for (const auto& [ranks, times] : joins_) {
      // Peers assume that omitted sets were not joined. A rank that joins late may then get an
      // error, but never wrong data.
      size += ranks.size() + kJoinBytes;
      if (size > kMaxRanksText) break;
      joins.push_back(ranks);
      joins.push_back(std::to_string(times));
    }
    // The numbers of calls of the last roots, by their keys (with "#", unlike ranks). If one is
    // omitted, peers that wait for this rank end with their time-out.
    for (auto it = left_roots_.rbegin(); it != left_roots_.rend(); ++it) {
      size += it->first.size() + kJoinBytes;
      if (size > kMaxRanksText) break;
      joins.push_back(it->first);
      joins.push_back(std::to_string(it->second));
    }
  }
  if (!left) Send({.kind = Kind::kBye, .text = EncodeList(joins)});
  socket_.Shutdown();
  thread_.join();
}

void Client::Run(FrameReader reader) {
  try {
    while (true) {
      absl::StatusOr<std::optional<Frame>> frame = reader.Next();
      if (!frame.ok()) return Lose(Annotate(frame.status(), "the hub in rank 0's process"), false);
      if (frame->has_value()) {
        Handle(**std::move(frame));
      } else if (!Receive(socket_, &reader)) {
        return Lose(absl::UnavailableError("the hub in rank 0's process is gone"), false);
      }
    }
  } catch (const std::bad_alloc&) {
    Lose(absl::ResourceExhaustedError("no memory for a message of the hub"), false);
  }
}

void Client::Handle(Frame frame) {
  if (const absl::Status ok = CheckFrame(frame, Side::kHub, job_.world_size); !ok.ok()) {
    return Lose(Annotate(ok, "the hub in rank 0's process"), false);
  }
  switch (frame.kind) {
    case Kind::kSettled:
    case Kind::kFail:
    case Kind::kAsk:
      return HandleOfRoot(std::move(frame));
    case Kind::kGone:
    case Kind::kLeave:
    case Kind::kBye:
      return HandleOfAbsent(frame);
    case Kind::kDropped:
      return Lose(FailedPrecondition("the hub in rank 0's process has dropped rank {}: {}",
                                     job_.rank, frame.text),
                  false);
    default: {
      const MutexLock lock(mutex_);
      if (frame.kind == Kind::kExchange) {
        const auto it = exchanged_.find(frame.number);
        if (it != exchanged_.end()) it->second = std::move(frame.text);
      }
      if (frame.kind == Kind::kPassed) passed_.insert(std::move(frame.root));
      if (frame.kind == Kind::kMissing) {
        absl::StatusOr<std::vector<std::string>> told = DecodeList(frame.text);
        if (!told.ok() || told->empty()) return;
        absl::StatusOr<std::vector<int64_t>> ranks = DecodeRanks(told->front(), job_.world_size);
        if (!ranks.ok()) return;
        told->erase(told->begin());
        missing_[frame.number] = {true, *std::move(ranks), *std::move(told)};
      }
      if (frame.kind == Kind::kAnswer) {
        const auto it = answers_.find(frame.id);
        if (it != answers_.end()) it->second[frame.rank] = std::move(frame);
      }
      changed_.notify_all();
    }
  }
}

void Client::HandleOfRoot(Frame frame) {
  const absl::Status status(static_cast<absl::StatusCode>(frame.code), frame.text);
  const MutexLock roots_lock(roots_mutex_);
  const auto it = roots_.find(frame.root);
  ClientRoot* const root = it == roots_.end() ? nullptr : it->second;
  if (frame.kind == Kind::kAsk) {
    frame.code = Frame::kNotMade;
    frame.number = root == nullptr ? 0 : frame.number;
    if (root != nullptr) root->Answer(&frame);
    frame.kind = Kind::kAnswer;
    frame.root.clear();
    return Send(frame);
  }
  const absl::Status failure = frame.kind == Kind::kFail ? FailureOf(frame.rank, status) : status;
  if (root == nullptr) {
    const MutexLock lock(mutex_);
    if (!failure.ok()) early_.emplace(frame.root, failure);
  } else if (frame.kind == Kind::kFail) {
    root->PeerFailed(failure);
  } else {
    root->Settle(frame.number, failure);
  }
}

void Client::HandleOfAbsent(const Frame& frame) {
  if (frame.rank < 0) return Lose(Went(0, true), /*left=*/true);
  const absl::Status status(static_cast<absl::StatusCode>(frame.code), frame.text);
  const absl::Status went = frame.kind == Kind::kLeave ? LeftFor(frame.rank, status)
                                                       : Went(frame.rank, frame.kind == Kind::kBye);
  {
    const MutexLock lock(mutex_);
    absent_.emplace(frame.rank, went);
    if (frame.kind == Kind::kBye) joins_of_left_[frame.rank] = DecodeJoins(frame.text);
    if (frame.kind == Kind::kLeave) left_.emplace_back(frame.rank, went);
    if (frame.kind != Kind::kBye) first_gone_.Update(went);
    changed_.notify_all();
  }
  // A rank that leaves in order only fails peers that make calls that it has not made.
  const auto calls =
      frame.kind == Kind::kBye ? DecodeJoins(frame.text) : std::map<std::string, int64_t>();
  const MutexLock roots_lock(roots_mutex_);
  for (const auto& [key, root] : roots_) {
    if (!root->Has(frame.rank)) continue;
    if (frame.kind != Kind::kBye) {
      root->PeerFailed(went);
    } else if (const auto it = calls.find(key); it != calls.end()) {
      root->PeerLeft(frame.rank, it->second);
    }
  }
}

void Client::Lose(const absl::Status& status, bool left) {
  absl::Status error = status;
  {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return;
    // Rank 0's process may have ended because another one did; then that one is the reason.
    if (!first_gone_.ok()) error = Annotate(first_gone_, Message(status) + ", after this");
    lost_ = error;
    hub_left_ = left;
    changed_.notify_all();
  }
  const MutexLock roots_lock(roots_mutex_);
  for (const auto& [key, root] : roots_) left ? root->HubLeft(error) : root->PeerFailed(error);
}

void Client::Send(const Frame& frame) {
  const MutexLock lock(send_mutex_);
  // If the hub is gone, the reading thread detects it.
  socket_.SendAll(Encode(frame)).IgnoreError();
}

absl::StatusOr<std::vector<std::string>> Client::Exchange(std::string_view mine,
                                                          std::chrono::nanoseconds timeout) {
  if (mine.size() > MaxExchangePart(job_.world_size)) {
    return InvalidArgument("{} bytes are too many to exchange among {} ranks: at most {} each",
                           mine.size(), job_.world_size, MaxExchangePart(job_.world_size));
  }
  int64_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = exchanges_++;
    exchanged_[number];
  }
  Send({.kind = Kind::kExchange, .number = number, .text = std::string(mine)});
  const absl::StatusOr<std::string> all = AwaitExchange(number, timeout);
  {
    const MutexLock lock(mutex_);
    exchanged_.erase(number);
  }
  MESHIFT_RETURN_IF_ERROR(all.status());
  return DecodeList(*all);
}

absl::StatusOr<std::string> Client::AwaitExchange(int64_t number,
                                                  std::chrono::nanoseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  size_t absent = 0;
  while (true) {
    bool late = false;
    std::map<int64_t, absl::Status> gone;
    {
      MutexLock lock(mutex_);
      late = !lock.WaitFor(changed_, deadline - Clock::now(), [&]() MESHIFT_REQUIRES(mutex_) {
        return exchanged_[number].has_value() || !leave_reason_.ok() || !lost_.ok() ||
               absent_.size() > absent || !left_.empty();
      });
      if (exchanged_[number].has_value()) return *std::move(exchanged_[number]);
      if (!leave_reason_.ok()) return leave_reason_;
      if (!left_.empty()) return left_.front().second;
      if (!lost_.ok()) return lost_;
      absent = absent_.size();
      gone = absent_;
    }
    // A rank that is gone may have sent its bytes before.
    const Missing missing = AskMissing(number);
    for (const int64_t rank : missing.ranks) {
      const auto it = gone.find(rank);
      if (it != gone.end()) return Annotate(it->second, fmt::format("exchange {}", number));
    }
    if (!late) continue;
    const auto limit = timeout / std::chrono::milliseconds(1);
    if (!missing.answered) {
      return absl::DeadlineExceededError(
          fmt::format("exchange {}: the hub in rank 0's process does not answer within {} ms",
                      number, limit + kAnswerTime.count()));
    }
    std::string text = fmt::format("exchange {}: ranks {{{}}} have sent nothing within {} ms",
                                   number, EncodeRanks(missing.ranks), limit);
    for (const std::string& note : missing.notes) text += "; " + note;
    return absl::DeadlineExceededError(text);
  }
}

Client::Missing Client::AskMissing(int64_t exchange) {
  Send({.kind = Kind::kMissing, .number = exchange});
  MutexLock lock(mutex_);
  lock.WaitFor(changed_, kAnswerTime, [&]() MESHIFT_REQUIRES(mutex_) {
    return missing_.count(exchange) != 0 || !lost_.ok() || !left_.empty() || !leave_reason_.ok();
  });
  const auto it = missing_.find(exchange);
  if (it == missing_.end()) return {};
  Missing missing = std::move(it->second);
  missing_.erase(it);
  return missing;
}

std::map<int64_t, Frame> Client::Ask(const std::string& root, int64_t call,
                                     absl::Span<const int64_t> ranks) {
  int64_t id = 0;
  {
    const MutexLock lock(mutex_);
    id = questions_++;
    answers_[id];
  }
  Send({.kind = Kind::kAsk, .number = call, .id = id, .root = root});
  MutexLock lock(mutex_);
  lock.WaitFor(changed_, kAnswerTime, [&]() MESHIFT_REQUIRES(mutex_) {
    return answers_[id].size() >= ranks.size() || !lost_.ok() || !WhyLeftLocked(ranks).ok();
  });
  std::map<int64_t, Frame> answers = std::move(answers_[id]);
  answers_.erase(id);
  return answers;
}

absl::Status Client::WhyLeft(absl::Span<const int64_t> ranks) {
  const MutexLock lock(mutex_);
  return WhyLeftLocked(ranks);
}

absl::Status Client::WhyLeftLocked(absl::Span<const int64_t> ranks) const {
  for (const auto& [rank, reason] : left_) {
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) return reason;
  }
  return absl::OkStatus();
}

void Client::Leave(const absl::Status& reason) {
  {
    const MutexLock lock(mutex_);
    if (reason.ok() || !leave_reason_.ok()) return;
    leave_reason_ = reason;
    changed_.notify_all();
  }
  Send({.kind = Kind::kLeave,
        .code = static_cast<int64_t>(reason.code()),
        .text = CutMessage(Message(reason))});
  AwaitPassed("");
}

bool Client::HubIsSilent() {
  const MutexLock lock(mutex_);
  return lost_.ok();
}

void Client::AwaitPassed(const std::string& root) {
  MutexLock lock(mutex_);
  lock.WaitFor(changed_, kAnswerTime,
               [&]() MESHIFT_REQUIRES(mutex_) { return passed_.count(root) != 0 || !lost_.ok(); });
}

absl::StatusOr<std::unique_ptr<ControlRoot>> Client::Join(
    absl::Span<const int64_t> ranks, std::function<void(const absl::Status&)> on_failure) {
  const bool ascend =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!ascend || std::find(ranks.begin(), ranks.end(), job_.rank) == ranks.end() ||
      ranks.front() < 0 || ranks.back() >= job_.world_size) {
    return InvalidArgument("ranks {{{}}} are not ascending ranks below {} that include rank {}",
                           fmt::join(ranks, ","), job_.world_size, job_.rank);
  }
  const std::string text = EncodeRanks(ranks);
  if (text.size() > kMaxRanksText) {
    return InvalidArgument("the list of {} ranks has {} bytes; the limit is {}", ranks.size(),
                           text.size(), kMaxRanksText);
  }
  const MutexLock roots_lock(roots_mutex_);
  std::string key;
  absl::Status hub_left;
  std::vector<std::pair<int64_t, int64_t>> calls_of_left;  // rank, and its calls on this root
  {
    const MutexLock lock(mutex_);
    const int64_t number = joins_[text]++;
    key = fmt::format("{}#{}", text, number);
    if (!leave_reason_.ok()) return leave_reason_;
    MESHIFT_RETURN_IF_ERROR(WhyLeftLocked(ranks));
    if (!lost_.ok() && !(hub_left_ && HadJoined(0, text, number))) return lost_;
    for (const auto& [rank, status] : absent_) {
      const bool needed = std::binary_search(ranks.begin(), ranks.end(), rank);
      if (needed && !HadJoined(rank, text, number)) return status;
    }
    if (const auto it = early_.find(key); it != early_.end()) return it->second;
    hub_left = lost_;
    for (const auto& [rank, left_joins] : joins_of_left_) {
      const auto it = left_joins.find(key);
      if (it != left_joins.end()) calls_of_left.emplace_back(rank, it->second);
    }
  }
  auto root = std::make_unique<ClientRoot>(
      this, key, std::vector<int64_t>(ranks.begin(), ranks.end()), std::move(on_failure));
  roots_.emplace(key, root.get());
  if (!hub_left.ok()) root->HubLeft(hub_left);
  for (const auto& [rank, calls] : calls_of_left) root->PeerLeft(rank, calls);
  Send({.kind = Kind::kJoin, .root = key, .text = text});
  return root;
}

bool Client::HadJoined(int64_t rank, const std::string& ranks, int64_t number) const {
  const auto left = joins_of_left_.find(rank);
  if (left == joins_of_left_.end()) return false;
  const auto times = left->second.find(ranks);
  return times != left->second.end() && times->second > number;
}

void Client::LeaveRoot(const std::string& root, int64_t calls) {
  {
    const MutexLock lock(roots_mutex_);
    roots_.erase(root);
  }
  {
    const MutexLock lock(mutex_);
    left_roots_.emplace_back(root, calls);
    if (left_roots_.size() > kMaxLeftRoots) left_roots_.pop_front();
  }
  Send({.kind = Kind::kPart, .root = root});
}

}  // namespace meshift
