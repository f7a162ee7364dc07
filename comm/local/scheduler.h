// The streams of all ranks of a LocalWorld, and the threads that work on them.
//
// A stream is a queue of tasks, of which only the first is in progress: a kernel (a Job), a mark
// (an event reached), a wait (for an event), or a rendezvous (a Job that is ready once the streams
// of all members have it first). Jobs that are ready stand in one queue, from which workers take
// them, and so does every thread that waits in Synchronize(). A job may be cut into parts that run
// at once. One mutex guards all bookkeeping; jobs run without it.
//
// Errors travel with the work. The first error of a stream stays: kernels behind it are skipped,
// events behind it carry it to the streams that wait for them, and a rendezvous that it reaches
// fails with it. So nobody takes for good what was made from something that failed.
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
struct Sleeper;  // a thread that waits; scheduler.cc

// Work that some thread is to do.
class Job {
 public:
  virtual ~Job() = default;
  // Runs part 0 <= part < num_parts(); parts may run at once.
  virtual void Run(int part) = 0;
  // All parts have run. The lock is held. May destroy the job.
  virtual void Done(Scheduler& scheduler) = 0;

  int num_parts() const { return num_parts_; }
  void set_num_parts(int num_parts) { num_parts_ = num_parts; }

 private:
  friend class Scheduler;
  Job* next_ = nullptr;  // in the queue of those that are ready
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

// A job of several streams, ready when all of them have reached it. The lock is held in all calls.
class Rendezvous : public Job {
 public:
  // The stream of member number `member`, whose first error is `status`, has reached it. OK: the
  // stream stays until Scheduler::Resume(); else it goes on with that error.
  virtual absl::Status Arrive(Scheduler& scheduler, int member, const absl::Status& status) = 0;
  // Somebody has waited too long for it.
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
  std::atomic<bool> has_error_ = false;  // once it is reached
  // Under the scheduler's lock:
  absl::Status status_;                 // the first error of the work before it
  LocalStream* recorded_on_ = nullptr;  // as long as it is not reached
  std::vector<LocalStream*> waiting_;   // streams whose first task waits for it
  std::vector<Sleeper*> waiters_;       // in Wait()
};

// What to put on a stream: one of the pointers or the error is set.
struct Task {
  std::unique_ptr<Kernel> kernel;
  std::shared_ptr<LocalEvent> record;
  std::shared_ptr<LocalEvent> wait;
  std::shared_ptr<Rendezvous> rendezvous;
  int member = 0;      // of the rendezvous
  absl::Status error;  // the stream fails when it comes to this
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
  Sleeper* waiter_ = nullptr;  // in Synchronize()
};

class Scheduler {
 public:
  // `timeouts`: as in LocalWorldOptions.
  Scheduler(int num_workers, const Timeouts& timeouts);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Ends the workers. What they leave undone is done by those who wait for it.
  void Stop();
  AtomicTimeouts& timeouts() { return timeouts_; }
  std::chrono::nanoseconds timeout() const { return timeouts_.Get().running; }

  // Waits until all work on `stream` is done, doing what is ready meanwhile; returns the stream's
  // first error. Where nothing in this world moves for timeout(), what the stream waits for fails.
  absl::Status Synchronize(LocalStream& stream);
  // As Synchronize, for the work before `event`, which was put on a stream of this scheduler.
  absl::Status Wait(LocalEvent& event);
  void Enqueue(LocalStream& stream, Task task);

  // For those who hold the lock, which passes through jobs, so that no analysis can follow it.
  // Settle() comes last, before the lock is given up: it lets streams go on as far as they can.
  Mutex& mutex() { return mutex_; }
  void EnqueueLocked(LocalStream& stream, Task task);
  void MakeReady(Job* job);
  // Takes the first task off `stream`, with its outcome.
  void Resume(LocalStream& stream, const absl::Status& status);
  void Settle();

 private:
  void AssertLocked() const MESHIFT_THREAD_ANNOTATION_(assert_capability(mutex_)) {}
  // What a thread works for: the end of a stream, an event; or, without either, of this scheduler.
  struct Goal {
    LocalStream* stream = nullptr;
    LocalEvent* event = nullptr;
  };
  void Work(const Goal& goal);
  bool Reached(const Goal& goal) const MESHIFT_REQUIRES(mutex_);
  Job* TakePart(int* part) MESHIFT_REQUIRES(mutex_);
  void FinishPart(Job* job) MESHIFT_REQUIRES(mutex_);
  // Lets `stream` go on until its first task has to wait for something.
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
  int running_ MESHIFT_GUARDED_BY(mutex_) = 0;  // parts
  uint64_t progress_ MESHIFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<LocalStream*> to_advance_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<Sleeper*> sleepers_ MESHIFT_GUARDED_BY(mutex_);  // those that could help
  std::vector<std::thread> workers_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_SCHEDULER_H_
