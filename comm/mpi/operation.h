// Runs the collectives of the MPI engine, as state machines over non-blocking point-to-point
// messages. A step returns when it would have to wait, unless MPI itself blocks. So a collective
// can time out or be cancelled between any two steps.
//
//   operation.call() = call;
//   operation.Start(&group, &pool, cache_bytes);
//   while (operation.Step() == Operation::State::kPending) { ... }
//   return operation.status();
//
// The caller checks the arguments, and steps the operations of a group in the order of their
// numbers (group.h). status() is FAILED_PRECONDITION if a peer's message has another size or its
// symmetric call other arguments, RESOURCE_EXHAUSTED without memory for contributions, INTERNAL if
// MPI fails. Calls that differ otherwise are not noticed, or wait for messages that no peer sends.
// Time-outs are the caller's. Internal to comm/mpi.
//
// Calls on symmetric memory send no messages. Members synchronise by flags in it: once when their
// blocks are ready, and once when they have read the peers' blocks.
//
// MPI's own reductions are not used. On symmetric memory each member reads the contributions to its
// block in place; otherwise it receives them. It reduces them in ascending order of ranks with
// comm/kernels/reduce.h (which defines rounding, NaN, -0 and avg). An all-reduce then sends the
// results to all members, and a large reduction to one member to that one. If the tensor is small,
// every member sends it to all others, or to that one, and those compute the result. In every case
// the bits are those of the local engine (ReductionOrder::kRanks), equal on all members. Reductions
// that are neither small nor on symmetric memory run in segments of at most 512 KiB of each block
// (docs/benchmarks.md compares them with Open MPI's).
#ifndef MESHIFT_COMM_MPI_OPERATION_H_
#define MESHIFT_COMM_MPI_OPERATION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/engine/collective_kind.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/group.h"
#include "comm/mpi/requests.h"
#include "comm/mpi/scratch.h"
#include "comm/mpi/symmetric.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

// The arguments of one collective on one member. Buffers and `reduction` are as in
// meshift/communicator.h.
struct MpiCall {
  using Kind = CollectiveKind;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  int root = 0;  // kBroadcast: a member number
  const char* send = nullptr;
  char* recv = nullptr;
  int64_t count = 0;  // elements, as in the communicator's call; with `begins`: of all blocks
  // For kReduceScatter and kAllGather with given block sizes: the begin of each member's block and
  // the end of the last, in elements. Else empty.
  std::vector<int64_t> begins;
  Reduction reduction;
  std::vector<PeerMessage> sends;  // kSendRecv
  std::vector<PeerMessage> recvs;
  // For a symmetric all-gather or reduce-scatter, which has `begins` too: `send` is at `offset`
  // bytes in buffer number `buffer` of the window. `compared_arguments` has the arguments that
  // members compare (SymmetricFlags::call). `number` is the call's number in the group, from 1 on.
  std::shared_ptr<const SymmetricWindow> window;
  int64_t buffer = 0;
  int64_t offset = 0;
  std::array<int64_t, 10> compared_arguments = {};
  int64_t number = 0;
  // Sets `count` and `begins`: one block per member.
  void SetBlocks(absl::Span<const int64_t> counts);
  // The bytes that one of `members` members sends and receives; approximate. 0 for a symmetric
  // call.
  int64_t MessageBytes(int members) const;
  std::string ToString() const;  // "all_reduce of 8 f32"
};

// One collective at a time; reusable, and keeps its memory. Not thread-safe.
class Operation {
 public:
  enum class State : uint8_t { kPending, kDone, kFailed };

