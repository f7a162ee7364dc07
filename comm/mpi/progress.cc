#include "comm/mpi/progress.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;
// A waiting thread polls this often before it first yields its core, and then yields at each read
// of the clock. After kSpinNs without progress it sleeps for kNap instead.
constexpr int kPollsBeforeYield = 64;
constexpr int64_t kSpinNs = 100 * kMs;
constexpr std::chrono::microseconds kNap(50);
// Polls between two reads of the clock.
constexpr int kPollsPerLook = 16;
// By default the progress thread looks for work once per tick: kBusyTick after it has found some,
// up to kIdleTick otherwise. After kSleepAfterNs without work or waiting threads it sleeps until it
// is woken.
constexpr std::chrono::nanoseconds kBusyTick = std::chrono::microseconds(100);
constexpr std::chrono::nanoseconds kIdleTick = std::chrono::milliseconds(1);
constexpr int64_t kSleepAfterNs = 1000 * kMs;
constexpr int64_t kPatienceNs = 1000 * kMs;  // see PatienceNs()
// With bounded waits: one call of MPI may take kGraceNs longer than the time-out, since it copies
// whole messages. After kAwakeNs without work the progress thread sleeps.
constexpr int64_t kGraceNs = 250 * kMs;
constexpr int64_t kAwakeNs = 200 * kUs;
// A thread that waits for the progress thread polls for kLookNs, then sleeps and checks the
// watchdog every kLookTick.
constexpr int64_t kLookNs = 50 * kUs;
constexpr std::chrono::milliseconds kLookTick(10);

// Yields or sleeps, after `still_ns` without progress.
void Rest(int64_t still_ns) {
  if (still_ns < kSpinNs) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

std::shared_ptr<Progress> Progress::Create(const Timeouts& timeouts, const MpiThreads& threads,
                                           bool bounded_waits, int64_t cache_bytes) {
  std::shared_ptr<Progress> progress(new Progress(timeouts, threads, bounded_waits, cache_bytes),
                                     [](Progress* p) {
                                       if (p->Stop()) delete p;
                                     });
  if (!progress->has_thread_) progress->asleep_.store(false);  // no thread to wake
  if (bounded_waits) progress->Nudge();
  return progress;
}

absl::Status Progress::HealthNow() const {
  if (!given_up_.load(std::memory_order_acquire) && !watch_.lost()) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return error_;
}

absl::Status Progress::MayCallNow() const {
  MESHIFT_RETURN_IF_ERROR(threads_.Check());
  return HealthNow();
}

bool Progress::Stop() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return !given_up_.load();
  if (bounded_ && !AwaitProgressThread([&] { return ended_.load(); }).ok()) {
    thread.detach();
    return false;
  }
  thread.join();
  return true;
}

std::shared_ptr<StreamState> Progress::AddStream() {
  auto stream = std::make_shared<StreamState>(&pool_, watch(),
                                              threads_.in_turn() ? &turn_ : nullptr, cache_bytes_);
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
    thread_ = std::thread([this] { bounded_ ? RunBounded() : RunDefault(); });
  }
}

// How long a thread waits before it checks time-outs. Thus a process that was stopped (SIGSTOP) for
// longer than the time-out first receives the messages that have arrived meanwhile.
int64_t Progress::PatienceNs() const {
  return std::min({timeouts_.running_ns(), timeouts_.setup_ns(), kPatienceNs});
}

absl::Status Progress::AwaitIdle(const std::shared_ptr<StreamState>& stream) {
  const auto done = [&] { return stream->idle(); };
  if (bounded_) return AwaitProgressThread(done);
  if (done()) return absl::OkStatus();
  if (!has_thread_ && !threads_.Check().ok()) return AwaitMain(done);
  Go(stream, done);
  return absl::OkStatus();
}

absl::Status Progress::Await(const MpiEvent& event) {
  const auto done = [&] { return event.reached(); };
  if (bounded_) return AwaitProgressThread(done);
  if (done()) return absl::OkStatus();
  MESHIFT_RETURN_IF_ERROR(Health());
  Go(event.stream(), done);
  return absl::OkStatus();
}

bool Progress::AdvanceAll(const AdvanceOptions& options, uint64_t* generation, Streams* streams) {
  if (*generation != generation_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    *streams = streams_;
    *generation = generation_.load(std::memory_order_relaxed);
  }
  bool moved = DoJobs();
  for (const auto& stream : *streams) moved = stream->Advance(options) || moved;
  return moved;
}

