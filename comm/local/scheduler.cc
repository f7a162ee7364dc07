#include "comm/local/scheduler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// A waiting thread reads the time-out this often, since another thread may change it.
constexpr std::chrono::nanoseconds kTimeoutPollInterval = std::chrono::milliseconds(100);

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Lives on the thread's stack.
struct Sleeper {
  std::condition_variable wake;
  bool awake = false;
};

void Kernel::Done(Scheduler& scheduler) { scheduler.Resume(*stream_, absl::OkStatus()); }

LocalStream::LocalStream(std::shared_ptr<Scheduler> scheduler, int64_t rank)
    : scheduler_(std::move(scheduler)), rank_(rank) {}

LocalStream::~LocalStream() { scheduler_->Synchronize(*this).IgnoreError(); }

Scheduler::Scheduler(int num_workers, const Timeouts& timeouts) : timeouts_(timeouts) {
  workers_.reserve(num_workers);
  for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { Work({}); });
}

Scheduler::~Scheduler() { Stop(); }

void Scheduler::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    while (!sleepers_.empty()) Wake(*sleepers_.back());
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

absl::Status Scheduler::Synchronize(LocalStream& stream) {
  Work({.stream = &stream});
  const MutexLock lock(mutex_);
  return stream.status_;
}

absl::Status Scheduler::Wait(LocalEvent& event) {
  Work({.event = &event});
  const MutexLock lock(mutex_);
  return event.status_;
}

bool Scheduler::Reached(const Goal& goal) const {
  if (goal.stream != nullptr) return goal.stream->idle();
  if (goal.event != nullptr) return goal.event->ReachedNs() >= 0;
  return stopping_;
}

void Scheduler::Enqueue(LocalStream& stream, Task task) {
  const MutexLock lock(mutex_);
  EnqueueLocked(stream, std::move(task));
  AdvanceStreams();
}

void Scheduler::EnqueueLocked(LocalStream& stream, Task task) {
  AssertLocked();
  ++progress_;
  if (task.kernel != nullptr) task.kernel->stream_ = &stream;
  if (task.record != nullptr) {
    task.record->reached_ns_.store(-1, std::memory_order_relaxed);
    task.record->status_ = absl::OkStatus();
    task.record->recorded_on_ = &stream;
  }
  if (stream.idle()) to_advance_.push_back(&stream);
  stream.tasks_.push_back(std::move(task));
}

void Scheduler::MakeReady(Job* job) {
  AssertLocked();
  job->next_ = nullptr;
  (first_ready_ == nullptr ? first_ready_ : last_ready_->next_) = job;
  last_ready_ = job;
  for (int i = 0; i < job->num_parts_ && !sleepers_.empty(); ++i) WakeForReady();
}

void Scheduler::Resume(LocalStream& stream, const absl::Status& status) {
  AssertLocked();
  SetError(stream, status);
  Pop(stream);
  if (!stream.idle()) to_advance_.push_back(&stream);
}

void Scheduler::SetError(LocalStream& stream, const absl::Status& status) {
  if (stream.status_.ok() && !status.ok()) stream.status_ = status;
}

void Scheduler::AdvanceStreams() {
  AssertLocked();
  while (!to_advance_.empty()) {
    LocalStream* stream = to_advance_.back();
    to_advance_.pop_back();
    Advance(*stream);
  }
}

void Scheduler::Pop(LocalStream& stream) {
  stream.tasks_[stream.head_++] = Task();
  if (stream.idle()) {
    stream.tasks_.clear();
    stream.head_ = 0;
    if (stream.waiter_ != nullptr) Wake(*stream.waiter_);
  } else if (stream.head_ >= 64 && stream.head_ * 2 >= stream.tasks_.size()) {
    stream.tasks_.erase(stream.tasks_.begin(),
                        stream.tasks_.begin() + static_cast<ptrdiff_t>(stream.head_));
    stream.head_ = 0;
  }
}

void Scheduler::Advance(LocalStream& stream) {
  while (!stream.idle()) {
    const Task& task = stream.tasks_[stream.head_];
    if (task.kernel != nullptr) {
      if (stream.status_.ok()) return MakeReady(task.kernel.get());
    } else if (task.record != nullptr) {
      Reach(*task.record, stream.status_);
    } else if (task.wait != nullptr) {
      LocalEvent& event = *task.wait;
      if (stream.status_.ok() && event.ReachedNs() < 0) {
        event.waiting_.push_back(&stream);
        return;
      }
      if (event.ReachedNs() >= 0) SetError(stream, event.status_);
    } else if (task.rendezvous == nullptr) {
      SetError(stream, task.error);
    } else {
      // A copy, since a failing rendezvous may release the task's reference.
      const std::shared_ptr<Rendezvous> rendezvous = task.rendezvous;
      const absl::Status status = rendezvous->Arrive(*this, task.member, stream.status_);
      if (status.ok()) return;
      SetError(stream, status);
    }
    Pop(stream);
  }
}