  // The caller fills this in before Start.
  MpiCall& call() { return call_; }
  const MpiCall& call() const { return call_; }
  // `group` must live until the operation has ended, `pool` until it is destroyed. `cache_bytes` is
  // the size of the cache that the ranks of a host share; 0 if unknown.
  void Start(MpiGroup* group, ScratchPool* pool, int64_t cache_bytes);
  bool started() const { return group_ != nullptr; }
  // Whether it awaits messages, other than those of segments. REQUIRES: started().
  bool AwaitsMessages() const { return status_.ok() && requests_.receives(); }
  // To be called before this member copies `copied_bytes`: receives the messages that have arrived,
  // so that their senders need not wait for the copy. Does nothing before a large copy, where
  // keeping the caches warm saves more time. The next Step returns its error. REQUIRES: started().
  void TakeArrived(int64_t copied_bytes);
  // Advances as far as possible without waiting. Leaves each copy or reduction of more than
  // `max_work` bytes to a call whose `max_work` is large enough, except in a small all-reduce.
  State Step(int64_t max_work = INT64_MAX);
  const absl::Status& status() const { return status_; }  // the error after kFailed
  // A progress counter. It grows as a broadcast, a barrier, a symmetric call or a reduction in
  // segments advances; in other calls it stays 0.
  int64_t progress_count() const { return progress_count_; }
  // Ends the operation and cancels its receives that have not begun. Other receives, and sends, may
  // still access buffers.
  void Cancel();
  // The ranks whose messages or flags are missing: "rank 2", "ranks 2, 5"; "" if there are none.
  // REQUIRES: started().
  std::string MissingText();

 private:
  static constexpr int kSlots = 2;
  // One segment of a large reduction in flight: receives contributions, then results.
  struct Slot {
    Requests in;
    Requests out;
    char* scratch = nullptr;
  };

  absl::Status Begin();
  absl::Status Advance(int64_t max_work, bool* done);
  // The member that gets all blocks of a reduce-scatter; -1 if there is none.
  int RootOf(int64_t total) const;
  void TakeScratch(int64_t bytes);  // sets contributions_; null without memory
  absl::Status BeginReduction(int64_t total);
  void CopyBytes(const char* from, char* to, int64_t bytes) const;
  bool CopiesOwnFirst() const;  // copy the own block before posting any message
  absl::Status PostBlocks();
  absl::Status AdvanceAtOnce(bool* done);
  absl::Status AdvanceBlocks(int64_t max_work, bool* done);
  absl::Status AdvanceSegments(int64_t max_work, bool* done);
  // Whether the reduction has a root, and it is another member.
  bool HasOtherRoot() const;
  // Where this member computes its part of `segment`, and where it receives the contribution of the
  // member `distance` below it.
  char* ResultOf(int64_t segment);
  char* ContributionTo(int64_t segment, int distance);
  absl::Status PostContributions(int64_t segment);
  absl::Status ReduceSegment(int64_t segment);
  absl::Status AdvanceBroadcast(bool* done);
  absl::Status AdvanceBarrier(bool* done);
  absl::Status AdvanceSymmetric(int64_t max_work, bool* done);
  absl::Status CompareArguments() const;
  void TakeBlocks();
  bool IsSymmetric() const { return call_.window != nullptr; }
  // [first, first + count), in elements or bytes.
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };
  // The elements of the reduced tensor that are segment `segment` of the block of `member`.
  Range RangeOf(int member, int64_t segment) const;
  int64_t BlockBegin(int member) const;  // in elements of the reduced tensor
  // The block of `member` in a kAllGather or kAllToAll, in bytes.
  Range BlockBytes(int member) const;
  // The member `distance` above this one (`sends`) or below it, modulo the group's size.
  int Peer(int distance, bool sends) const;
  void Finish();

  MpiCall call_;
  MpiGroup* group_ = nullptr;
  ScratchPool* pool_ = nullptr;
  int64_t cache_bytes_ = 0;
  Scratch scratch_;  // of the pool; for the contributions, if they are large
  Scratch small_;    // kept; for small contributions
  char* contributions_ = nullptr;
  absl::Status status_;
  int64_t progress_count_ = 0;

  Requests requests_;
  std::array<Slot, kSlots> slots_;
  ReduceSpec spec_;
  std::vector<const void*> inputs_;
  bool at_once_ = false;      // a reduction without segments
  bool copied_own_ = false;   // all-gather, all-to-all: this member's own block is copied
  int root_ = -1;             // of a small or large reduction: RootOf()
  int64_t element_ = 0;       // bytes
  int64_t total_ = 0;         // elements of the reduced tensor
  int64_t segment_ = 0;       // elements of a segment
  int64_t num_segments_ = 0;  // of the largest block
  int64_t posted_ = 0;        // segments whose messages are posted
  int64_t reduced_ = 0;
  int64_t ended_ = 0;
  // Barrier: the round. Broadcast: 1 once the messages to the children are posted. Symmetric call:
  // with n members, r < n while member r has yet to arrive, n before this member's own work, and
  // n + 1 + r while member r has yet to finish.
  int round_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_OPERATION_H_
