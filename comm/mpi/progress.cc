#include "comm/mpi/progress.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace meshift {
namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;
// How often a waiting thread polls before it offers its core to others, and how long before it
// sleeps between polls.
constexpr int kPollsBeforeYield = 64;
constexpr int64_t kSpinNs = 100 * kMs;
constexpr std::chrono::microseconds kNap(50);
// How often a waiting thread looks at the clock, in polls.
constexpr int kPollsPerLook = 16;
// How often the engine's thread looks whether work lies there, while it has found some lately and
// while it has not, and when it gives up looking.
constexpr std::chrono::nanoseconds kBusyTick = std::chrono::microseconds(100);
constexpr std::chrono::nanoseconds kIdleTick = std::chrono::milliseconds(1);
constexpr int64_t kSleepAfterNs = 1000 * kMs;

}  // namespace

Progress::~Progress() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

std::shared_ptr<StreamState> Progress::AddStream() {
  auto stream = std::make_shared<StreamState>(&pool_);
  const MutexLock lock(mutex_);
  streams_.push_back(stream);
  generation_.fetch_add(1, std::memory_order_release);
  return stream;
}

void Progress::RemoveStream(const std::shared_ptr<StreamState>& stream) {
  const MutexLock lock(mutex_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream), streams_.end());
  generation_.fetch_add(1, std::memory_order_release);
}

void Progress::Nudge() {
  if (!asleep_.load()) return;
  const MutexLock lock(mutex_);
  if (stop_) return;
  asleep_.store(false);
  woken_ = true;
  if (thread_.joinable()) {
    wake_.notify_all();
  } else {
    thread_ = std::thread([this] { Work(); });
  }
}

void Progress::AwaitIdle(const std::shared_ptr<StreamState>& stream) {
  if (!stream->idle()) Go(stream, [&] { return stream->idle(); });
}

void Progress::Await(const MpiEvent& event) {
  if (!event.reached()) Go(event.stream(), [&] { return event.reached(); });
}

bool Progress::AdvanceAll(const Effort& effort, uint64_t* generation, Streams* streams) {
  if (*generation != generation_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    *streams = streams_;
    *generation = generation_.load(std::memory_order_relaxed);
  }
  bool moved = false;
  for (const auto& stream : *streams) moved = stream->Advance(effort) || moved;
  return moved;
}

void Progress::Go(const std::shared_ptr<StreamState>& first, Done done) {
  waiters_.fetch_add(1, std::memory_order_relaxed);
  Effort effort{.timeout_ns = timeout_ns_};
  uint64_t generation = 0;
  Streams streams;
  int64_t begin_ns = 0;  // of the wait
  int64_t still_ns = 0;  // since when nothing moves
  for (int polls = 0; !done();) {
    bool moved = first->Advance(effort);
    if (done()) break;
    // What is before it may be another stream's.
    if (!moved && polls >= 2) moved = AdvanceAll(effort, &generation, &streams);
    if (moved) {
      polls = 0;
      still_ns = 0;
      continue;
    }
    if (++polls % kPollsPerLook != 0) continue;
    const int64_t now = NowNs();
    if (begin_ns == 0) begin_ns = now;
    if (still_ns == 0) still_ns = now;
    if (now - begin_ns > timeout_ns_) effort.expire_before = now - timeout_ns_;
    if (polls < kPollsBeforeYield) continue;
    if (now - still_ns < kSpinNs) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
    polls -= kPollsPerLook;
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

Progress::Found Progress::Look(const Streams& streams, std::vector<int64_t>* ended) const {
  Found found = Found::kNothing;
  ended->resize(streams.size(), -1);
  for (size_t i = 0; i < streams.size(); ++i) {
    const int64_t now = streams[i]->ended();
    if (!streams[i]->idle())
      found = std::max(found, (*ended)[i] == now ? Found::kOld : Found::kNew);
    (*ended)[i] = now;
  }
  return waiters_.load(std::memory_order_relaxed) == 0 ? found : Found::kNothing;
}

void Progress::Work() {
  uint64_t generation = 0;
  Streams streams;
  std::vector<int64_t> ended;
  std::chrono::nanoseconds tick = kBusyTick;
  int64_t found_ns = NowNs();
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (generation != generation_.load(std::memory_order_relaxed)) {
        streams = streams_;
        ended.clear();
        generation = generation_.load(std::memory_order_relaxed);
      }
      if (NowNs() - found_ns > kSleepAfterNs) {
        asleep_.store(true);
        const bool work = std::any_of(streams.begin(), streams.end(),
                                      [](const auto& stream) { return !stream->idle(); });
        // Nobody nudges for work that was put there before this thread slept.
        if (!work) lock.Wait(wake_, [&]() MESHIFT_REQUIRES(mutex_) { return stop_ || woken_; });
        asleep_.store(false);
        found_ns = NowNs();
        tick = kBusyTick;
      } else {
        lock.WaitFor(wake_, tick, [&]() MESHIFT_REQUIRES(mutex_) { return stop_; });
      }
      woken_ = false;
      if (stop_) return;
    }
    const Found found = Look(streams, &ended);
    // While others are at it this thread stays half awake: waking it costs the caller more.
    if (found != Found::kNothing || waiters_.load(std::memory_order_relaxed) > 0) {
      found_ns = NowNs();
    }
    if (found == Found::kNothing) {
      tick = std::min(2 * tick, kIdleTick);
      continue;
    }
    tick = kBusyTick;
    if (found == Found::kNew) continue;  // the caller may be about to wait
    while (waiters_.load(std::memory_order_relaxed) == 0) {
      bool moved = false;
      for (const auto& stream : streams) moved = stream->Advance({}) || moved;
      if (!moved) break;
    }
  }
}

}  // namespace meshift
