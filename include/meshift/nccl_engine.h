// The NCCL engine: programs run on GPUs; each rank is a process (or a thread) with its own device.
// libnccl and the CUDA driver are loaded when an engine is made.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Bootstrap::FromTorchrun());
//   MESHIFT_ASSIGN_OR_RETURN(auto engine, NcclEngine::Create(bootstrap.get()));
//   MESHIFT_ASSIGN_OR_RETURN(auto redistribute, Redistributor::Create(mesh, engine.get()));
//
// Memory is device memory, which the host cannot read. CopyIn and CopyOut write and read it.
//
// All calls (Split, SplitNoColor and collectives, over all communicators) have one order, and each
// rank makes its own in that order. Only members call a communicator's collectives. Create, Split
// and the destructor wait for the other ranks, so one thread cannot drive several ranks.
// Communicators are kept until the engine is destroyed; a group is split only once.
//
// Collectives, kernels, Record and WaitFor do not wait for other ranks, allocate no device memory
// and do not synchronise, once the groups and their scratch memory exist (Communicator::Reserve, or
// one earlier call). Then they may be captured into a CUDA graph. Exceptions: NCCL may connect
// members, wait for them and allocate in the first call of a kind and size class (up to 64 KiB, or
// more) on a communicator, and in the first messages between two members; and any call waits while
// the device's queue is full.
//
// A watchdog detects a hanging call even if no thread waits for it. The first error of a group ends
// all groups of the engine, and over the control channel those of the other ranks. docs/nccl.md has
// the rules: launch order, time-outs, arithmetic, lent communicators, graphs.
#ifndef MESHIFT_NCCL_ENGINE_H_
#define MESHIFT_NCCL_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// NcclAbsence and StartNcclEngine exist in builds with and without CUDA. This header needs no CUDA
// or NCCL header.
//
//   if (const std::string absence = NcclAbsence(); !absence.empty()) ...
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, StartNcclEngine(bootstrap));

// The reason why this build has no NCCL engine; empty if it has. Does not check for a GPU.
std::string NcclAbsence();
// NcclEngine::Create with these time-outs; UNIMPLEMENTED: this build has no NCCL engine.
absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap* bootstrap,
                                                        const Timeouts& timeouts = {});

class Environment;  // comm/nccl/environment.h

// Equal on all ranks, except for device, libraries and environment. Fields of ncclConfig_t that are
// not set (-1, empty) keep NCCL's default.
struct NcclOptions {
  // The CUDA device; -1: the rank's number on its host, or device 0 if the process sees only one.
  int device = -1;
  std::string nccl_library = {};  // path; empty: $MESHIFT_NCCL_LIBRARY, else libnccl.so.2
  std::string cuda_library = {};  // path; empty: $MESHIFT_CUDA_LIBRARY, else libcuda.so.1

  // The NCCL variables that Create checks; null: those of the process and of NCCL's files, which
  // NCCL itself reads.
  const Environment* environment = nullptr;

  // How long a collective may take. The time starts when all earlier work on its stream is done,
  // and also the collective that max_in_flight makes it wait for. Engine::SetTimeouts sets both
  // time-outs.
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  // The time-out of the first call of each kind on a communicator, in which NCCL may connect its
  // members, and of Create, Split and the destructor.
  std::chrono::nanoseconds setup_timeout = Timeouts{}.setup;
  // Makes communicators non-blocking: NCCL runs each call on a thread that it starts, and this rank
  // polls for its end. No call blocks; each takes 15 to 40 us of the host. Otherwise the caller
  // makes the call itself in 1 to 2 us, and the watchdog ends calls that block too long.
  bool bounded_calls = false;

  // The fewest and the most thread blocks that one communicator may use; not 0. max_ctas -1: a
  // quarter of the device's multiprocessors, rounded down to a power of two, at most 32.
  int min_ctas = -1;
  int max_ctas = -1;
  int cga_cluster_size = -1;
  int cta_policy = -1;  // NCCL_CTA_POLICY_...
  int traffic_class = -1;
  std::string net_name = {};
  // Groups share the root's buffers and connections. Then aborting one group aborts all.
  bool split_share = false;
  // Collectives of different groups may run concurrently, as many as fit into this share of the
  // device's multiprocessors. Each counts max_ctas of them, or more if NCCL's variables say so:
  // with 132 multiprocessors and max_ctas 32, 3 fit.
  double cta_share = 0.75;
  // The most collectives that run concurrently. 1: one after another; 0: as many as fit, at most
  // 16.
  int max_in_flight = 0;

