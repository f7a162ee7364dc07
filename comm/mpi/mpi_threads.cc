#include "comm/mpi/mpi_threads.h"

#include "base/status.h"

namespace meshift {

absl::StatusOr<MpiThreads> MpiThreads::Query() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return FailedPrecondition(
        "MPI has been finalized; the engine must be used before MPI_Finalize");
  }
  if (initialized == 0) {
    return FailedPrecondition("MPI is not initialized; call MPI_Init or MPI_Init_thread first");
  }
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  const MpiThreads threads(level);
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  if (!threads.any() && !threads.in_turn() && is_main == 0) return threads.Refusal();
  return threads;
}

const char* MpiThreads::level() const {
  if (any()) return "MPI_THREAD_MULTIPLE";
  if (in_turn()) return "MPI_THREAD_SERIALIZED";
  return level_ == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE";
}

absl::Status MpiThreads::Refusal() const {
  return FailedPrecondition(
      "MPI was initialized for {}: only the thread that initialized it may call the engine",
      level());
}

}  // namespace meshift
