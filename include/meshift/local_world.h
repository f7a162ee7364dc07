// LocalWorld: the in-process engine. All ranks of a world run in one process, with real buffers in
// host memory.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = 1024}));
//   for (int r = 0; r < 1024; ++r) { ... world->engine(r)->CreateStream() ... }
//
// A rank has in-order streams, like a GPU; it need not be a thread. Worker threads execute the work
// at the head of each stream once it is ready; a collective is ready once all its members have
// reached it. So one thread may enqueue work on the streams of 1,024 ranks and then wait, or each
// rank may be a thread.
//
// Errors propagate with the work. A stream keeps its first error: later work on it is skipped, its
// later events carry the error to the streams that wait for them, and a collective that it reaches
// ends its group with the error. Other work can go on in a new stream; a group that has ended stays
// ended. Any error of a call ends the group of its communicator: refused arguments, calls of
// members that do not match, an abort, or a member that does not arrive in time. All members get it
// from Synchronize() and Health(). A collective that already has all its members still finishes.
//
// Reductions have the arithmetic of comm/kernels/reduce.h. Calls may be in place: `recv` may be the
// member's own block of `send` (reduce-scatter), and `send` its own block of `recv` (all-gather).
//
// Defaults of RecordOptions (meshift/engine.h) differ here: with more than 16 ranks each records
// fewer calls, since they share a process. The watchdog is off for any number of workers: without
// them only waiting threads do the work, and it would take a pause for a hang. Engine::SetRecord
// changes both.
//
// The world owns its engines. Their streams, buffers and communicators may be destroyed after it,
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

// The order in which a collective combines the contributions of order-dependent reductions (sums,
// averages and products of floats).
enum class ReductionOrder : uint8_t {
  kRanks,        // ascending ranks
  kTopology,     // first inside each domain of LocalWorldOptions::domain_size ranks, rounded to the
                 // wire dtype, then across domains
  kAdversarial,  // ascending ranks, then changed by a few units in the last place, differently for
                 // each group of the partition: only values from one group have equal bits
};

struct LocalWorldOptions {
  int64_t num_ranks = 1;
  int num_workers = 2;  // 0: work runs inside waits, on the caller's thread
  ReductionOrder reduction_order = ReductionOrder::kRanks;
  int64_t domain_size = 8;  // kTopology: ranks r with equal r / domain_size share a domain
  // If no work in the world advances for this time while a thread waits for a stream, the
  // collective that the stream waits for ends with DEADLINE_EXCEEDED, which names the missing
  // members. Engine::SetTimeouts of any engine sets it for all ranks. The setup time-out is not
  // used, because nothing is connected.
  std::chrono::nanoseconds timeout = Timeouts{}.running;
  // The channels that engine(r)->control() returns, by rank, for instance from
  // Bootstrap::InProcess(); empty: none. They must outlive the world. With them redistributors wait
  // for their peers, so each rank must be a thread.
  std::vector<ControlChannel*> control = {};
};

// Allocated bytes of one rank, now and at the peak.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes = 0;
};

class LocalWorld {
 public:
  // INVALID_ARGUMENT: num_ranks is not in 1..2^20 or num_workers not in 0..256, the domain size or
  // the time-out is not positive, or `control` has neither 0 nor num_ranks channels.
  // FAILED_PRECONDITION: the library was compiled with options that change its arithmetic.
  static absl::StatusOr<std::unique_ptr<LocalWorld>> Create(const LocalWorldOptions& options);
  virtual ~LocalWorld() = default;

  virtual Engine* engine(int64_t rank) = 0;  // REQUIRES: 0 <= rank < num_ranks
  virtual MemoryStats memory(int64_t rank) const = 0;
  // Takes effect for collectives that are enqueued later. A `domain_size` below 1 counts as 1.
  virtual void SetReductionOrder(ReductionOrder order, int64_t domain_size) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_LOCAL_WORLD_H_
