// Keeps the streams of a process going: from the threads that wait, and from one of its own while
// nobody does. Or, where waits are bounded, from its own alone, so that no other ever is inside
// MPI: those that wait then give that thread up where it does not come back, and all ends with that
// error. Such a thread, the Progress and whatever else it may touch stay for good.
//
// Where MPI allows it no thread of its own, from callers alone: those that wait, and those that
// look (Advance). What lies there while nobody does stands still, and no time counts for it.
//
//   const auto progress = Progress::Create(timeouts, threads, bounded_waits, cache_bytes);
//   MESHIFT_RETURN_IF_ERROR(progress->AwaitIdle(stream));
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
#include "comm/mpi/watch.h"
#include "meshift/engine.h"

namespace meshift {

// Safe for concurrent use.
class Progress final : public CallerProgress {
 public:
  // A collective that makes no step for so long while somebody waits fails; the first of a group
  // is of the phase of setup. REQUIRES, at the end: all streams are removed.
  // `bounded_waits`: REQUIRES: threads.any(). `cache_bytes`: as in Operation::Start().
  static std::shared_ptr<Progress> Create(const Timeouts& timeouts, const MpiThreads& threads,
                                          bool bounded_waits, int64_t cache_bytes);

  AtomicTimeouts& timeouts() { return timeouts_; }
  // Of the thread that alone calls MPI; null where any does.
  MpiWatch* watch() { return bounded_ ? &watch_ : nullptr; }
  // Whether MPI is any thread's at any time, so that one may block in it while others go on.
  bool is_free() const { return is_free_; }
  // The error with which the thread that may call MPI was given up.
  absl::Status Health() const { return is_free_ ? absl::OkStatus() : HealthNow(); }
  // Likewise; or why the calling thread may not call the engine.
  absl::Status MayCall() const { return is_free_ ? absl::OkStatus() : MayCallNow(); }
  ScratchPool* pool() { return &pool_; }
  std::shared_ptr<StreamState> AddStream();
  void RemoveStream(const std::shared_ptr<StreamState>& stream);

  // To be called after work was put on a stream and not done at once: starts or wakes the thread
  // where nobody else would go on. Cheap.
  ABSL_ATTRIBUTE_HOT void Nudge();

  // Errors are Health()'s; those of the work are the stream's and the event's. AwaitIdle on a
  // thread that may not call MPI, as destructors may be: waits until the one that may has done the
  // work.
  absl::Status AwaitIdle(const std::shared_ptr<StreamState>& stream);
  // REQUIRES: CheckThread().
  absl::Status Await(const MpiEvent& event);

  // Calls `step` until it returns true, on the thread that may call MPI, and waits for that; not
  // where it is the caller. After an error `step` is left as it is: it owns what it uses. `what`
  // is for the error: "group 1 {0,2}: symmetric memory".
  absl::Status Do(std::string what, std::function<bool()> step);

  // Null where there is, or will be, a thread of its own.
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
  // Ends the thread. Whether it has come back.
  bool Stop();

  absl::Status HealthNow() const;
  absl::Status MayCallNow() const;
  // Goes on with streams, `first` first, unless that is null, until `done`.
  void Go(const std::shared_ptr<StreamState>& first, Done done);
  // Where waits are bounded: until `done`, or the thread is lost.
  absl::Status Attend(Done done);
  // Where this thread may not call MPI: until `done`, or until the one that may has not come for
  // the time-out, and is given up.
  absl::Status AwaitMain(Done done);
  absl::Status GiveUpLost(int64_t now);
  int64_t PatienceNs() const;
  // Somebody looks after the work at `now_ns`: since when without a long break.
  int64_t NoteAttended(int64_t now_ns);
  int64_t LongBreakNs() const { return std::min(timeouts_.running_ns(), timeouts_.setup_ns()) / 2; }
  bool AdvanceAll(const Effort& effort, uint64_t* generation, Streams* streams);
  void Work();
  // As Work, where waits are bounded.
  void Serve();
  bool DoJobs();
  bool Sleep();  // until there is work; false: it is to end
  // What lies there while nobody waits: nothing, or work that the last look (`ended`) has not seen,
  // or that it has.
  enum class Found : uint8_t { kNothing, kNew, kOld };
  Found Look(const Streams& streams, std::vector<int64_t>* ended) const;

  AtomicTimeouts timeouts_;
  const MpiThreads threads_;
  const bool bounded_;
  const bool has_thread_ = threads_.any();
  const bool is_free_ = has_thread_ && !bounded_;
  const int64_t cache_bytes_;
  Mutex turn_;  // to call MPI, where threads do so in turn
  ScratchPool pool_;
  MpiWatch watch_;
  std::atomic<int> late_{0};  // waiters for longer than their patience, where waits are bounded
  std::atomic<int> sleepers_{0};
  std::atomic<int64_t> num_jobs_{0};
  const Job* current_job_ = nullptr;   // of the thread
  std::atomic<bool> in_job_{false};    // the thread
  std::atomic<bool> ended_{false};     // the thread
  std::atomic<bool> given_up_{false};  // the main thread, for which another one has waited
  std::atomic<int64_t> attended_ns_{INT64_MIN / 2};  // without a thread: the last look of a caller
  std::atomic<int64_t> attended_since_ns_{INT64_MAX};
  std::atomic<int> waiters_{0};
  std::atomic<bool> asleep_{true};       // the thread, for good, until it is woken; or not started
  std::atomic<uint64_t> generation_{1};  // of streams_
  mutable Mutex mutex_;
  std::condition_variable wake_;     // the thread
  std::condition_variable reached_;  // those that wait for it
  Streams streams_ MESHIFT_GUARDED_BY(mutex_);
  bool woken_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool stop_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Job>> jobs_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
  std::thread thread_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_PROGRESS_H_