int64_t Progress::NoteAttended(int64_t now_ns) {
  if (has_thread_) return 0;  // the progress thread advances work, so all time counts
  if (now_ns - attended_ns_.load() > LongBreakNs()) attended_since_ns_.store(now_ns);
  attended_ns_.store(now_ns);
  return attended_since_ns_.load();
}

int64_t Progress::AttendedSinceNs() const {
  const bool is_attended = waiters_.load() > 0 || NowNs() - attended_ns_.load() <= LongBreakNs();
  return is_attended ? attended_since_ns_.load() : INT64_MAX;
}

void Progress::Advance() {
  if (has_thread_ || !MayCallNow().ok()) return;
  AdvanceOptions options;
  options.timeouts = &timeouts_;
  options.now_ns = NowNs();
  options.since_ns = NoteAttended(options.now_ns);
  uint64_t generation = 0;
  Streams streams;
  AdvanceAll(options, &generation, &streams);
}

absl::Status Progress::AwaitMain(Done done) {
  const int64_t begin_ns = NowNs();
  while (!done()) {
    MESHIFT_RETURN_IF_ERROR(Health());
    const int64_t timeout_ns = timeouts_.running_ns();
    if (NowNs() - begin_ns > timeout_ns) {
      const MutexLock lock(mutex_);
      error_ = absl::DeadlineExceededError(fmt::format(
          "a thread that may not call MPI ({}) waits for work that only the thread that "
          "initialized MPI can advance; that thread has not done so for {} ms",
          threads_.level(), timeout_ns / kMs));
      given_up_.store(true, std::memory_order_release);
      return error_;
    }
    std::this_thread::sleep_for(kNap);
  }
  return absl::OkStatus();
}

