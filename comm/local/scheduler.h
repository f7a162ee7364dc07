// The streams of all ranks of a LocalWorld, and the threads that run their tasks.
//
//   scheduler->Enqueue(stream, std::move(task));
//   MESHIFT_RETURN_IF_ERROR(scheduler->Synchronize(stream));   // the stream's first error
//
// A stream is a queue of tasks, of which only the first is in progress: a kernel (a Job), a record
// (which reaches an event), a wait (for an event), a rendezvous (a Job that becomes ready when it
// is the first task of all members' streams), or an error (with which the stream fails). Ready jobs
// are in one queue. Worker threads and threads that wait in Synchronize() or Wait() run them. A job
// may have parts that run concurrently. One mutex guards all bookkeeping; jobs run without it.
//
// A stream keeps its first error: it skips later kernels, later events carry the error to the
// streams that wait for them, and a later rendezvous fails with it. So a result that depends on
// failed work is never reported as done.
//
// Safe for concurrent use, but only one thread at a time may wait in Synchronize() for a stream.
// Internal to comm/local.
#ifndef MESHIFT_COMM_LOCAL_SCHEDULER_H_
#define MESHIFT_COMM_LOCAL_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "meshift/engine.h"

namespace meshift {

class LocalStream;
class Scheduler;
struct Sleeper;  // a sleeping thread; scheduler.cc

// Work for any thread to run.
class Job {
 public:
  virtual ~Job() = default;
  // Runs part `part`, 0 <= part < num_parts(). Parts may run concurrently.
  virtual void Run(int part) = 0;
  // Called with the lock held after all parts have run. May destroy the job.
  virtual void Done(Scheduler& scheduler) = 0;

  int num_parts() const { return num_parts_; }
  void set_num_parts(int num_parts) { num_parts_ = num_parts; }

 private:
  friend class Scheduler;
  Job* next_ = nullptr;  // in the queue of ready jobs
  int num_parts_ = 1;
  int parts_taken_ = 0;
  int parts_done_ = 0;
};

// A job of one stream.
class Kernel : public Job {
 public:
  void Done(Scheduler& scheduler) final;

 private:
  friend class Scheduler;
  LocalStream* stream_ = nullptr;
};

// A job of several streams, ready when it is the first task of all of them. Arrive and TimeOut are
// called with the lock held.
class Rendezvous : public Job {
 public:
  // The stream of member `member` has reached it; `status` is that stream's first error. If this
  // returns OK, the stream blocks until Scheduler::Resume(); else it continues with the error.
  virtual absl::Status Arrive(Scheduler& scheduler, int member, const absl::Status& status) = 0;
  // A thread that waits for it has reached the time-out.
  virtual void TimeOut(Scheduler& scheduler) = 0;
};

class LocalEvent final : public Event {
 public:
  int64_t ReachedNs() const override { return reached_ns_.load(std::memory_order_acquire); }
  bool IsReached() const override {
    return ReachedNs() >= 0 && !has_error_.load(std::memory_order_relaxed);
  }

 private:
  friend class Scheduler;
  std::atomic<int64_t> reached_ns_ = -1;
  std::atomic<bool> has_error_ = false;  // valid once it is reached
  // Under the scheduler's lock:
  absl::Status status_;                 // the first error of the work before it
  LocalStream* recorded_on_ = nullptr;  // null once it is reached
  std::vector<LocalStream*> waiting_;   // streams whose first task waits for it
  std::vector<Sleeper*> waiters_;       // threads in Wait()
};

// A task of a stream: one of the pointers or `error` is set.
struct Task {
  std::unique_ptr<Kernel> kernel;
  std::shared_ptr<LocalEvent> record;
  std::shared_ptr<LocalEvent> wait;
  std::shared_ptr<Rendezvous> rendezvous;
  int member = 0;      // the stream's member number in the rendezvous
  absl::Status error;  // the stream fails when it reaches this task
};

class LocalStream final : public Stream {
 public:
  LocalStream(std::shared_ptr<Scheduler> scheduler, int64_t rank);
  ~LocalStream() override;  // waits for the stream's work

