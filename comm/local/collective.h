// One collective of the in-process engine: the call on which members must agree, the pairing of
// messages, and the data movement for all members.
//
//   CollectiveWork work;
//   work.call = {.kind = CollectiveKind::kAllGather, .dtype = DType::kF32, .count = 8};
//   work.members = {{in0, out0}, {in1, out1}};
//   for (int part = 0; part < work.NumParts(); ++part) work.RunPart(part, work.NumParts());
//
// Counts are in elements. CollectiveWork checks nothing: the call must pass Check(), buffers with
// elements must not be null, buffers may overlap only in place, and `spec` of a reduction must have
// the call's dtype and reduction.
// group.h adds streams and errors. Internal to comm/local.
#ifndef MESHIFT_COMM_LOCAL_COLLECTIVE_H_
#define MESHIFT_COMM_LOCAL_COLLECTIVE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/engine/collective_kind.h"
#include "comm/kernels/reduce.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

// The arguments that must be equal on all members.
struct CollectiveCall {
  using Kind = CollectiveKind;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  int64_t count = 0;  // elements, as the caller gave it; send_recv: 0; with `begins`: of all blocks
  // For reduce_scatter and all_gather with given block sizes: the begin of each member's block and
  // the end of the last, in elements. Else empty.
  std::vector<int64_t> begins;
  Reduction reduction;  // all_reduce, reduce_scatter
  int root = 0;         // broadcast, else 0
  // For a call on symmetric memory: buffer number and byte offset of send, then of recv. Else the
  // numbers are -1.
  std::array<int64_t, 4> symmetric_places = {-1, 0, -1, 0};

  // INVALID_ARGUMENT if the call is not valid for a group of `size` members. Checks no buffers.
  absl::Status Check(int size) const;
  // The elements of `member`'s block. REQUIRES: a reduce_scatter or all_gather that Check accepts.
  int64_t BlockCount(int member) const {
    return begins.empty() ? count : begins[member + 1] - begins[member];
  }
  int64_t BlockBegin(int64_t member) const {
    return begins.empty() ? count * member : begins[member];
  }
  bool Reduces() const { return kind == Kind::kAllReduce || kind == Kind::kReduceScatter; }
  // "all_reduce(sum, 8 x f32)"
  std::string ToString() const;
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

// One member's buffers. broadcast: `recv` only.
struct CollectiveBuffers {
  const void* send = nullptr;
  void* recv = nullptr;
};

// A message from one member to another.
struct Transfer {
  int from = 0;
  int to = 0;
  int64_t count = 0;
  const void* src = nullptr;  // null in a receive that is not paired yet
  void* dst = nullptr;        // null in a send that is not paired yet
};

// Pairs each send with its receive; the lists may be in any order, and are sorted. Empty messages
// are dropped. `ranks`: the members' world ranks, for errors. FAILED_PRECONDITION: the lists do not
// match, or a pair has two messages in one direction; `pairs` may then have some of the messages.
absl::Status PairTransfers(absl::Span<const int64_t> ranks, std::vector<Transfer>* sends,
                           std::vector<Transfer>* recvs, std::vector<Transfer>* pairs);

// The data movement of a collective for all members, in parts that may run concurrently.
class CollectiveWork {
 public:
  CollectiveCall call;
  std::vector<CollectiveBuffers> members;
  std::vector<Transfer> transfers;  // send_recv
  ReduceSpec spec;                  // all_reduce, reduce_scatter

  // About one part per MiB that the members read or write; at least 1, at most 64.
  int NumParts() const;
  // Runs part `part`, 0 <= part < num_parts. `num_parts` is equal in all calls.
  void RunPart(int part, int num_parts) const;

 private:
  // Calls visit(block, offset, n) for the parts of [begin, end) that lie in one member's block.
  template <typename Visit>
  void ForEachMemberBlock(int64_t begin, int64_t end, Visit visit) const;
  // The length in elements of the range that is divided into parts.
  int64_t Units() const;
  void AllReduce(int64_t begin, int64_t end) const;
  void ReduceScatter(int64_t begin, int64_t end) const;
  void AllGather(int64_t begin, int64_t end) const;
  void AllToAll(int64_t begin, int64_t end) const;
  void SendRecv(int64_t begin, int64_t end) const;
  void Broadcast(int64_t begin, int64_t end) const;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_COLLECTIVE_H_
