#include "comm/control/client_root.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/control/client.h"
#include "comm/control/frame.h"
#include "comm/control/frame_rules.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Frame::Kind;

// The pause of a waiting thread between two calls of `meanwhile`.
constexpr std::chrono::microseconds kMeanwhile(50);

// The slot of a call's post. Any number is valid, as peers may ask about any call.
size_t Slot(int64_t call) { return static_cast<uint64_t>(call) % ControlRoot::kRememberedPosts; }

// "1 call", "6 calls".
std::string Calls(int64_t count) { return fmt::format("{} call{}", count, count == 1 ? "" : "s"); }

}  // namespace

absl::Status Went(int64_t rank, bool left) {
  return absl::UnavailableError(left ? fmt::format("rank {} has left the job", rank)
                                     : fmt::format("rank {} is gone: its process has ended or its "
                                                   "connection is lost",
                                                   rank));
}

ClientRoot::ClientRoot(Client* client, std::string key, std::vector<int64_t> ranks,
                       std::function<void(const absl::Status&)> on_failure)
    : client_(client),
      key_(std::move(key)),
      ranks_(std::move(ranks)),
      on_failure_(std::move(on_failure)),
      posts_(kRememberedPosts, CallPost{.call = -1}) {}

ClientRoot::~ClientRoot() {
  int64_t calls = 0;
  {
    const MutexLock lock(mutex_);
    calls = calls_;
  }
  client_->LeaveRoot(key_, calls);
}

void ClientRoot::Post(const CallPost& post, bool announce) {
  {
    const MutexLock lock(mutex_);
    posts_[Slot(post.call)] = post;
    calls_ = std::max(calls_, post.call + 1);
  }
  if (post.call >= fewest_calls_.load(std::memory_order_acquire)) [[unlikely]]
    MissPeer();
  if (!announce) return;
  client_->Send({.kind = Kind::kAnnounce,
                 .number = post.call,
                 .high = post.high,
                 .low = post.low,
                 .root = key_,
                 .text = post.what == nullptr ? "" : CutMessage(*post.what)});
}

absl::Status ClientRoot::Await(int64_t call, std::chrono::nanoseconds timeout,
                               const std::function<void()>& meanwhile) {
  const auto has_ended = [&]() MESHIFT_REQUIRES(mutex_) {
    return settled_.count(call) != 0 || !failure_.ok() || !told_.ok() || !hub_left_.ok();
  };
  if (meanwhile) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (bool ended = false; !ended && std::chrono::steady_clock::now() < end;) {
      meanwhile();
      MutexLock lock(mutex_);
      ended = lock.WaitFor(changed_, kMeanwhile, has_ended);
    }
  }
  {
    MutexLock lock(mutex_);
    lock.WaitFor(changed_, meanwhile ? std::chrono::nanoseconds(0) : timeout, has_ended);
    if (const auto it = settled_.find(call); it != settled_.end()) {
      absl::Status status = it->second;
      settled_.erase(it);
      return status;
    }
    if (!failure_.ok()) return failure_;
    if (!told_.ok()) return told_;
    if (!hub_left_.ok()) return hub_left_;
  }
  return Explain(
      call, absl::DeadlineExceededError(fmt::format("not all ranks made call {} within {} ms", call,
                                                    timeout / std::chrono::milliseconds(1))));
}

absl::Status ClientRoot::Explain(int64_t call, const absl::Status& error) {
  Frame mine{.rank = client_->job_.rank, .number = call};
  Answer(&mine);
  std::map<int64_t, Frame> answers = client_->Ask(key_, call, ranks_);
  MESHIFT_RETURN_IF_ERROR(client_->WhyLeft(ranks_));
  std::vector<std::string> missing;
  if (answers.count(-1) == 0 && ranks_.size() > 1 && client_->HubIsSilent()) {
    return absl::Status(error.code(), fmt::format("{}; the hub in rank 0's process does not answer",
                                                  Message(error)));
  }
  for (const int64_t rank : ranks_) {
    if (rank == mine.rank) continue;
    const auto it = answers.find(rank);
    if (it == answers.end()) {
      missing.push_back(fmt::format("rank {} does not answer", rank));
      continue;
    }
    const Frame& answer = it->second;
    switch (answer.code) {
      case Frame::kMade:
        if (mine.code == Frame::kMade && (answer.high != mine.high || answer.low != mine.low)) {
          return FailedPrecondition(
              "the ranks disagree about call {}: rank {} has {}, but rank {} has {} ({})", call,
              mine.rank, mine.text, rank, answer.text, Message(error));
        }
        break;
      case Frame::kNotMade:
        missing.push_back(fmt::format("rank {} has not made call {}; it has made only {}", rank,
                                      call, Calls(answer.number)));
        break;
      case Frame::kHasLeft:
        missing.push_back(Message(Went(rank, true)));
        break;
      case Frame::kIsGone:
        missing.push_back(Message(Went(rank, false)));
        break;
      default:
        break;
    }
  }
  if (missing.empty()) return error;
  return absl::Status(error.code(),
                      fmt::format("{}; {}", Message(error), fmt::join(missing, "; ")));
}

void ClientRoot::Fail(const absl::Status& error) {
  {
    const MutexLock lock(mutex_);
    if (!told_.ok() || error.ok()) return;
    told_ = error;
    changed_.notify_all();
  }
  client_->Send({.kind = Kind::kFail,
                 .code = static_cast<int64_t>(error.code()),
                 .root = key_,
                 .text = CutMessage(Message(error))});
  client_->AwaitPassed(key_);
}

absl::Status ClientRoot::Health() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return failure_;
}

bool ClientRoot::Has(int64_t rank) const {
  return std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

void ClientRoot::Settle(int64_t call, const absl::Status& status) {
  const MutexLock lock(mutex_);
  settled_.emplace(call, status);
  changed_.notify_all();
}

void ClientRoot::PeerFailed(const absl::Status& status) {
  {
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  if (on_failure_) on_failure_(status);
}

void ClientRoot::PeerLeft(int64_t rank, int64_t calls) {
  {
    const MutexLock lock(mutex_);
    if (calls >= fewest_calls_.load(std::memory_order_relaxed)) return;
    const absl::Status went = Went(rank, /*left=*/true);
    left_ = absl::Status(went.code(), fmt::format("{}, after {}", Message(went), Calls(calls)));
    fewest_calls_.store(calls, std::memory_order_release);
    if (calls_ <= calls) return;
  }
  MissPeer();
}

void ClientRoot::MissPeer() {
  absl::Status left;
  {
    const MutexLock lock(mutex_);
    left = left_;
  }
  PeerFailed(left);
}

void ClientRoot::HubLeft(const absl::Status& status) {
  const MutexLock lock(mutex_);
  hub_left_ = status;
  changed_.notify_all();
}

void ClientRoot::Answer(Frame* question) const {
  const MutexLock lock(mutex_);
  const CallPost& post = posts_[Slot(question->number)];
  if (post.call == question->number) {
    question->code = Frame::kMade;
    question->high = post.high;
    question->low = post.low;
    question->text = post.what == nullptr ? "" : CutMessage(*post.what);
  } else if (question->number < calls_) {
    question->code = Frame::kForgotten;
  } else {
    question->code = Frame::kNotMade;
    question->number = calls_;
  }
}

}  // namespace meshift
