// Tells which threads may call MPI, by the thread level for which the program initialised it.
//
//   MESHIFT_ASSIGN_OR_RETURN(const MpiThreads threads, MpiThreads::Query());
//   if (!threads.any()) ...                          // below MPI_THREAD_MULTIPLE
//   MESHIFT_RETURN_IF_ERROR(threads.Check());        // may this thread call MPI?
//
// MpiThreads only tells: it stops no call. Immutable. MpiTurn lets one thread at a time call MPI.
// Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_MPI_THREADS_H_
#define MESHIFT_COMM_MPI_MPI_THREADS_H_

#include <mpi.h>

#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace meshift {

class MpiThreads {
 public:
  // The level of this process. FAILED_PRECONDITION if MPI is not initialised, or is finalised, or
  // the calling thread may not call it.
  static absl::StatusOr<MpiThreads> Query();

  // Any thread may call, at any time (MPI_THREAD_MULTIPLE).
  bool any() const { return level_ == MPI_THREAD_MULTIPLE; }
  // Any thread may call, one at a time (MPI_THREAD_SERIALIZED).
  bool in_turn() const { return level_ == MPI_THREAD_SERIALIZED; }
  const char* level() const;  // "MPI_THREAD_FUNNELED"
  // FAILED_PRECONDITION, with the level and the rule, if the calling thread may not call MPI. Makes
  // no MPI call itself.
  absl::Status Check() const {
    if (any() || in_turn() || std::this_thread::get_id() == main_) return absl::OkStatus();
    return Refusal();
  }

 private:
  explicit MpiThreads(int level) : level_(level) {}
  absl::Status Refusal() const;

  int level_;
  // The thread that called Query(). Below MPI_THREAD_SERIALIZED this is MPI's main thread.
  std::thread::id main_ = std::this_thread::get_id();
};

// Holds `mutex`, which lets one thread at a time call MPI, from construction to destruction. Null:
// no lock is needed.
class MpiTurn {
 public:
  explicit MpiTurn(Mutex* mutex) {
    if (mutex != nullptr) [[unlikely]]
      lock_.emplace(*mutex);
  }

 private:
  std::optional<MutexLock> lock_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_MPI_THREADS_H_
