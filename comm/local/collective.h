// One collective of one group: what its members asked for, and the work for all of them.
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

// What all members have to agree on.
struct CollectiveCall {
  using Kind = CollectiveKind;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kU8;
  int64_t count = 0;  // as the caller gave it; send_recv: 0; with `begins`: of all blocks
  // Of blocks of any sizes (reduce_scatter, all_gather): where each begins and the last one ends,
  // in elements. Else empty.
  std::vector<int64_t> begins;
  Reduction reduction;  // where something is reduced
  int root = 0;         // broadcast, else 0
  // Of a call on symmetric memory: buffer and offset of send and recv. Else no buffers.
  std::array<int64_t, 4> places = {-1, 0, -1, 0};

  // INVALID_ARGUMENT where no group of `size` members could make it.
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
  const void* src = nullptr;  // one of the two until they are paired
  void* dst = nullptr;
};

// Makes one list of what is sent and what is received, both in any order; messages of no elements
// are dropped. FAILED_PRECONDITION, with both world ranks, where they do not pair up.
absl::Status PairTransfers(absl::Span<const int64_t> ranks, std::vector<Transfer>* sends,
                           std::vector<Transfer>* recvs, std::vector<Transfer>* pairs);

// The data movement of a collective, for all members at once, in parts that may run at once.
class CollectiveWork {
 public:
  CollectiveCall call;
  std::vector<CollectiveBuffers> members;
  std::vector<Transfer> transfers;  // send_recv
  ReduceSpec spec;                  // where something is reduced

  // A sensible number of parts: 1 unless the work is large.
  int NumParts() const;
  void RunPart(int part, int num_parts) const;

 private:
  // Calls visit(block, offset, n) for the parts of [begin, end) that lie in one member's block.
  template <typename Visit>
  void ForEachMemberBlock(int64_t begin, int64_t end, Visit visit) const;
  // The length of the range that parts divide among themselves.
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
