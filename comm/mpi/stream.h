// Streams and events of a process: in-order queues of work that nobody has to wait for.
//
//   auto task = stream->NewTask();
//   task->kind = MpiTask::Kind::kFill;                      // and what it fills
//   stream->Put(std::move(task));                           // small, on an idle stream: done
//   while (!stream->idle()) stream->Advance({});
//
// Work is done by whoever is there: by the caller that puts it on an idle stream, as far as it is
// small and needs no other rank; by threads that wait, on all streams of the engine, their own
// first; and by one thread of the engine (progress.h) for what lies there while nobody waits.
// Whoever goes on with a stream claims it for as long. Nothing blocks inside: a collective that
// cannot go on is left where it is.
//
// Messages behind a copy begin as soon as all of it that they send, or that touches what they
// receive, is done: a rank's own part is copied while the others' are on their way.
//
// A stream keeps its first error for good: what is behind it is skipped, events behind it carry it,
// and a collective that it reaches ends its group with it.
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
#include "comm/mpi/watch.h"
#include "meshift/engine.h"

namespace meshift {

class StreamState;

// Larger work than this is left to others than the caller: kernels, and collectives by what this
// member sends and receives. Beyond 4 KiB Open MPI may copy a whole message in the call that posts
// it.
inline constexpr int64_t kInlineBytes = 8 << 10;

class MpiEvent final : public Event {
 public:
  // Is of another stream, or of none, and to be reached anew. REQUIRES: nobody else holds it.
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

// One piece of work. Reused, so that it keeps its memory.
struct MpiTask {
  // The first four are kernels.
  enum class Kind : uint8_t { kCopy, kFill, kCast, kReduce, kCollective, kWait, kError };
  Kind kind = Kind::kError;
  int64_t bytes = 0;  // how much a kernel writes
  // What the copies, or the messages of the operation, are filled in from once they are looked at,
  // and where its buffers are. Null: they are there.
  std::shared_ptr<const MpiStep> step;
  MpiBases bases = {};
  std::shared_ptr<MpiGroup> group;  // of the operation
  int64_t number = 0;               // of the call in its group
  int64_t moves = -1;               // of the operation, when it was last looked at
  int64_t moved_ns = -1;            // when that was other than before
  // Reached once this is done, whatever it is. Guarded by the stream's mutex.
  absl::InlinedVector<std::shared_ptr<MpiEvent>, 1> marks;

  std::vector<StridedCopy> copies;

  std::array<uint8_t, 16> element = {};  // kFill
  int64_t element_bytes = 1;
  CastFunction cast = nullptr;
  const void* src = nullptr;
  void* dst = nullptr;
  int64_t count = 0;
  ReduceSpec reduce;  // kReduce
  std::vector<const void*> inputs;

  Operation operation;

  std::shared_ptr<MpiEvent> event;  // kWait
  absl::Status error;
};

// How far to go.
struct Effort {
  int64_t max_bytes = INT64_MAX;  // of a kernel, or of a piece of a collective
  // Collectives that have not moved for so long at `now_ns` fail. Null: none does.
  const AtomicTimeouts* timeouts = nullptr;
  int64_t now_ns = 0;
  int64_t since_ns = 0;      // time before it does not count
  bool begins_only = false;  // looks at no messages: that may yield the core
};

class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  // `watch`: of the one thread that goes on with collectives; null: any thread does. `turn`: held
  // while a thread calls MPI; null: several may. `cache_bytes`: as in Operation::Start().
  StreamState(ScratchPool* pool, MpiWatch* watch, Mutex* turn, int64_t cache_bytes)
      : pool_(pool), watch_(watch), turn_(turn), cache_bytes_(cache_bytes) {}

  // An empty task, to be filled in and given to Put.
  ABSL_ATTRIBUTE_HOT std::unique_ptr<MpiTask> NewTask();
  // Behind everything that is there. Done, or begun, at once where the stream was idle and it is
  // small.
  void Put(std::unique_ptr<MpiTask> task);
  // Likewise all of these, which are ready; then Mark(done), unless that is null.
  ABSL_ATTRIBUTE_HOT void Put(const std::shared_ptr<const MpiExecutable::Steps>& steps,
                              const ListRange& range, const MpiBases& bases,
                              std::shared_ptr<Event>* done);
  // Reaches `*event`, or another one in its place where somebody else holds that, once everything
  // that is there is done: now, where nothing is.
  ABSL_ATTRIBUTE_HOT void Mark(std::shared_ptr<Event>* event);
  // Does what can be done now; returns whether anything was. False where somebody else is at it.
  bool Advance(const Effort& effort);
  // Whether all work is done.
  bool idle() const { return open_.load() == 0; }
  // Tasks that were ended, ever: stands still where nothing moves.
  int64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  absl::Status error() const;
  // The collective that somebody is at: "group 1 {0,2}: barrier (call 3)"; "": none. REQUIRES: who
  // is at it was given up, or is this thread.
  std::string CurrentText() const;

 private:
  enum class Result : uint8_t { kStuck, kDone };
  // A ring of tasks that grows.
  class Ring {
   public:
    bool empty() const { return size_ == 0; }
    MpiTask* front() const { return tasks_[first_].get(); }
    // The one behind the first; null where there is none.
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

  // What it writes, or sends and receives.
  ABSL_ATTRIBUTE_HOT static int64_t BytesOf(const MpiTask& task);
  ABSL_ATTRIBUTE_HOT std::unique_ptr<MpiTask> TakeFree() MESHIFT_REQUIRES(mutex_);
  ABSL_ATTRIBUTE_HOT void MarkLast(std::shared_ptr<Event>* event) MESHIFT_REQUIRES(mutex_);
  // Whether the caller, who puts `task` first, is to begin it; then it is claimed.
  ABSL_ATTRIBUTE_HOT bool ClaimsIdle(const MpiTask& task) MESHIFT_REQUIRES(mutex_);
  // `next`: what is behind `task`, or null.
  bool Run(MpiTask* task, MpiTask* next, const Effort& effort);
  Result Execute(MpiTask& task, MpiTask* next, const Effort& effort);
  static void FillIn(MpiTask* task);
  void ExecuteCopies(MpiTask& task, MpiTask* next);
  Result ExecuteCollective(MpiTask& task, const Effort& effort);
  // Whether it is a collective that may begin now.
  bool MayBegin(const MpiTask& task) const;
  void Begin(MpiTask* task);
  void SetError(const absl::Status& status);

  ScratchPool* const pool_;
  MpiWatch* const watch_;
  Mutex* const turn_;
  const int64_t cache_bytes_;
  std::atomic<int64_t> open_{0};  // tasks that are not done
  std::atomic<int64_t> ended_{0};
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  bool claimed_ MESHIFT_GUARDED_BY(mutex_) = false;
  Ring tasks_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MpiTask>> free_ MESHIFT_GUARDED_BY(mutex_);
  // Events that nobody held when they were reached; of no stream.
  std::vector<std::shared_ptr<MpiEvent>> free_events_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_STREAM_H_
