// Advances the streams of an MPI engine, on a thread that may call MPI, and checks time-outs. Which
// thread advances them:
//
// - By default (MPI_THREAD_MULTIPLE) the threads that wait, and a progress thread while no thread
//   waits.
// - With bounded waits (MpiEngineOptions::bounded_waits) the progress thread alone, so that no
//   other thread can block inside MPI. If it does not return from MPI in time, the waiting threads
//   give it up: they wait for it no longer, and the engine fails with DEADLINE_EXCEEDED. That
//   thread, the Progress and all memory that they may access then leak.
// - Below MPI_THREAD_MULTIPLE, without a progress thread, the threads that wait or that call
//   Advance(). While no thread does, no queued work advances. A pause of more than half the shorter
//   time-out does not count for time-outs.
//
// Small tasks may also run on the thread that puts them on a stream (stream.h).
//
//   const auto progress = Progress::Create(timeouts, threads, bounded_waits, cache_bytes);
//   MESHIFT_RETURN_IF_ERROR(progress->AwaitIdle(stream));
//
// Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_PROGRESS_H_
#define MESHIFT_COMM_MPI_PROGRESS_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/mpi/mpi_threads.h"
#include "comm/mpi/scratch.h"
#include "comm/mpi/stream.h"
#include "comm/mpi/watchdog.h"
#include "meshift/engine.h"

namespace meshift {

// Safe for concurrent use.
class Progress final : public CallerProgress {
 public:
  // A collective that does not advance for its time-out fails. This is checked while a thread
  // waits, and in Advance(). An all-gather, all-to-all, SendRecv, or small all-reduce or
  // reduction to one member counts as not advancing from its first step that waits to its end. The
  // first collective of a group has the time-out `setup`, the others `running`. `bounded_waits`
  // REQUIRES threads.any(). `cache_bytes`: as in Operation::Start(). REQUIRES: all streams are
  // removed before the Progress is destroyed, unless a thread was given up.
  static std::shared_ptr<Progress> Create(const Timeouts& timeouts, const MpiThreads& threads,
                                          bool bounded_waits, int64_t cache_bytes);

  AtomicTimeouts& timeouts() { return timeouts_; }
  // Watches the progress thread with bounded waits; null without.
  MpiWatchdog* watch() { return bounded_ ? &watch_ : nullptr; }
  // Whether any thread may call MPI at any time, so that one may block in it while others continue.
  bool is_free() const { return is_free_; }
  // The error with which the thread that calls MPI was given up, or OK.
  absl::Status Health() const { return is_free_ ? absl::OkStatus() : HealthNow(); }
  // Health(), and an error if the calling thread may not call the engine.
  absl::Status MayCall() const { return is_free_ ? absl::OkStatus() : MayCallNow(); }
  ScratchPool* pool() { return &pool_; }
  std::shared_ptr<StreamState> AddStream();
  void RemoveStream(const std::shared_ptr<StreamState>& stream);

  // To be called after work was put on a stream and not done at once. Starts or wakes the progress
  // thread if it sleeps; otherwise cheap.
  ABSL_ATTRIBUTE_HOT void Nudge();

  // Waits for all work of a stream, or until the thread that calls MPI is given up, and returns
  // that error or OK. The stream has the errors of the work. A thread that may not call MPI may
  // call it too, since destructors run on any thread: it waits until the thread that may call MPI
  // has done the work, or gives that thread up after the time-out `running`.
  absl::Status AwaitIdle(const std::shared_ptr<StreamState>& stream);
  // As AwaitIdle, for an event. REQUIRES: CheckThread().
  absl::Status Await(const MpiEvent& event);

  // Calls `step` on a thread that may call MPI until it returns true, and waits for that. On the
  // progress thread it only queues `step`. Then, and if Do() returns an error, `step` may be called
  // later, so it must own everything that it uses. If the calling thread runs `step`, there is no
  // time-out. `what` names it in errors: "group 1 {0,2}: symmetric memory".
  absl::Status Do(std::string what, std::function<bool()> step);

