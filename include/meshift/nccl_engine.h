// The NCCL engine: programs run on GPUs, each rank a process (or a thread) with a device of its
// own. libnccl and the CUDA driver are loaded when an engine is made.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Bootstrap::FromTorchrun());
//   MESHIFT_ASSIGN_OR_RETURN(auto engine, NcclEngine::Create(bootstrap.get()));
//   MESHIFT_ASSIGN_OR_RETURN(auto redistribute, Redistributor::Create(mesh, engine.get()));
//
// Memory is the device's: addresses that the host cannot read. CopyIn and CopyOut fill and read it.
//
// All ranks of the world make the same calls in one order: Split, SkipSplit and collectives alike,
// over all communicators. Create, Split and the destructor wait for the other ranks, so a thread
// cannot drive several of them. Communicators are kept until the engine ends: a group that was
// split once is not made again. Collectives, kernels, Record and WaitFor wait for nobody, allocate
// no memory of the device and synchronise nothing once the groups and their scratch memory exist
// (Communicator::Reserve, or one call before), and may be captured into a CUDA graph. The first
// messages between two members wait, in NCCL, until both have come; any call waits while the
// device's queue is full.
//
// A watchdog notices a call that hangs, also where nobody waits for it through the engine. The
// first error of a group ends all groups of the engine, on all ranks. docs/nccl.md has the rules:
// launch order, time-outs, arithmetic, lent communicators, graphs.
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

// The NCCL engine for programs that are built with and without CUDA: the same interface, which says
// what is missing. No CUDA or NCCL header.
//
//   if (const std::string absence = NcclAbsence(); !absence.empty()) ...
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, StartNcclEngine(bootstrap));

// Why this build has no NCCL engine; empty: it has. (Whether the machine has a GPU shows when one
// is started.)
std::string NcclAbsence();
// NcclEngine::Create with these time-outs; UNIMPLEMENTED where this build has none.
absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap* bootstrap,
                                                        const Timeouts& timeouts = {});

class Environment;  // comm/nccl/environment.h

// Equal on all ranks, but for device, libraries and environment. Of ncclConfig_t, what is not set
// (-1, empty) is left to NCCL.
struct NcclOptions {
  // The CUDA device; -1: the rank's number on its host, or the only device that the process sees,
  // as where a launcher gives each rank one of its own.
  int device = -1;
  std::string nccl_library = {};  // path; empty: $MESHIFT_NCCL_LIBRARY, else libnccl.so.2
  std::string cuda_library = {};  // path; empty: $MESHIFT_CUDA_LIBRARY, else libcuda.so.1

  // Whose variables are judged; null: the process's, and NCCL's files. NCCL itself reads those.
  const Environment* environment = nullptr;

  // How long a collective may take from when it could run: all that was on its stream before is
  // done, and the collective that it waits for (max_in_flight). Engine::SetTimeouts sets both.
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  // The first call of each kind on a communicator, in which NCCL may connect its members; also how
  // long Create, Split and the destructor wait for communicators.
  std::chrono::nanoseconds setup_timeout = Timeouts{}.setup;
  // Every call is one that NCCL makes on a thread which it starts for it, and that this rank asks
  // for its end: 15 to 40 us of the host for each, and no call blocks. Otherwise calls are made by
  // their callers, in 1 to 2 us, and the watchdog ends those that block for too long.
  bool bounded_calls = false;

  // Thread blocks that one communicator may use: at least, at most; not 0. At most -1: a quarter of
  // the device's multiprocessors, rounded down to a power of two, and 32 of larger ones.
  int min_ctas = -1;
  int max_ctas = -1;
  int cga_cluster_size = -1;
  int cta_policy = -1;  // NCCL_CTA_POLICY_...
  int traffic_class = -1;
  std::string net_name = {};
  // Groups share the root's buffers and connections. Then aborting one aborts all of them.
  bool split_share = false;
  // Collectives of different groups may run at once, as many as fit into this share of the device's
  // multiprocessors with max_ctas each (more, where NCCL's variables say so): 3 of 32 on 132.
  double cta_share = 0.75;
  // No more than so many of them; 1: one after another; 0: as many as fit, 16 at most.
  int max_in_flight = 0;

  // Event::ReachedNs tells times; without, events are a little cheaper and it is always -1.
  bool timed_events = true;
};

// What a framework lends. It is never destroyed, aborted or synchronised: after a failure calls on
// it are refused, and its owner ends it.
struct NcclLent {
  void* communicator = nullptr;  // ncclComm_t; must outlive the engine
  // CUstream; where given, all work of the engine is put on it. (The default stream is
  // CU_STREAM_LEGACY, not null.)
  void* stream = nullptr;
  // Whether groups may be split from the communicator. If not, only meshes of all its ranks whose
  // plans need no other group can be used. Not of one that was made with splitShare = 1: a failure
  // aborts the groups, and with them what they share.
  bool may_split = false;
  ControlChannel* control = nullptr;  // of its ranks, if there is one; must outlive the engine
  // The communicator's error, as its owner knows it: asked every so often, from any thread. The
  // engine asks the communicator itself only right after a call of its own that NCCL goes on with,
  // and its owner must not ask meanwhile.
  std::function<absl::Status()> error = {};
  // Where the engine gets its memory of the device, instead of a pool of its own; both or none.
  // Null where there is no more. Aligned to 256 bytes. Given back once the device is through with
  // it. From any thread, the device's context being current; until the engine has ended.
  std::function<void*(int64_t bytes)> allocate = {};
  std::function<void(void* memory)> free = {};
  // Any function of the NCCL that has made the communicator, such as &ncclAllReduce: by it a second
  // copy in the process is noticed.
  const void* function = nullptr;
};

class NcclEngine : public Engine {
 public:
  // Collective over the bootstrap's ranks; it must outlive the engine. UNAVAILABLE,
  // FAILED_PRECONDITION: a library, a function of it, or a device is missing here; or on another
  // rank, which is named. The ranks also compare what `meshift env --check --profile
  // batch-invariant` says of their environments: where all pass, Capabilities() has kAllReduce, and
  // plans under kBatchInvariant use NCCL's tree. Leave those variables alone afterwards.
  static absl::StatusOr<std::unique_ptr<NcclEngine>> Create(Bootstrap* bootstrap,
                                                            const NcclOptions& options = {});
  // The ranks are the communicator's, the device is its device (options.device is not read).
  // Collective over them where they may_split; then no operation of the communicator may be
  // unfinished. FAILED_PRECONDITION where the process has another
  // copy of NCCL, with both files. Says nothing of the ranks' environments: who knows better sets
  // RedistributorExpertOptions::capabilities.
  static absl::StatusOr<std::unique_ptr<NcclEngine>> FromLent(const NcclLent& lent,
                                                              const NcclOptions& options = {});

  // A CUstream of the caller as a Stream, to wait on, to be waited for, or to put work on. It must
  // outlive the result, and is neither waited for nor destroyed with it.
  virtual std::unique_ptr<Stream> WrapStream(void* stream) = 0;
  // The CUstream of a stream of this engine.
  virtual absl::StatusOr<void*> HandleOf(Stream& stream) = 0;

  virtual int device() const = 0;
  virtual std::string nccl_version() const = 0;  // "2.28.9"
};

}  // namespace meshift

#endif  // MESHIFT_NCCL_ENGINE_H_
