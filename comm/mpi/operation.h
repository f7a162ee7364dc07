// The collectives, made of messages that never block: each is a small machine that goes on whenever
// messages have arrived, so that it can be left, timed out and ended at any point.
//
//   operation.Start(call, &group, &pool);
//   while (operation.Step() == Operation::State::kPending) { ... }
//   return operation.status();
//
// Calls on symmetric memory send nothing: members meet by flags in it, once when their blocks are
// ready and once when they have taken what they need from the others' blocks themselves.
//
// Reductions are not MPI's: every member gets its block of all members' contributions, reduces them
// in ascending order of ranks by comm/kernels/reduce.h (16- and 8-bit floats in f32, rounded once;
// NaN, -0 and avg as that says), and an all-reduce then spreads the blocks. So an element is
// computed by one member and copied: one all-reduce leaves equal bits on all members, and they are
// those of the local engine. Large ones go in segments that stay in the cache, which also is what
// makes them faster than Open MPI's (docs/benchmarks.md). Small all-reduces send everything to
// everybody, and all members compute the same.
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

// What a member asks for. Buffers as in meshift/communicator.h.
struct MpiCall {
  using Kind = CollectiveKind;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  int root = 0;  // kBroadcast
  const char* send = nullptr;
  char* recv = nullptr;
  int64_t count = 0;  // as the communicator's call; with `begins`: of all blocks
  // Of blocks of any sizes (kReduceScatter, kAllGather): where each begins and the last one ends,
  // in elements. Else empty.
  std::vector<int64_t> begins;
  Reduction reduction;
  std::vector<PeerMessage> sends;  // kSendRecv
  std::vector<PeerMessage> recvs;
  // Of a symmetric all-gather or reduce-scatter, with `begins`: `send` is buffer number `buffer` of
  // the window, `offset` bytes behind its beginning; what members compare; the call's number in the
  // group, from 1 on.
  std::shared_ptr<const SymmetricWindow> window;
  int64_t buffer = 0;
  int64_t offset = 0;
  std::array<int64_t, 10> mark = {};
  int64_t number = 0;
  // Sets `count` and `begins`: one block per member.
  void SetBlocks(absl::Span<const int64_t> counts);
  // What a member of so many sends and receives, roughly.
  int64_t MessageBytes(int members) const;
  std::string ToString() const;  // "all_reduce of 8 f32"
};

// For one thread at a time. Reusable; keeps its memory.
class Operation {
 public:
  enum class State : uint8_t { kPending, kDone, kFailed };

  // To be filled in before Start.
  MpiCall& call() { return call_; }
  const MpiCall& call() const { return call_; }
  // `group` and `pool` must outlive the operation. `cache_bytes`: of the cache that ranks of a host
  // share; 0: not known.
  void Start(MpiGroup* group, ScratchPool* pool, int64_t cache_bytes);
  bool started() const { return group_ != nullptr; }
  // Whether it is nothing but messages that it waits for. REQUIRES: started().
  bool IsOnItsWay() const { return status_.ok() && !requests_.empty(); }
  // Before this member copies `copied_bytes`: takes what peers have sent so far, which they wait
  // for, so that it waits for none of them behind the copy. Not where that is large: what lies in
  // the caches counts for more then. A failure is the next Step's. REQUIRES: started().
  void TakeArrived(int64_t copied_bytes);
  // Goes on as far as it can without copying or reducing pieces of more than `max_work` bytes.
  State Step(int64_t max_work = INT64_MAX);
  const absl::Status& status() const { return status_; }  // of kFailed
  // Grows whenever a step got on.
  int64_t moves() const { return moves_; }
  // Ends it: nothing is received any more. What has begun may still touch buffers.
  void Cancel();
  // "rank 2", "ranks 2 and 5": whose messages are missing; "" where nothing is.
  std::string MissingText();

 private:
  static constexpr int kSlots = 2;
  // A segment of a large reduction: its contributions come in, then its results.
  struct Slot {
    Requests in;
    Requests out;
    char* scratch = nullptr;
  };

  absl::Status Begin();
  absl::Status Go(int64_t max_work, bool* done);
  absl::Status BeginReduction(int64_t total);
  void CopyBytes(const char* from, char* to, int64_t bytes) const;
  bool CopiesOwnFirst() const;  // before anything is posted
  absl::Status PostBlocks();
  absl::Status GoAllAtOnce(bool* done);
  absl::Status GoBlocks(int64_t max_work, bool* done);
  absl::Status GoSegments(int64_t max_work, bool* done);
  absl::Status PostContributions(int64_t segment);
  absl::Status ReduceSegment(int64_t segment);
  absl::Status GoBroadcast(bool* done);
  absl::Status GoBarrier(bool* done);
  absl::Status GoSymmetric(int64_t max_work, bool* done);
  absl::Status CheckMarks() const;
  void TakeBlocks();
  bool IsSymmetric() const { return call_.window != nullptr; }
  // The elements [first, first + count) of the reduced tensor that are `segment` of `member`.
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };
  Range RangeOf(int member, int64_t segment) const;
  int64_t BlockBegin(int member) const;
  // Of a kAllGather or kAllToAll, in bytes.
  Range BlockBytes(int member) const;
  // The members but this one, nearest above first (`sends`) or nearest below.
  int Peer(int distance, bool sends) const;
  void Finish();

  MpiCall call_;
  MpiGroup* group_ = nullptr;
  ScratchPool* pool_ = nullptr;
  int64_t cache_bytes_ = 0;
  Scratch scratch_;
  absl::Status status_;
  int64_t moves_ = 0;

  Requests requests_;
  std::array<Slot, kSlots> slots_;
  ReduceSpec spec_;
  std::vector<const void*> inputs_;
  bool at_once_ = false;      // a small all-reduce
  bool copied_own_ = false;   // of an all-gather or all-to-all: this member's own block
  int64_t element_ = 0;       // bytes
  int64_t total_ = 0;         // elements of the tensor that is reduced
  int64_t segment_ = 0;       // elements of a segment
  int64_t num_segments_ = 0;  // of the largest block
  int64_t posted_ = 0;        // segments whose contributions are on their way
  int64_t reduced_ = 0;
  int64_t ended_ = 0;
  // Of a barrier; of a broadcast: 1 where the children are served; of a symmetric call: members who
  // have arrived, and then, behind all, who are done.
  int round_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_OPERATION_H_
