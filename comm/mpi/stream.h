// The streams and events of the MPI engine. A stream is an in-order queue of tasks.
//
//   auto task = stream->NewTask();
//   task->kind = MpiTask::Kind::kFill;                      // and its operands
//   stream->Put(std::move(task));                           // runs now if small and stream idle
//   while (!stream->idle()) stream->Advance({});
//
// If the stream is idle, and a task is small and needs no other rank, the calling thread runs it at
// once: such a task never is in the queue, and needs no lock of the stream. That thread also begins
// a small collective before it queues it, unless the engine has bounded waits
// (MpiEngineOptions::bounded_waits). progress.h says which threads run the rest. By default a
// thread that waits runs tasks of all streams, its own first. While none waits, the progress thread
// runs them. One thread at a time runs the tasks of a stream. No task blocks, unless MPI does: a
// collective that cannot advance keeps its state.
//
// A SendRecv right after a task of copies of 16 KiB or more may start before they are done. Copies
// that write a buffer that it sends, or that access one that it receives, run first. Thus a rank
// copies its own part while messages travel.
//
// A stream keeps its first error forever: it skips later tasks, later events carry the error, and a
// later collective ends its group with it. The caller checks the operands of tasks, and keeps their
// buffers until they are done. One thread at a time puts tasks on a stream. Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_STREAM_H_
#define MESHIFT_COMM_MPI_STREAM_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/executable.h"
#include "comm/mpi/group.h"
#include "comm/mpi/operation.h"
#include "comm/mpi/scratch.h"
#include "comm/mpi/watchdog.h"
#include "meshift/engine.h"

namespace meshift {

class StreamState;

// The caller does not run larger tasks at once. A collective counts by the bytes that this member
// sends and receives: above 4 KiB Open MPI may copy a whole message in the call that posts it.
inline constexpr int64_t kInlineBytes = 8 << 10;

class MpiEvent final : public Event {
 public:
  // Assigns the event to `stream` (or to none), not yet reached. REQUIRES: the caller has the only
  // reference.
  ABSL_ATTRIBUTE_HOT void Reset(StreamState* stream);
  int64_t ReachedNs() const override { return reached_ns_.load(std::memory_order_acquire); }
  bool reached() const { return ReachedNs() >= 0; }
  bool IsReached() const override { return reached() && status_.ok(); }
  // REQUIRES: reached().
  const absl::Status& status() const { return status_; }
  void Reach(const absl::Status& status) {
    status_ = status;
    reached_ns_.store(NowNs(), std::memory_order_release);
  }
  const std::shared_ptr<StreamState>& stream() const { return stream_; }

 private:
  std::shared_ptr<StreamState> stream_;
  absl::Status status_;
  std::atomic<int64_t> reached_ns_{-1};
};

// One task of a stream. Reused, so that it keeps its memory.
struct MpiTask {
  // The first four are kernels.
  enum class Kind : uint8_t { kCopy, kFill, kCast, kReduce, kCollective, kWait, kError };
  Kind kind = Kind::kError;
  int64_t bytes = 0;  // that a kernel writes; kCast, kReduce: reads and writes
  // The prepared copies or collective, and the addresses for it; filled in when the task runs. Null
  // if the task is filled in already.
  const MpiStep* step = nullptr;
  MpiBases bases = {};
  MpiGroup* group = nullptr;  // kCollective
  // Keeps these steps and groups alive, also while the task is not in use: `copies` and the
  // operation's call are still those of `copies_of` and `call_of` when it next runs these steps.
  std::shared_ptr<const void> owner;
  const MpiStep* copies_of = nullptr;
  const MpiStep* call_of = nullptr;
  int64_t number = 0;           // of the call in its group
  int64_t progress_count = -1;  // Operation::progress_count() when last checked
  int64_t progress_ns = -1;     // when that was seen to change, by NowNs()
  // Events that are reached when this task is done. Guarded by the stream's mutex.
  absl::InlinedVector<std::shared_ptr<MpiEvent>, 1> marks;

  std::vector<StridedCopy> copies;

  std::array<uint8_t, 16> element = {};  // kFill: its first `element_bytes` bytes
  int64_t element_bytes = 1;
  CastFunction cast = nullptr;      // kCast
  const void* src = nullptr;        // kCast
  void* dst = nullptr;              // kFill, kCast, kReduce
  int64_t count = 0;                // elements, of the same
  ReduceSpec reduce;                // kReduce
  std::vector<const void*> inputs;  // kReduce

  Operation operation;

  std::shared_ptr<MpiEvent> event;  // kWait
  absl::Status error;               // kError: the error that the stream gets
};

// How much a call may do, and whether it checks time-outs.
struct AdvanceOptions {
  int64_t max_bytes = INT64_MAX;  // of a kernel, or of a piece of a collective
  // Fail collectives that have not advanced (Operation::progress_count) for their time-out at
  // `now_ns`. Null: none times out.
  const AtomicTimeouts* timeouts = nullptr;
  int64_t now_ns = 0;    // by NowNs()
  int64_t since_ns = 0;  // time before this does not count
  // Do not test the messages that a collective has begun to receive: a test may yield the core.
  bool begins_only = false;
};

class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  // `watch` watches the thread that runs collectives with bounded waits; null without them. `turn`
  // is held while a thread calls MPI (MpiTurn). `cache_bytes`: as in Operation::Start().
  StreamState(ScratchPool* pool, MpiWatchdog* watch, Mutex* turn, int64_t cache_bytes)
      : pool_(pool), watch_(watch), turn_(turn), cache_bytes_(cache_bytes) {}

