// The engine of real processes: one rank per process, over MPI.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto job, MpiJob::Start());    // or MpiJob::Start(communicator)
//   const absl::Status status = Train(job->engine());
//   if (!status.ok()) job->Leave(1);
//
// Nothing blocks, but where MPI does (MpiEngineOptions::bounded_waits): collectives are made of
// non-blocking messages and go on whenever somebody waits, and from a thread of the engine while
// nobody does. Work on an idle stream is begun by the caller, and done by it where it is small and
// needs no other rank. Splitting sends nothing.
//
// Reductions have the arithmetic of comm/kernels/reduce.h, in ascending order of ranks, rounded
// once: the bits of the local engine, equal on all members (EngineCapabilities::Local()).
//
// Errors travel with the work, as in meshift/local_world.h: a stream keeps its first error; any
// error of a call ends the group on this rank. MPI tells no other rank of it, the control channel
// does: a Redistributor's peers learn at once, others by their time-out. After an error MPI may
// still touch the buffers of the calls that it ended, until the process leaves; a process that has
// seen one should leave without MPI_Finalize, which waits for messages (MpiSession::Leave).
//
// MPI must have been initialised, and must outlive the engine. The engine uses a duplicate of the
// communicator, made and freed collectively. Safe for concurrent use.
//
// Below MPI_THREAD_MULTIPLE (plain MPI_Init) the engine has no thread of its own, and work goes on
// only in calls: those that wait, RunHandle::IsDone, and Engine::caller_progress()->Advance(). A
// rank that has submitted work and computes keeps its peers waiting.
//   MPI_THREAD_SERIALIZED: any thread may call, also several at once. While one is in a call of the
//   engine or of its redistributors, the program calls neither MPI nor another such engine.
//   MPI_THREAD_FUNNELED, MPI_THREAD_SINGLE: only the thread that initialised MPI may call. Others
//   get FAILED_PRECONDITION, and nothing has happened. They may still ask (IsDone, timeouts,
//   Health), set time-outs, abort, allocate and drop handles. What is destroyed on another thread
//   while work needs it waits until the right one has done that work: for the time-out at most,
//   after which the engine has failed. The communicator of an engine that ends there stays.
// Meshift's other threads (control channel, watchdog) call no MPI, so that they are no matter of
// the level. Time-outs count what time the program waits, or looks for work: not that of computing
// between, if that is longer than half a time-out.
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

// MPI for a program that has not initialised it: for several threads if it can, finalised at the
// end.
//
//   MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
//   ...
//   if (failed) MpiSession::Leave(1);

// Finalises MPI when destroyed, where it has initialised it. Movable.
class MpiSession {
 public:
  // OK too where the program has initialised MPI, or where MPI gives less than
  // MPI_THREAD_MULTIPLE. UNIMPLEMENTED where this build has no MPI.
  static absl::StatusOr<MpiSession> Start();
  // Whether MPI is initialised for MPI_THREAD_MULTIPLE: the engine has a thread then, and waits can
  // be bounded.
  static bool HasThreads();
  MpiSession(MpiSession&& other) noexcept : owns_(other.owns_) { other.owns_ = false; }
  MpiSession& operator=(MpiSession&&) = delete;
  ~MpiSession();

  // Ends the process at once, without MPI_Finalize and without destructors: after an error these
  // may wait for messages that never come. The caller has flushed its output.
  [[noreturn]] static void Leave(int exit_code);

 private:
  explicit MpiSession(bool owns) : owns_(owns) {}
  bool owns_;
};

// Bootstraps the job over MPI: rank 0 opens the hub, and broadcasts where, with a secret that it
// has drawn. The hub listens on loopback where all ranks share memory, else where
// MESHIFT_SOCKET_IFNAME says (Bootstrap::Listen()). Collective; the communicator as in
// MpiEngineOptions. Errors as those of Bootstrap::Listen() and Connect(); UNAVAILABLE also where
// rank 0 could not open the hub; FAILED_PRECONDITION as that of CreateMpiEngine.
absl::StatusOr<std::unique_ptr<Bootstrap>> MpiBootstrap(
    Bootstrap::Timeout timeout = Bootstrap::kDefaultTimeout,
    std::optional<int> communicator = std::nullopt);

