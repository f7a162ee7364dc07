// The MPI engine: one rank per process, tensors in host memory.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto job, MpiJob::Start());    // or MpiJob::Start(communicator)
//   const absl::Status status = Train(job->engine());
//   if (!status.ok()) job->Leave(1);
//
// Calls that queue work do not block unless MPI itself does (see MpiEngineOptions::bounded_waits).
// Collectives consist of non-blocking messages. They advance while any thread waits, and otherwise
// on a thread of the engine. On an idle stream the caller starts the work, and completes it if it
// is small and needs no other rank. Split sends nothing. It is UNIMPLEMENTED if the parent was
// split from a part of the world, and RESOURCE_EXHAUSTED if no MPI tags are left.
//
// Reductions have the arithmetic of comm/kernels/reduce.h, in ascending order of ranks, rounded
// once. The bits are those of the local engine under ReductionOrder::kRanks, and equal on all
// members (EngineCapabilities::Local()).
//
// Errors propagate with the work, as in meshift/local_world.h: a stream keeps its first error. An
// error of a communicator's call ends the group on this rank. Two errors do not: a stream of
// another engine, and a call by a thread that may not call. MPI does not report an error to other
// ranks; with a control channel a Redistributor's peers learn of it at once, otherwise by their
// time-out. After an error MPI may still write to the buffers of ended calls until the process
// exits. Such a process should exit without MPI_Finalize, which waits for messages
// (MpiSession::Leave).
//
// MPI must be initialised before the engine is created, and finalised after it is destroyed. The
// engine uses a duplicate of the communicator, made and freed collectively. Safe for concurrent
// use.
//
// Below MPI_THREAD_MULTIPLE (plain MPI_Init) the engine has no thread of its own. Work advances
// only inside calls: waits, RunHandle::IsDone, and Engine::caller_progress()->Advance(). A rank
// that has submitted work and then computes keeps its peers waiting.
//   MPI_THREAD_SERIALIZED: any thread may call, also several at once. While a thread is in a call
//   of the engine or its redistributors, the program must not call MPI or another such engine.
//   MPI_THREAD_FUNNELED, MPI_THREAD_SINGLE: only the thread that initialised MPI may call. Others
//   get FAILED_PRECONDITION without effect, except that they may query (IsDone, timeouts, Health),
//   set time-outs, abort, allocate and drop handles. If another thread destroys an object in use,
//   its destructor waits until the MPI thread has done the work. It waits at most the time-out;
//   then the engine fails. If another thread destroys the engine, its communicator is leaked.
// A break is a time in which no thread waits or polls. After a break longer than half the shorter
// time-out all time-outs begin again. A shorter break counts towards them. Meshift's other threads
// (control channel, watchdog) never call MPI, so the thread level does not concern them.
#ifndef MESHIFT_MPI_ENGINE_H_
#define MESHIFT_MPI_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/version.h"

#if defined(__has_include)
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif
#endif

namespace MESHIFT_API meshift {

// MpiSession initialises MPI if the program has not, with MPI_THREAD_MULTIPLE if available.
//
//   MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
//   ...
//   if (failed) MpiSession::Leave(1);
//
// The destructor finalises MPI if Start() initialised it. Movable.
class MpiSession {
 public:
  // Also OK if the program has initialised MPI, or if MPI provides less than MPI_THREAD_MULTIPLE.
  // If it initialises MPICH, it sets MPI_ERRORS_RETURN on MPI_COMM_WORLD.
  // UNIMPLEMENTED: this build has no MPI. INTERNAL: MPI fails.
  static absl::StatusOr<MpiSession> Start();
  // Whether MPI is initialised with MPI_THREAD_MULTIPLE. Then the engine has its own thread, and
  // waits can be bounded.
  static bool HasThreads();
  MpiSession(MpiSession&& other) noexcept : owns_(other.owns_) { other.owns_ = false; }
  MpiSession& operator=(MpiSession&&) = delete;
  ~MpiSession();

  // Ends the process at once, without MPI_Finalize and without destructors, which could wait
  // forever for messages after an error. Flush output before the call.
  [[noreturn]] static void Leave(int exit_code);

