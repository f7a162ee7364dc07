// Implements the reductions of class Operation (operation.h): all-reduce and reduce-scatter, in
// segments, or at once for a small all-reduce or reduction to one member. RESOURCE_EXHAUSTED: no
// memory for contributions. operation.cc has the reduce-scatter on symmetric memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/operation.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = MpiCall::Kind;

// The most bytes that a member receives in a reduction at once; above it, blocks are cheaper.
// Measured with Open MPI 4.1.4 over shared memory, where messages of up to 4 KiB need no handshake.
constexpr int64_t kAtOnceBytes = 4 << 10;
// The size of a segment. For an all-reduce of 1 MiB on 2 ranks, 512 KiB is the fastest from 32 KiB
// to 2 MiB (93 us; 256 KiB: 114 us, 64 KiB: 143 us), and among the fastest for 64 MiB: each segment
// costs a handshake and a system call. With many members a segment is smaller, down to
// kMinSegmentBytes: up to 256 members, the segments in flight take at most kMaxScratch bytes.
constexpr int64_t kSegmentBytes = 512 << 10;
constexpr int64_t kMinSegmentBytes = 16 << 10;
constexpr int64_t kMaxScratch = 8 << 20;
// An operation keeps memory for this many bytes of contributions, so that small reductions need not
// lock the pool twice.
constexpr int64_t kKeptScratch = 4 << 10;
// If the root of a reduction to one member would receive this many bytes of contributions, all
// members reduce a part, and the root receives the results. Below, the second message takes longer
// than that saves: on 2 ranks with half as many bytes, parts take up to 1.5 times as long. On 4
// ranks with 1.5 times as many, they take half the time.
constexpr int64_t kRootedBytes = 1 << 20;

}  // namespace

int64_t Operation::BlockBegin(int member) const {
  const bool is_given = call_.kind == Kind::kReduceScatter && !call_.begins.empty();
  if (is_given && root_ < 0) return call_.begins[member];
  // The blocks of a plain reduce-scatter are equal; those of an all-reduce or with a root differ by
  // at most one element.
  const int64_t n = group_->size();
  return total_ / n * member + std::min<int64_t>(member, total_ % n);
}

Operation::Range Operation::RangeOf(int member, int64_t segment) const {
  const int64_t end = BlockBegin(member + 1);
  const int64_t first = std::min(BlockBegin(member) + segment * segment_, end);
  return {first, std::min(segment_, end - first)};
}

int Operation::RootOf(int64_t total) const {
  if (call_.kind != Kind::kReduceScatter || call_.begins.empty()) return -1;
  for (int member = 0; member < group_->size(); ++member) {
    if (call_.begins[member + 1] - call_.begins[member] == total) return member;
  }
  return -1;
}

void Operation::TakeScratch(int64_t bytes) {
  if (bytes > kKeptScratch) {
    scratch_ = pool_->Take(bytes);
  } else if (small_.data() == nullptr) {
    small_ = Scratch::Allocate(kKeptScratch);
  }
  contributions_ = bytes > kKeptScratch ? scratch_.data() : small_.data();
}

absl::Status Operation::BeginReduction(int64_t total) {
  const int n = group_->size();
  total_ = total;
  root_ = RootOf(total);
  spec_.dtype = call_.dtype;
  spec_.reduction = call_.reduction;
  inputs_.resize(n);
  if (total == 0) return absl::OkStatus();
  const int64_t bytes = Bytes(call_.dtype, total);
  at_once_ =
      (call_.kind == Kind::kAllReduce || root_ >= 0) && (n == 1 || bytes <= kAtOnceBytes / (n - 1));
  if (root_ >= 0 && !at_once_ && bytes < kRootedBytes / (n - 1)) root_ = -1;
  int64_t slot_bytes = 0;
  if (at_once_) {
    TakeScratch(bytes * n);
  } else {
    const int64_t limit = std::clamp(kMaxScratch / n / kSlots, kMinSegmentBytes, kSegmentBytes);
    int64_t block = CeilDiv(total, n);
    for (int i = 0; i < n; ++i) block = std::max(block, BlockBegin(i + 1) - BlockBegin(i));
    segment_ = std::min(limit / element_, block);
    num_segments_ = CeilDiv(block, segment_);
    slot_bytes = Bytes(call_.dtype, segment_) * (n - 1);
    TakeScratch(slot_bytes * std::min<int64_t>(kSlots, num_segments_));
  }
  if (contributions_ == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory for the contributions to {}", call_.ToString()));
  }
  if (!at_once_) {
    for (int s = 0; s < kSlots; ++s) {
      slots_[s].scratch = contributions_ + s * slot_bytes;
      slots_[s].in.set_comm(group_->comm(), group_->watch());
      slots_[s].out.set_comm(group_->comm(), group_->watch());
    }
    return absl::OkStatus();
  }
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/true);
    if (root_ >= 0 && peer != root_) continue;
    MESHIFT_RETURN_IF_ERROR(
        requests_.Send(call_.send, bytes, group_->rank_of(peer), group_->tag()));
  }
  for (int d = 1; d < n && !HasOtherRoot(); ++d) {
    const int peer = Peer(d, /*sends=*/false);
    MESHIFT_RETURN_IF_ERROR(requests_.Receive(contributions_ + peer * bytes, bytes,
                                              group_->rank_of(peer), group_->tag()));
  }
  return absl::OkStatus();
}