struct MpiEngineOptions {
  // A collective that makes no step for so long ends with DEADLINE_EXCEEDED, which names the ranks
  // whose messages are missing, once this rank waits for it. Of both phases: the first collective
  // of a group is of the phase of setup, as is the making of the engine
  // (Engine::SetTimeouts sets them apart).
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  ControlChannel* control = nullptr;  // must outlive the engine
  // Whose ranks are the world, as MPI_Comm_c2f gives it; none: MPI_COMM_WORLD.
  std::optional<int> communicator = std::nullopt;
  // Every call returns within the time-out plus a second, also where MPI does not come back: a
  // peer that is killed may leave shared memory so that others never come out of their next call
  // (docs/engines.md, "Bounded waits"). Only a thread of the engine's own calls MPI then; the
  // others hand it their work and wait. Where it stays in one call for so long, it is given up:
  // that and all later calls return DEADLINE_EXCEEDED, which names the group and the call. The
  // thread stays, and the tensors of calls that have not ended must too; the engine leaves its own
  // memory. Leave the process then (MpiSession::Leave): make no other engine, since the thread may
  // still be at a collective call of the same communicator, with which MPI allows no other to be
  // mixed. Costs some 5 us per wait. Equal on all ranks, which create the engine, and free
  // symmetric memory, within the time-out of each other. Needs MPI_THREAD_MULTIPLE.
  bool bounded_waits = false;
  // Of the cache that ranks of a host share, in bytes: large blocks are copied another way where a
  // call has room in it. 0: not known. Not set: what this host says.
  std::optional<int64_t> cache_bytes = std::nullopt;
};

// Collective. INVALID_ARGUMENT where the time-out is not positive, or cache_bytes negative;
// FAILED_PRECONDITION where MPI is not initialised, or this thread may not call it, or
// bounded_waits needs a higher level; UNIMPLEMENTED where this build has no MPI.
absl::StatusOr<std::unique_ptr<Engine>> CreateMpiEngine(const MpiEngineOptions& options = {});

// A rank of a job over MPI, with all that it needs, in the order in which it must begin and end:
// MPI itself, where the program has not initialised it; the control channel, by which ranks learn
// of each other's failures at once; and the engine. Its redistributors must be gone before it.
class MpiJob {
 public:
  // Collective. `options.control`: none, for one of the job's own. Errors as those of
  // MpiSession::Start, MpiBootstrap and CreateMpiEngine.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start(const MpiEngineOptions& options = {});
#ifdef MPI_VERSION
  // The communicator's ranks are the world. REQUIRES: it outlives the job.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Start(MPI_Comm communicator,
                                                       MpiEngineOptions options = {}) {
    options.communicator = static_cast<int>(MPI_Comm_c2f(communicator));
    return Start(options);
  }
#endif
  // Waits until all ranks' jobs end; after an error see Leave. On the thread that has made it.
  ~MpiJob();

  Engine* engine() const { return engine_.get(); }  // never null
  // Null where the options brought a control channel.
  Bootstrap* bootstrap() const { return bootstrap_.get(); }

  // For a rank that has seen an error: MpiSession::Leave. The destructor would wait in MPI_Finalize
  // for ranks that never come.
  [[noreturn]] static void Leave(int exit_code) { MpiSession::Leave(exit_code); }

 private:
  explicit MpiJob(MpiSession session) : session_(std::move(session)) {}

  MpiSession session_;  // destroyed last
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Engine> engine_;
};

// Why this build has no MPI; empty where it has.
std::string MpiAbsence();

}  // namespace meshift

#endif  // MESHIFT_MPI_ENGINE_H_
