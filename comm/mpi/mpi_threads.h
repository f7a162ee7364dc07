// Which threads may call MPI: what the program has initialised it for.
//
//   MESHIFT_ASSIGN_OR_RETURN(const MpiThreads threads, MpiThreads::Query());
//   if (!threads.any()) ...                          // below MPI_THREAD_MULTIPLE
//   MESHIFT_RETURN_IF_ERROR(threads.Check());        // of the calling thread
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
  // Of this process. FAILED_PRECONDITION where MPI is not initialised, or is finalised, or this
  // thread may not call it.
  static absl::StatusOr<MpiThreads> Query();

  // Any thread, at any time.
  bool any() const { return level_ == MPI_THREAD_MULTIPLE; }
  // Any thread, one at a time.
  bool in_turn() const { return level_ == MPI_THREAD_SERIALIZED; }
  const char* level() const;  // "MPI_THREAD_FUNNELED"
  // FAILED_PRECONDITION, with the level and the rule, where the calling thread may not. Calls no
  // MPI.
  absl::Status Check() const {
    if (any() || in_turn() || std::this_thread::get_id() == main_) return absl::OkStatus();
    return Refusal();
  }

 private:
  explicit MpiThreads(int level) : level_(level) {}
  absl::Status Refusal() const;

  int level_;
  std::thread::id main_ = std::this_thread::get_id();  // that asks; below them: MPI's main thread
};

// Holds the lock without which a thread may not call MPI, where there is one, for the length of a
// scope.
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