 private:
  explicit MpiSession(bool owns) : owns_(owns) {}
  bool owns_;
};

// Bootstraps the job over MPI: rank 0 opens the hub and broadcasts its address with a random
// secret. The hub listens on loopback if all ranks share memory, else on MESHIFT_SOCKET_IFNAME
// (Bootstrap::Listen()). Collective; `communicator` as in MpiEngineOptions. `timeout` does not
// limit the calls of MPI itself. Errors as those of Bootstrap::Listen() and Connect(); UNAVAILABLE
// also if rank 0 could not open the hub; FAILED_PRECONDITION also if MPI is not initialised, or
// this thread may not call it; UNIMPLEMENTED and INTERNAL as for MpiSession::Start().
absl::StatusOr<std::unique_ptr<Bootstrap>> MpiBootstrap(
    Bootstrap::Timeout timeout = Bootstrap::kDefaultTimeout,
    std::optional<int> communicator = std::nullopt);

struct MpiEngineOptions {
  // A collective that makes no progress for this time, while this rank waits for it, ends with
  // DEADLINE_EXCEEDED, which names the ranks whose messages are missing. Used for both phases: the
  // first collective of a group and the creation of the engine are in the setup phase
  // (Engine::SetTimeouts sets the two separately).
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  ControlChannel* control = nullptr;  // must outlive the engine
  // The communicator whose ranks are the world, from MPI_Comm_c2f; none: MPI_COMM_WORLD.
  std::optional<int> communicator = std::nullopt;
  // Every call returns within the time-out plus one second, even if a call of MPI never returns: a
  // killed peer may leave shared memory in a state that blocks the others in their next call
  // (docs/engines.md, "Bounded waits"). Only a thread of the engine then calls MPI; the other
  // threads give it their work and wait. If it stays in one call for the time-out, it is abandoned:
  // that call and all later calls return DEADLINE_EXCEEDED, which names the group and the call. The
  // thread keeps running, so tensors of unfinished calls must stay allocated; the engine leaks its
  // own memory. Then exit the process (MpiSession::Leave). Do not create another engine: the thread
  // may still be in a collective call on the same communicator. Costs about 5 us per wait. Must be
  // equal on all ranks, which create the engine, and free symmetric memory, within the time-out of
  // each other. Needs MPI_THREAD_MULTIPLE.
  bool bounded_waits = false;
  // Size in bytes of the last-level cache that ranks of a host share. It selects the copy routine
  // for large blocks. 0: unknown. Not set: read from this host.
  std::optional<int64_t> cache_bytes = std::nullopt;
};

// Collective. INVALID_ARGUMENT: the time-out is not positive, or cache_bytes is negative.
// FAILED_PRECONDITION: MPI is not initialised, this thread may not call it, bounded_waits needs a
// higher thread level, or the library was compiled with options that change its arithmetic.
// UNIMPLEMENTED: this build has no MPI. INTERNAL: MPI fails. DEADLINE_EXCEEDED: with bounded_waits,
// MPI does not return.
absl::StatusOr<std::unique_ptr<Engine>> CreateMpiEngine(const MpiEngineOptions& options = {});

// One rank of a job over MPI. Owns, in the order of construction: MPI itself, if the program has
// not initialised it; the control channel, which reports failures to the other ranks at once; and
// the engine. Destroy its redistributors first.
class MpiJob {
 public:
  // Collective. If `options.control` is null, the job makes its own, with the time-out
  // Bootstrap::kDefaultTimeout. Errors as those of MpiSession::Start, MpiBootstrap and
  // CreateMpiEngine.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start(const MpiEngineOptions& options = {});
#ifdef MPI_VERSION
  // The ranks of `communicator` are the world. REQUIRES: it outlives the job.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start(MPI_Comm communicator,
                                                       MpiEngineOptions options = {}) {
    options.communicator = static_cast<int>(MPI_Comm_c2f(communicator));
    return Start(options);
  }
#endif
  // Waits for the other ranks: at most Bootstrap::kDefaultTimeout on its own control channel, and
  // without a limit in MPI. After an error use Leave. Call it on the thread that created the job.
  ~MpiJob();

  Engine* engine() const { return engine_.get(); }  // never null
  // Null if the options had a control channel.
  Bootstrap* bootstrap() const { return bootstrap_.get(); }

  // For a rank that has seen an error, as MpiSession::Leave: the destructor could wait forever in
  // MPI_Finalize.
  [[noreturn]] static void Leave(int exit_code) { MpiSession::Leave(exit_code); }

 private:
  explicit MpiJob(MpiSession session) : session_(std::move(session)) {}

  MpiSession session_;  // destroyed last
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Engine> engine_;
};

// The reason why this build has no MPI; empty if it has.
std::string MpiAbsence();

}  // namespace meshift

#endif  // MESHIFT_MPI_ENGINE_H_