  int64_t rank() const { return rank_; }
  const Scheduler& scheduler() const { return *scheduler_; }

 private:
  friend class Scheduler;
  bool idle() const { return head_ == tasks_.size(); }

  const std::shared_ptr<Scheduler> scheduler_;
  const int64_t rank_;
  // Under the scheduler's lock:
  std::vector<Task> tasks_;  // those before head_ are done
  size_t head_ = 0;
  absl::Status status_;        // its first error
  Sleeper* waiter_ = nullptr;  // the thread in Synchronize()
};

class Scheduler {
 public:
  // `num_workers` and timeouts.running: as in LocalWorldOptions. timeouts.setup is not used.
  Scheduler(int num_workers, const Timeouts& timeouts);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Ends the workers. Threads that wait run the remaining work.
  void Stop();
  AtomicTimeouts& timeouts() { return timeouts_; }
  std::chrono::nanoseconds timeout() const { return timeouts_.Get().running; }

  // Waits until all work of `stream` is done, and runs ready jobs meanwhile. Returns the stream's
  // first error. If no work of this world is enqueued or advances for timeout(), the collective
  // that blocks the stream fails with DEADLINE_EXCEEDED.
  absl::Status Synchronize(LocalStream& stream);
  // As Synchronize, for the work before `event`, which was recorded on a stream of this scheduler.
  // An event that was not recorded never ends the wait.
  absl::Status Wait(LocalEvent& event);
  void Enqueue(LocalStream& stream, Task task);

  // All functions below but mutex() require the lock. Thread-safety analysis cannot follow
  // it through virtual calls of jobs, so they assert it. A caller calls AdvanceStreams() before it
  // releases the lock: it advances the streams as far as possible.
  Mutex& mutex() { return mutex_; }
  void EnqueueLocked(LocalStream& stream, Task task);
  void MakeReady(Job* job);
  // Ends the first task of `stream` with `status`.
  void Resume(LocalStream& stream, const absl::Status& status);
  void AdvanceStreams();

 private:
  void AssertLocked() const MESHIFT_THREAD_ANNOTATION_(assert_capability(mutex_)) {}
  // When a thread stops working: the stream is idle, or the event is reached; with neither, the
  // scheduler stops.
  struct Goal {
    LocalStream* stream = nullptr;
    LocalEvent* event = nullptr;
  };
  void Work(const Goal& goal);
  bool Reached(const Goal& goal) const MESHIFT_REQUIRES(mutex_);
  Job* TakePart(int* part) MESHIFT_REQUIRES(mutex_);
  void FinishPart(Job* job) MESHIFT_REQUIRES(mutex_);
  // Runs tasks of `stream` until the first must wait.
  void Advance(LocalStream& stream) MESHIFT_REQUIRES(mutex_);
  static void SetError(LocalStream& stream, const absl::Status& status);
  void Reach(LocalEvent& event, const absl::Status& status) MESHIFT_REQUIRES(mutex_);
  void Pop(LocalStream& stream) MESHIFT_REQUIRES(mutex_);
  void TimeOut(const LocalStream& stream) MESHIFT_REQUIRES(mutex_);
  void Wake(Sleeper& sleeper) MESHIFT_REQUIRES(mutex_);
  void WakeForReady() MESHIFT_REQUIRES(mutex_);

  AtomicTimeouts timeouts_;
  Mutex mutex_;
  Job* first_ready_ MESHIFT_GUARDED_BY(mutex_) = nullptr;
  Job* last_ready_ MESHIFT_GUARDED_BY(mutex_) = nullptr;
  int running_ MESHIFT_GUARDED_BY(mutex_) = 0;        // parts
  uint64_t progress_ MESHIFT_GUARDED_BY(mutex_) = 0;  // tasks enqueued plus parts done
  bool stopping_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<LocalStream*> to_advance_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<Sleeper*> sleepers_ MESHIFT_GUARDED_BY(mutex_);  // sleeping threads
  std::vector<std::thread> workers_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_SCHEDULER_H_
