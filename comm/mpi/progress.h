// Keeps the streams of a process going: from the threads that wait, and from one of its own while
// nobody does.
//
//   MESHIFT_RETURN_IF_ERROR(progress.AwaitIdle(stream));
#ifndef MESHIFT_COMM_MPI_PROGRESS_H_
#define MESHIFT_COMM_MPI_PROGRESS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/mpi/scratch.h"
#include "comm/mpi/stream.h"

namespace meshift {

// Safe for concurrent use.
class Progress {
 public:
  // A collective that makes no step for so long while somebody waits fails.
  explicit Progress(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}
  // REQUIRES: all streams are removed.
  ~Progress();

  ScratchPool* pool() { return &pool_; }
  std::shared_ptr<StreamState> AddStream();
  void RemoveStream(const std::shared_ptr<StreamState>& stream);

  // To be called after work was put on a stream and not done at once: starts or wakes the thread
  // where nobody else would go on. Cheap.
  void Nudge();

  void AwaitIdle(const std::shared_ptr<StreamState>& stream);
  void Await(const MpiEvent& event);

 private:
  using Streams = std::vector<std::shared_ptr<StreamState>>;
  using Done = absl::FunctionRef<bool()>;

  // Goes on with streams, `first` first, until `done`.
  void Go(const std::shared_ptr<StreamState>& first, Done done);
  bool AdvanceAll(const Effort& effort, uint64_t* generation, Streams* streams);
  void Work();
  // What lies there while nobody waits: nothing, or work that the last look (`ended`) has not seen,
  // or that it has.
  enum class Found : uint8_t { kNothing, kNew, kOld };
  Found Look(const Streams& streams, std::vector<int64_t>* ended) const;

  const int64_t timeout_ns_;
  ScratchPool pool_;
  std::atomic<int> waiters_{0};
  std::atomic<bool> asleep_{true};       // the thread, for good, until it is woken; or not started
  std::atomic<uint64_t> generation_{1};  // of streams_
  Mutex mutex_;
  std::condition_variable wake_;
  Streams streams_ MESHIFT_GUARDED_BY(mutex_);
  bool woken_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool stop_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::thread thread_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_PROGRESS_H_
