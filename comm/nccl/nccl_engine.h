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
// cannot drive several of them. Collectives, kernels, Record and WaitFor wait for nobody, allocate
// no memory of the device and synchronise nothing once the groups and their scratch memory exist
// (Communicator::Reserve, or one call before), and may be captured into a CUDA graph.
//
// The first error of a group ends all groups of the engine, on all ranks. docs/nccl.md has the
// rules: launch order, time-outs, arithmetic, lent communicators, graphs.
#ifndef MESHIFT_COMM_NCCL_NCCL_ENGINE_H_
#define MESHIFT_COMM_NCCL_NCCL_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "comm/control/bootstrap.h"
#include "comm/control/control.h"
#include "comm/engine/engine.h"

namespace meshift {

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

  // How long Wait and Synchronize wait for work, and a call for NCCL to launch it.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // How long Create, Split and the destructor wait for communicators.
  std::chrono::nanoseconds setup_timeout = std::chrono::seconds(120);

  // Thread blocks that one communicator may use: at least, at most; not 0.
  int min_ctas = -1;
  int max_ctas = -1;
  int cga_cluster_size = -1;
  int cta_policy = -1;  // NCCL_CTA_POLICY_...
  int traffic_class = -1;
  std::string net_name = {};
  // Groups share the root's buffers and connections. Then aborting one aborts all of them.
  bool split_share = false;
  // Collectives of different groups may run at once while max_ctas each take no more than this
  // share of the device's multiprocessors; else, and without max_ctas, one after another.
  double cta_share = 0.5;

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
  // The ranks are the communicator's, the device is its device (options.device is not read). Says
  // nothing of their environments: who knows better sets RedistributorOptions::capabilities.
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

#endif  // MESHIFT_COMM_NCCL_NCCL_ENGINE_H_