void Progress::Go(const std::shared_ptr<StreamState>& first, Done done) {
  if (!has_thread_) NoteAttended(NowNs());
  waiters_.fetch_add(1, std::memory_order_relaxed);
  AdvanceOptions options;
  uint64_t generation = 0;
  Streams streams;
  int64_t begin_ns = 0;  // begin of the wait
  int64_t still_ns = 0;  // time of the last progress
  for (int polls = 0; !done();) {
    bool moved = first != nullptr && first->Advance(options);
    if (done()) break;
    // `first` may wait for an event of another stream.
    if (!moved && polls >= 2) moved = AdvanceAll(options, &generation, &streams);
    if (moved) {
      polls = 0;
      still_ns = 0;
      continue;
    }
    if (++polls % kPollsPerLook != 0) continue;
    const int64_t now = NowNs();
    if (begin_ns == 0) begin_ns = now;
    if (still_ns == 0) still_ns = now;
    options.now_ns = now;
    options.since_ns = NoteAttended(now);
    if (now - begin_ns > PatienceNs()) options.timeouts = &timeouts_;
    if (polls < kPollsBeforeYield) continue;
    Rest(now - still_ns);
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

void Progress::RunDefault() {
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
        // No Nudge() comes for work that was put on a stream before asleep_ was set.
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
    // While other threads wait, this thread does not sleep: waking it would cost a caller more.
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

absl::Status Progress::AwaitProgressThread(Done done) {
  if (done()) return absl::OkStatus();
  const int64_t begin_ns = NowNs();
  bool late = false;
  absl::Status status;
  for (int polls = 0; status.ok() && !done();) {
    if (++polls % kPollsPerLook != 0) continue;
    const int64_t now = NowNs();
    if (!late && now - begin_ns > PatienceNs()) {
      late = true;
      late_.fetch_add(1, std::memory_order_relaxed);
    }
    status = GiveUpLost(now);
    if (now - begin_ns < kLookNs) {
      sched_yield();
      continue;
    }
    sleepers_.fetch_add(1);
    {
      MutexLock lock(mutex_);
      lock.WaitFor(reached_, kLookTick, done);
    }
    sleepers_.fetch_sub(1);
    polls = kPollsPerLook - 1;
  }
  if (late) late_.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

absl::Status Progress::GiveUpLost(int64_t now) {
  const int64_t limit =
      SaturatingAdd(in_job_.load() ? timeouts_.setup_ns() : timeouts_.running_ns(), kGraceNs);
  if (watch_.IsInSince(now - limit)) {
    const MutexLock lock(mutex_);
    if (watch_.GiveUp(now - limit)) {
      std::string what = current_job_ == nullptr ? "" : current_job_->what;
      for (const auto& stream : streams_) {
        if (what.empty()) what = stream->CurrentText();
      }
      error_ = absl::DeadlineExceededError(fmt::format(
          "{}: the engine's thread has not come back from MPI for {} ms", what, limit / kMs));
    }
  }
  return Health();
}

absl::Status Progress::Do(std::string what, std::function<bool()> step) {
  if (is_free_) {
    while (!step()) {
    }
    return absl::OkStatus();
  }
  MESHIFT_RETURN_IF_ERROR(Health());
  if (!has_thread_ && threads_.Check().ok()) {
    bool done = false;
    Go(nullptr, [&] {
      const MpiTurn turn(threads_.in_turn() ? &turn_ : nullptr);
      done = done || step();
      return done;
    });
    return absl::OkStatus();
  }
  const auto job = std::make_shared<Job>();
  job->what = std::move(what);
  job->step = std::move(step);
  bool is_thread = false;
  {
    const MutexLock lock(mutex_);
    jobs_.push_back(job);
    num_jobs_.fetch_add(1);
    is_thread = thread_.get_id() == std::this_thread::get_id();
  }
  Nudge();
  if (is_thread) return absl::OkStatus();
  const auto done = [&] { return job->done.load(std::memory_order_acquire); };
  return has_thread_ ? AwaitProgressThread(done) : AwaitMain(done);
}

bool Progress::DoJobs() {
  if (num_jobs_.load() == 0) return false;
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const MutexLock lock(mutex_);
    jobs = jobs_;
  }
  int64_t num_done = 0;
  for (const auto& job : jobs) {
    bool done = false;
    current_job_ = job.get();
    in_job_.store(true);
    {
      const MpiWatchdog::Call call(&watch_);
      done = job->step();
    }
    current_job_ = nullptr;
    in_job_.store(false);
    if (!done) continue;
    job->done.store(true, std::memory_order_release);
    ++num_done;
  }
  if (num_done == 0) return false;
  const MutexLock lock(mutex_);
  std::erase_if(jobs_, [](const auto& job) { return job->done.load(); });
  num_jobs_.fetch_sub(num_done);
  return true;
}

bool Progress::Sleep() {
  MutexLock lock(mutex_);
  asleep_.store(true);
  const bool work =
      num_jobs_.load() > 0 || std::any_of(streams_.begin(), streams_.end(),
                                          [](const auto& stream) { return !stream->idle(); });
  // No Nudge() comes for work that was put on a stream before asleep_ was set.
  if (!work) lock.Wait(wake_, [&]() MESHIFT_REQUIRES(mutex_) { return stop_ || woken_; });
  asleep_.store(false);
  woken_ = false;
  return work || !stop_;
}

void Progress::RunBounded() {
  AdvanceOptions options;
  uint64_t generation = 0;
  Streams streams;
  int64_t still_ns = 0;  // time of the last progress
  for (int polls = 0;;) {
    if (AdvanceAll(options, &generation, &streams)) {
      // The read-modify-write also orders the progress before the condition that sleepers check.
      if (sleepers_.fetch_add(0) > 0) {
        const MutexLock lock(mutex_);
        reached_.notify_all();
      }
      polls = 0;
      still_ns = 0;
      continue;
    }
    if (++polls % kPollsPerLook != 0) continue;
    const int64_t now = NowNs();
    if (still_ns == 0) still_ns = now;
    const bool late = late_.load(std::memory_order_relaxed) > 0;
    options.timeouts = late ? &timeouts_ : nullptr;
    options.now_ns = now;
    const bool idle = std::all_of(streams.begin(), streams.end(),
                                  [](const auto& stream) { return stream->idle(); });
    if (idle && now - still_ns > kAwakeNs && num_jobs_.load() == 0) {
      if (!Sleep()) {
        ended_.store(true);
        return;
      }
      polls = 0;
      still_ns = 0;
      continue;
    }
    if (polls < kPollsBeforeYield) continue;
    Rest(now - still_ns);
    polls -= kPollsPerLook;
  }
}

}  // namespace meshift