  // Whether Event::ReachedNs measures times. Without, it is always -1, and events are slightly
  // cheaper.
  bool timed_events = true;
};

// A communicator and other objects that a framework lends. The engine never destroys, aborts or
// synchronises them: after a failure it refuses calls, and the owner must end the communicator.
struct NcclLent {
  void* communicator = nullptr;  // ncclComm_t; must outlive the engine
  // CUstream for all work of the engine; null: the engine's own streams. (The default stream is
  // CU_STREAM_LEGACY, not null.)
  void* stream = nullptr;
  // Whether groups may be split from the communicator. If not, only meshes of all its ranks whose
  // plans need no other group can be used. Must be false for a communicator made with splitShare =
  // 1: a failure aborts the groups, and with them the shared resources.
  bool may_split = false;
  ControlChannel* control = nullptr;  // of its ranks, or null; must outlive the engine
  // Returns the communicator's error as known to its owner; called periodically, from any thread.
  // The engine itself queries the communicator only while a call of its own is in progress; the
  // owner must not query it at the same time.
  std::function<absl::Status()> error = {};
  // Allocator of device memory, instead of the engine's own pool; set both or neither. Returns null
  // if out of memory; aligned to 256 bytes. Memory is freed after the device has finished with it.
  // Called from any thread with the device's context current, until the engine is destroyed.
  std::function<void*(int64_t bytes)> allocate = {};
  std::function<void(void* memory)> free = {};
  // Any function of the NCCL that made the communicator, such as &ncclAllReduce. Used to detect a
  // second copy of NCCL in the process.
  const void* function = nullptr;
};

// Safe for concurrent use, as an Engine; threads must keep the common order of calls.
class NcclEngine : public Engine {
 public:
  // Collective over the bootstrap's ranks; the bootstrap must outlive the engine. INVALID_ARGUMENT:
  // an invalid option. UNAVAILABLE, FAILED_PRECONDITION: a library, one of its functions, or a
  // device is missing here or on another rank, which is named; or NCCL_COMM_BLOCKING is 1. The
  // ranks also compare the results of `meshift env --check --profile batch-invariant` for their
  // environments. If all pass, Capabilities() has kAllReduce, and plans under kBatchInvariant use
  // NCCL's tree. Do not change those variables afterwards.
  static absl::StatusOr<std::unique_ptr<NcclEngine>> Create(Bootstrap* bootstrap,
                                                            const NcclOptions& options = {});
  // The ranks and the device are those of the communicator (options.device is ignored). Collective
  // if may_split; then no operation of the communicator may be unfinished. INVALID_ARGUMENT: a null
  // communicator, only one of allocate and free, an invalid option, or split_share with may_split.
  // FAILED_PRECONDITION: the process has another copy of NCCL (the message names both files), or
  // may_split with NCCL_COMM_SPLIT_SHARE_RESOURCES=1. Libraries and the device are checked on this
  // rank only, with the errors of Create. The ranks' environments are not checked: set
  // RedistributorExpertOptions::capabilities if they are known.
  static absl::StatusOr<std::unique_ptr<NcclEngine>> FromLent(const NcclLent& lent,
                                                              const NcclOptions& options = {});

  // Wraps a CUstream of the caller as a Stream. It must outlive the result, whose destructor
  // neither waits for it nor destroys it.
  virtual std::unique_ptr<Stream> WrapStream(void* stream) = 0;
  // The CUstream of a stream of this engine.
  virtual absl::StatusOr<void*> HandleOf(Stream& stream) = 0;

  virtual int device() const = 0;
  virtual std::string nccl_version() const = 0;  // "2.28.9"
};

}  // namespace meshift

#endif  // MESHIFT_NCCL_ENGINE_H_
