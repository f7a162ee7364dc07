// The in-process engine: all ranks of a world in one process, with real buffers.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = 1024}));
//   for (int r = 0; r < 1024; ++r) { ... world->engine(r)->CreateStream() ... }
//
// A rank has in-order streams, as a GPU has; it need not be a thread. A few workers execute
// whatever is at the head of a stream and ready; a collective is ready once all its members have
// reached it. So one thread may put work on the streams of 1,024 ranks and then wait, or one thread
// per rank may.
//
// Errors travel with the work. A stream keeps its first error for good (make a new one): what is
// behind it on the stream is skipped, events behind it carry it to the streams that wait for them,
// and a collective that it reaches ends its group with it. Any error of a call ends the group of
// its communicator: arguments that are refused, calls of members that do not match, an abort, a
// member that does not arrive in time. All members learn it from Synchronize() and Health(); what
// already has all its members still finishes.
//
// Reductions have the arithmetic of comm/kernels/reduce.h. In place also works where `recv` is the
// member's own block of `send` (reduce-scatter) or `send` its own block of `recv` (all-gather).
//
// What redistributors remember of their calls (comm/engine/engine_record.h) is less here, where
// many ranks share a process, and nobody watches them, since with no workers only those who wait do
// the work: Engine::SetRecord changes that.
//
// Engines belong to the world and must not outlive it; what they made may be destroyed after it,
// but not used. Safe for concurrent use.
#ifndef MESHIFT_LOCAL_WORLD_H_
#define MESHIFT_LOCAL_WORLD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// In which order a collective combines contributions of order-dependent reductions (sums, averages
// and products of floats).
enum class ReductionOrder : uint8_t {
  kRanks,        // ascending ranks
  kTopology,     // inside each domain of LocalWorldOptions::domain_size first, each domain's result
                 // rounded to the wire dtype, then across domains
  kAdversarial,  // ascending ranks, then moved by a few units in the last place, a distance of its
                 // own for each group of the partition: only values from one group have equal bits
};

struct LocalWorldOptions {
  int64_t num_ranks = 1;
  int num_workers = 2;  // 0: work runs inside Synchronize, on the caller's thread
  ReductionOrder reduction_order = ReductionOrder::kRanks;
  int64_t domain_size = 8;  // kTopology: ranks r with equal r / domain_size share a domain
  // Where nothing in the world moves for so long while a thread waits for a stream, the collective
  // that this stream waits for ends with DEADLINE_EXCEEDED, which names the missing members.
  // Engine::SetTimeouts of one rank's engine sets it for all; the phase of setup has none of its
  // own here, where nothing is connected.
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  // What engine(r)->control() returns: by rank, of Bootstrap::InProcess() for instance; none where
  // empty. They outlive the world. Redistributors then wait for their peers: ranks must be threads.
  std::vector<ControlChannel*> control = {};
};

// Bytes that were ever allocated and not yet freed, now and at most, for one rank.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes = 0;
};

class LocalWorld {
 public:
  static absl::StatusOr<std::unique_ptr<LocalWorld>> Create(const LocalWorldOptions& options);
  virtual ~LocalWorld() = default;

  virtual Engine* engine(int64_t rank) = 0;  // REQUIRES: 0 <= rank < num_ranks
  virtual MemoryStats memory(int64_t rank) const = 0;
  // Takes effect for collectives that are put on streams afterwards. A `domain_size` below 1 counts
  // as 1.
  virtual void SetReductionOrder(ReductionOrder order, int64_t domain_size) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_LOCAL_WORLD_H_