absl::Status Operation::AdvanceAtOnce(bool* done) {
  MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
  if (!*done || HasOtherRoot()) return absl::OkStatus();
  const int64_t bytes = Bytes(call_.dtype, total_);
  for (int i = 0; i < group_->size(); ++i) inputs_[i] = contributions_ + i * bytes;
  inputs_[group_->member()] = call_.send;
  Reduce(spec_, inputs_, 0, total_, call_.recv);
  return absl::OkStatus();
}

bool Operation::HasOtherRoot() const { return root_ >= 0 && group_->member() != root_; }

char* Operation::ResultOf(int64_t segment) {
  if (HasOtherRoot()) return slots_[segment % kSlots].scratch;
  const int me = group_->member();
  const bool keeps_place = call_.kind == Kind::kAllReduce || root_ >= 0;
  const int64_t first = RangeOf(me, segment).first - (keeps_place ? 0 : BlockBegin(me));
  return call_.recv + first * element_;
}

char* Operation::ContributionTo(int64_t segment, int distance) {
  if (distance == 1) {
    // It is received where the result will be, which saves cache.
    char* const result = ResultOf(segment);
    const char* const own = call_.send + RangeOf(group_->member(), segment).first * element_;
    if (result != own) return result;
  }
  return slots_[segment % kSlots].scratch + (distance - 1) * segment_ * element_;
}

absl::Status Operation::PostContributions(int64_t segment) {
  Slot& slot = slots_[segment % kSlots];
  const int n = group_->size();
  const Range own = RangeOf(group_->member(), segment);
  const int64_t own_bytes = own.count * element_;
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/true);
    const Range theirs = RangeOf(peer, segment);
    if (theirs.count == 0) continue;
    MESHIFT_RETURN_IF_ERROR(slot.in.Send(call_.send + theirs.first * element_,
                                         theirs.count * element_, group_->rank_of(peer),
                                         group_->tag()));
  }
  for (int d = 1; d < n && own.count > 0; ++d) {
    const int peer = Peer(d, /*sends=*/false);
    MESHIFT_RETURN_IF_ERROR(slot.in.Receive(ContributionTo(segment, d), own_bytes,
                                            group_->rank_of(peer), group_->tag()));
  }
  return absl::OkStatus();
}

absl::Status Operation::ReduceSegment(int64_t segment) {
  Slot& slot = slots_[segment % kSlots];
  const int n = group_->size();
  const int me = group_->member();
  const Range own = RangeOf(me, segment);
  const bool spreads = call_.kind == Kind::kAllReduce;
  char* const out = ResultOf(segment);
  if (own.count > 0) {
    for (int d = 1; d < n; ++d) {
      inputs_[Peer(d, /*sends=*/false)] = ContributionTo(segment, d);
    }
    inputs_[me] = call_.send + own.first * element_;
    Reduce(spec_, inputs_, 0, own.count, out);
  }
  if (!spreads && root_ < 0) return absl::OkStatus();
  // A second tag, since a peer may already send contributions to the next segment.
  const int tag = group_->tag() + 1;
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/true);
    if (!spreads && peer != root_) continue;
    MESHIFT_RETURN_IF_ERROR(slot.out.Send(out, own.count * element_, group_->rank_of(peer), tag));
  }
  for (int d = 1; d < n && !HasOtherRoot(); ++d) {
    const int peer = Peer(d, /*sends=*/false);
    const Range theirs = RangeOf(peer, segment);
    MESHIFT_RETURN_IF_ERROR(slot.out.Receive(call_.recv + theirs.first * element_,
                                             theirs.count * element_, group_->rank_of(peer), tag));
  }
  return absl::OkStatus();
}

absl::Status Operation::AdvanceSegments(int64_t max_work, bool* done) {
  const bool may_reduce = segment_ * element_ <= max_work;
  for (bool moved = true; moved;) {
    moved = false;
    while (posted_ < num_segments_ && posted_ < ended_ + kSlots) {
      MESHIFT_RETURN_IF_ERROR(PostContributions(posted_));
      ++posted_;
    }
    bool ready = false;
    if (reduced_ < posted_ && may_reduce) {
      MESHIFT_RETURN_IF_ERROR(slots_[reduced_ % kSlots].in.Test(&ready));
      if (ready) {
        MESHIFT_RETURN_IF_ERROR(ReduceSegment(reduced_));
        ++reduced_;
        moved = true;
      }
    }
    if (ended_ < reduced_) {
      MESHIFT_RETURN_IF_ERROR(slots_[ended_ % kSlots].out.Test(&ready));
      if (ready) {
        ++ended_;
        moved = true;
      }
    }
    if (moved) ++progress_count_;
  }
  *done = ended_ == num_segments_;
  return absl::OkStatus();
}

}  // namespace meshift