  // A task for the caller to fill in and Put, without an owner.
  ABSL_ATTRIBUTE_HOT std::unique_ptr<MpiTask> NewTask();
  // Appends a task. Runs or begins it at once if it is small and the stream was idle, but with
  // `watch` no collective.
  void Put(std::unique_ptr<MpiTask> task);
  // Appends these steps, which must be prepared, and then marks `done` unless it is null.
  ABSL_ATTRIBUTE_HOT void Put(const std::shared_ptr<const MpiExecutable::Steps>& steps,
                              const ListRange& range, const MpiBases& bases,
                              std::shared_ptr<Event>* done);
  // Makes `*event` reached once all tasks so far are done, which may be now. Replaces `*event` by
  // another event if it is null, shared, or not an MpiEvent.
  ABSL_ATTRIBUTE_HOT void Mark(std::shared_ptr<Event>* event);
  // Runs tasks until one would have to wait, or exceeds options.max_bytes. Whether anything
  // advanced; false if another thread is running the stream's tasks.
  bool Advance(const AdvanceOptions& options);
  // Whether all tasks are done.
  bool idle() const { return open_.load() == 0; }
  // The number of tasks done so far.
  int64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  absl::Status error() const;
  // The running collective: "group 1 {0,2}: barrier (call 3)"; "" if there is none. REQUIRES: the
  // thread that runs it was given up, or is this thread.
  std::string CurrentText() const;

 private:
  enum class Result : uint8_t { kStuck, kDone };
  // A ring buffer of tasks that grows.
  class Ring {
   public:
    bool empty() const { return size_ == 0; }
    // The first two tasks; null where there are fewer.
    MpiTask* first() const { return size_ < 1 ? nullptr : tasks_[first_].get(); }
    MpiTask* second() const {
      return size_ < 2 ? nullptr : tasks_[(first_ + 1) % tasks_.size()].get();
    }
    ABSL_ATTRIBUTE_HOT void Push(std::unique_ptr<MpiTask> task);
    std::unique_ptr<MpiTask> Pop();
    // REQUIRES: !empty().
    MpiTask* back() const { return tasks_[(first_ + size_ - 1) % tasks_.size()].get(); }

   private:
    std::vector<std::unique_ptr<MpiTask>> tasks_;
    size_t first_ = 0;
    size_t size_ = 0;
  };

  // MpiTask::bytes of a kernel; the bytes that a collective sends and receives.
  ABSL_ATTRIBUTE_HOT static int64_t BytesOf(const MpiTask& task);
  ABSL_ATTRIBUTE_HOT void MarkLast(std::shared_ptr<Event>* event) MESHIFT_REQUIRES(mutex_);
  // Whether the stream was idle and the task, which is not in the queue, is now done. If not, the
  // task may have begun.
  ABSL_ATTRIBUTE_HOT bool RunAtOnce(MpiTask* task);
  void Push(std::unique_ptr<MpiTask> task) MESHIFT_REQUIRES(mutex_) {
    tasks_.Push(std::move(task));
    first_.store(tasks_.first(), std::memory_order_release);
  }
  void EndFirst();  // the first task is done; REQUIRES: the stream is claimed
  MpiTask* Second() const {
    const MutexLock lock(mutex_);
    return tasks_.second();
  }
  // A task that keeps what it had when it was used last. The second one does not look in free_.
  ABSL_ATTRIBUTE_HOT std::unique_ptr<MpiTask> TakeSpare();
  ABSL_ATTRIBUTE_HOT std::unique_ptr<MpiTask> TakeOwnSpare();
  // Takes back a task that is done.
  ABSL_ATTRIBUTE_HOT static void Keep(std::unique_ptr<MpiTask> task,
                                      std::vector<std::unique_ptr<MpiTask>>* spare);
  static void SetStep(const std::shared_ptr<const MpiExecutable::Steps>& steps, int32_t i,
                      const MpiBases& bases, MpiTask* task);
  // Counts a task that is done.
  void CountEnd() { ended_.store(ended() + 1, std::memory_order_relaxed); }
  // `task` is the first task of a claimed stream, or that of RunAtOnce().
  Result Execute(MpiTask& task, const AdvanceOptions& options);
  static void FillIn(MpiTask* task);
  void ExecuteCopies(MpiTask& task);
  Result ExecuteCollective(MpiTask& task, const AdvanceOptions& options);
  // Whether the task is a collective that may begin now.
  bool MayBegin(const MpiTask& task) const;
  void Begin(MpiTask* task);
  void SetError(const absl::Status& status);

  ScratchPool* const pool_;
  MpiWatchdog* const watch_;
  Mutex* const turn_;
  const int64_t cache_bytes_;
  std::atomic<int64_t> open_{0};   // tasks in the queue
  std::atomic<int64_t> ended_{0};  // changed by the thread that runs the stream's tasks
  std::atomic<bool> failed_{false};
  std::atomic<bool> claimed_{false};  // a thread runs the stream's tasks
  // The first task in the queue, so that a poll needs no lock.
  std::atomic<MpiTask*> first_{nullptr};
  std::vector<std::unique_ptr<MpiTask>> spare_;  // to reuse; of the thread that puts tasks
  mutable Mutex mutex_;
  Ring tasks_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MpiTask>> free_ MESHIFT_GUARDED_BY(mutex_);  // become spare_
  // Events to reuse: they had no other reference when they were reached. They belong to no stream.
  std::vector<std::shared_ptr<MpiEvent>> free_events_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_STREAM_H_
