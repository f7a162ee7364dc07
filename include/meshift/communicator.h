// Abstract interface of collectives over one group of ranks. An Engine makes the instances.
//
//   communicator->AllReduce(in, out, count, DType::kBF16, {.op = ReduceOp::kSum}, *stream);
//   engine->Synchronize(*stream);
//
// A call with a stream enqueues work on it and returns without waiting for other ranks;
// meshift/nccl_engine.h and meshift/mpi_engine.h have the exceptions. All members of the group make
// the same calls in the same order. Buffers must not be freed or changed until the work is done.
// `count`s are in elements. Members are numbered 0..size()-1 in ascending order of ranks. A
// communicator is used by one thread at a time; different communicators may be used concurrently.
//
// INVALID_ARGUMENT: a negative count, a null buffer of elements, `counts` without one entry per
// member, a peer that is not another member, a root that is not a member, an op that the dtype does
// not have, a divisor below 1, or a stream of another engine. Local and MPI engines may then end
// the group. Errors of the work itself come from Engine::Synchronize. After Abort() every call
// fails, with ABORTED or an earlier error.
#ifndef MESHIFT_COMMUNICATOR_H_
#define MESHIFT_COMMUNICATOR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class Stream;          // meshift/engine.h
struct SymmetricCall;  // meshift/engine.h

// How values are combined. avg: the sum is divided once by `divisor`, before rounding. `block` is
// for Engine::ReduceInOrder: if it is k > 0, inputs b*k .. b*k+k-1 are combined first, then these
// results in ascending order of b; the result is rounded once, at the end. A communicator's calls
// need 0: they do not refuse other values, and some engines ignore them.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  int64_t divisor = 1;
  int64_t block = 0;
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

// One message of a grouped send/recv; `peer` is a member number.
struct PeerMessage {
  int peer = 0;
  void* data = nullptr;
  int64_t count = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;  // this rank's member number
  virtual int size() const = 0;

  // recv[i] = the reduction of all members' send[i]; equal bits on all members. In place if
  // recv == send.
  virtual absl::Status AllReduce(const void* send, void* recv, int64_t count, DType dtype,
                                 const Reduction& reduction, Stream& stream) = 0;
  // `send` holds size() blocks of `recv_count` elements; member i gets the reduction of all blocks
  // i. In place if `recv` is this member's own block of `send`.
  virtual absl::Status ReduceScatter(const void* send, void* recv, int64_t recv_count, DType dtype,
                                     const Reduction& reduction, Stream& stream) = 0;
  // Block i of `recv` (size() blocks of `send_count` elements) is member i's `send`. In place if
  // `send` is this member's own block of `recv`.
  virtual absl::Status AllGather(const void* send, void* recv, int64_t send_count, DType dtype,
                                 Stream& stream) = 0;
  // The same with contiguous blocks of any sizes. Block i has counts[i] >= 0 elements; `counts` has
  // size() entries and is equal on all members.
  virtual absl::Status ReduceScatterV(const void* send, void* recv,
                                      absl::Span<const int64_t> counts, DType dtype,
                                      const Reduction& reduction, Stream& stream) = 0;
  virtual absl::Status AllGatherV(const void* send, void* recv, absl::Span<const int64_t> counts,
                                  DType dtype, Stream& stream) = 0;
  // Block i of `recv` is block rank() of member i's `send`; blocks of `count` elements.
  virtual absl::Status AllToAll(const void* send, void* recv, int64_t count, DType dtype,
                                Stream& stream) = 0;
  // All sends and receives as one operation, free of deadlock. At most one message per pair and
  // direction, none to itself; the peer's receive has the same count. A member without messages
  // makes the call too.
  virtual absl::Status SendRecv(absl::Span<const PeerMessage> sends,
                                absl::Span<const PeerMessage> recvs, DType dtype,
                                Stream& stream) = 0;
  // Copies `data` of member number `root` to all members.
  virtual absl::Status Broadcast(void* data, int64_t count, DType dtype, int root,
                                 Stream& stream) = 0;
  // The work is done when all members have reached it.
  virtual absl::Status Barrier(Stream& stream) = 0;

  enum class ReduceCall : uint8_t { kAllReduce, kReduceScatter };
  // Allocates the scratch memory of a call with these arguments, so that the call itself allocates
  // nothing. Optional. For ReduceScatterV, `count` is this member's. Does not wait.
  virtual absl::Status Reserve(ReduceCall call, int64_t count, DType dtype,
                               const Reduction& reduction) {
    static_cast<void>(call), static_cast<void>(count), static_cast<void>(dtype);
    static_cast<void>(reduction);
    return absl::OkStatus();
  }

  // Whether the engine has this call on symmetric memory (meshift/engine.h), and whether it gives
  // the bits of AllGather and ReduceScatter: order-dependent reductions may differ under
  // kOtherBits. The answer depends only on values that are equal on all members.
  enum class SymmetricSupport : uint8_t { kNone, kOtherBits, kSameBits };
  virtual SymmetricSupport SupportOf(const SymmetricCall& call) const {
    static_cast<void>(call);
    return SymmetricSupport::kNone;
  }
  // Enqueues the call on `stream`. The work is done when no member reads this rank's memory any
  // more. INVALID_ARGUMENT: CheckSymmetricCall refuses it, or a buffer is not one of this group.
  // UNIMPLEMENTED: SupportOf is kNone. FAILED_PRECONDITION: members differ in the call, if the
  // engine can detect that.
  virtual absl::Status CallSymmetric(const SymmetricCall& call, Stream& stream) {
    static_cast<void>(call), static_cast<void>(stream);
    return absl::UnimplementedError("this engine has no calls on symmetric memory");
  }

  // Ends all work of the group with ABORTED: on all members (local), on this member (MPI), or of
  // all groups of the engine (NCCL). May be called repeatedly and from any thread.
  virtual void Abort() = 0;
  // OK, or the first error of this group. Any thread.
  virtual absl::Status Health() const = 0;
  virtual std::string ToString() const = 0;

 protected:
  Communicator() = default;
};

// Counters of a redistributor's communicators on this rank.
struct GroupCacheStats {
  int64_t created = 0;  // without the root
  int64_t reused = 0;   // lookups that found one, also the root
  int64_t size = 0;     // communicators in the cache now, without the root
};

}  // namespace meshift

#endif  // MESHIFT_COMMUNICATOR_H_