  // Null if there is, or will be, a progress thread.
  CallerProgress* callers() { return has_thread_ ? nullptr : this; }
  absl::Status CheckThread() const override { return threads_.Check(); }
  void Advance() override;
  int64_t AttendedSinceNs() const override;

 private:
  struct Job {
    std::string what;
    std::function<bool()> step;
    std::atomic<bool> done{false};
  };
  using Streams = std::vector<std::shared_ptr<StreamState>>;
  using Done = absl::FunctionRef<bool()>;

  Progress(const Timeouts& timeouts, const MpiThreads& threads, bool bounded, int64_t cache_bytes)
      : timeouts_(timeouts), threads_(threads), bounded_(bounded), cache_bytes_(cache_bytes) {}
  ~Progress() override = default;
  // Ends the progress thread. False if a thread was given up and may still use this.
  bool Stop();

  absl::Status HealthNow() const;
  absl::Status MayCallNow() const;
  // Advances streams until `done`; `first` has priority unless it is null.
  void Go(const std::shared_ptr<StreamState>& first, Done done);
  // With bounded waits: waits until `done`, or until the progress thread is given up.
  absl::Status AwaitProgressThread(Done done);
  // On a thread that may not call MPI: waits until `done`, or for the time-out, after which the
  // thread that may call MPI is given up.
  absl::Status AwaitMain(Done done);
  absl::Status GiveUpLost(int64_t now);
  int64_t PatienceNs() const;
  // Notes that a thread advances work at `now_ns`. Returns since when threads do so without a long
  // break.
  int64_t NoteAttended(int64_t now_ns);
  int64_t LongBreakNs() const { return std::min(timeouts_.running_ns(), timeouts_.setup_ns()) / 2; }
  bool AdvanceAll(const AdvanceOptions& options, uint64_t* generation, Streams* streams);
  void RunDefault();  // the progress thread, by default
  void RunBounded();  // the progress thread, with bounded waits
  bool DoJobs();
  bool Sleep();  // until there is work; false if the thread must end
  // Whether streams have work while no thread waits. kOld: a stream with work has ended no task
  // since the previous Look(). `ended` keeps the streams' counts of tasks for the next Look().
  enum class Found : uint8_t { kNothing, kNew, kOld };
  Found Look(const Streams& streams, std::vector<int64_t>* ended) const;

  AtomicTimeouts timeouts_;
  const MpiThreads threads_;
  const bool bounded_;
  const bool has_thread_ = threads_.any();
  const bool is_free_ = has_thread_ && !bounded_;
  const int64_t cache_bytes_;
  Mutex turn_;  // held in calls of MPI with MPI_THREAD_SERIALIZED
  ScratchPool pool_;
  MpiWatchdog watch_;
  std::atomic<int> late_{0};  // threads that wait for longer than PatienceNs(), with bounded waits
  std::atomic<int> sleepers_{0};
  std::atomic<int64_t> num_jobs_{0};
  const Job* current_job_ = nullptr;   // of the thread that calls MPI
  std::atomic<bool> in_job_{false};    // the thread that calls MPI is in a job
  std::atomic<bool> ended_{false};     // the progress thread has ended
  std::atomic<bool> given_up_{false};  // the main thread was given up (AwaitMain)
  // Without a progress thread: when a thread last advanced work, and since when without a long
  // break.
  std::atomic<int64_t> attended_ns_{INT64_MIN / 2};
  std::atomic<int64_t> attended_since_ns_{INT64_MAX};
  std::atomic<int> waiters_{0};
  std::atomic<bool> asleep_{true};       // the progress thread sleeps until woken, or never started
  std::atomic<uint64_t> generation_{1};  // changes with streams_
  mutable Mutex mutex_;
  std::condition_variable wake_;     // wakes the progress thread
  std::condition_variable reached_;  // wakes the threads that wait for it
  Streams streams_ MESHIFT_GUARDED_BY(mutex_);
  bool woken_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool stop_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Job>> jobs_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_PROGRESS_H_