void Scheduler::Reach(LocalEvent& event, const absl::Status& status) {
  event.status_ = status;
  event.recorded_on_ = nullptr;
  event.has_error_.store(!status.ok(), std::memory_order_relaxed);
  event.reached_ns_.store(NowNs(), std::memory_order_release);
  to_advance_.insert(to_advance_.end(), event.waiting_.begin(), event.waiting_.end());
  event.waiting_.clear();
  for (Sleeper* waiter : event.waiters_) Wake(*waiter);
}

Job* Scheduler::TakePart(int* part) {
  Job* job = first_ready_;
  *part = job->parts_taken_++;
  if (job->parts_taken_ == job->num_parts_) {
    first_ready_ = job->next_;
    if (first_ready_ == nullptr) last_ready_ = nullptr;
  }
  ++running_;
  return job;
}

void Scheduler::FinishPart(Job* job) {
  --running_;
  ++progress_;
  if (++job->parts_done_ < job->num_parts_) return;
  job->Done(*this);
  AdvanceStreams();
}

void Scheduler::Work(const Goal& goal) {
  Sleeper self;
  const bool is_worker = goal.stream == nullptr && goal.event == nullptr;
  Job* job = nullptr;
  int part = 0;
  uint64_t progress = 0;
  bool slept = false;
  Clock::time_point since;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (job != nullptr) FinishPart(job);
      job = nullptr;
      while (true) {
        if (Reached(goal)) {
          if (goal.stream != nullptr) goal.stream->waiter_ = nullptr;
          if (goal.event != nullptr) std::erase(goal.event->waiters_, &self);
          // This thread may have been woken for a job that it does not run.
          if (first_ready_ != nullptr) WakeForReady();
          return;
        }
        if (first_ready_ != nullptr) {
          job = TakePart(&part);
          slept = false;
          break;
        }
        self.awake = false;
        sleepers_.push_back(&self);
        const auto awake = [&] { return self.awake; };
        if (is_worker) {
          lock.Wait(self.wake, awake);
          continue;
        }
        if (goal.stream != nullptr) goal.stream->waiter_ = &self;
        if (goal.event != nullptr && !slept) {
          std::erase(goal.event->waiters_, &self);
          goal.event->waiters_.push_back(&self);
        }
        if (!slept || progress != progress_ || running_ > 0) {
          progress = progress_;
          since = Clock::now();
          slept = true;
        }
        const std::chrono::nanoseconds left = timeout() - (Clock::now() - since);
        if (lock.WaitFor(self.wake, std::min(left, kTimeoutPollInterval), awake)) continue;
        sleepers_.erase(std::find(sleepers_.begin(), sleepers_.end(), &self));
        if (left > kTimeoutPollInterval) continue;
        if (progress == progress_ && running_ == 0 && first_ready_ == nullptr) {
          const LocalStream* blocked =
              goal.stream != nullptr ? goal.stream : goal.event->recorded_on_;
          if (blocked != nullptr) TimeOut(*blocked);
          AdvanceStreams();
        }
      }
    }
    job->Run(part);
  }
}

void Scheduler::TimeOut(const LocalStream& stream) {
  // The chain ends: an event is recorded on its stream before another stream can wait for it.
  const LocalStream* blocked = &stream;
  while (!blocked->idle()) {
    const Task& task = blocked->tasks_[blocked->head_];
    if (task.rendezvous != nullptr) {
      const std::shared_ptr<Rendezvous> rendezvous = task.rendezvous;
      rendezvous->TimeOut(*this);
      return;
    }
    if (task.wait == nullptr || task.wait->recorded_on_ == nullptr) return;
    blocked = task.wait->recorded_on_;
  }
}

void Scheduler::Wake(Sleeper& sleeper) {
  const auto it = std::find(sleepers_.begin(), sleepers_.end(), &sleeper);
  if (it != sleepers_.end()) sleepers_.erase(it);
  sleeper.awake = true;
  sleeper.wake.notify_one();
}

void Scheduler::WakeForReady() {
  if (!sleepers_.empty()) Wake(*sleepers_.back());
}

}  // namespace meshift
