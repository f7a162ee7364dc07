#include "comm/mpi/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/kernels/copy_rows.h"

namespace meshift {
namespace {

using Kind = MpiCall::Kind;

// What arrives at a member of a small all-reduce, at most: beyond it blocks are cheaper. Measured
// with Open MPI 4.1.4 over shared memory, where messages of up to 4 KiB go without a handshake.
constexpr int64_t kAtOnceBytes = 4 << 10;
// A segment of a peer's contribution. Of 32 KiB to 2 MiB 512 KiB was the fastest for an all-reduce
// of 1 MiB on 2 ranks (93 us; 114 with 256 KiB, 143 with 64 KiB: each segment is a handshake and a
// system call more), and among the fastest for 64 MiB; all segments on the way together stay below
// kMaxScratch.
constexpr int64_t kSegmentBytes = 512 << 10;
constexpr int64_t kMinSegmentBytes = 16 << 10;
constexpr int64_t kMaxScratch = 8 << 20;

void CopyBytes(const char* from, char* to, int64_t bytes) {
  if (from != to) CopyRun(from, to, bytes, bytes >= kStreamBytes);
}

}  // namespace

std::string MpiCall::ToString() const {
  if (kind == Kind::kBarrier) return std::string(Name(kind));
  if (kind == Kind::kSendRecv) {
    return fmt::format("{} of {} sends and {} receives", Name(kind), sends.size(), recvs.size());
  }
  return fmt::format("{}{} of {} {}", window == nullptr ? "" : "symmetric ", Name(kind), count,
                     Name(dtype));
}

int Operation::Peer(int distance, bool sends) const {
  const int n = group_->size();
  return (group_->member() + (sends ? distance : n - distance)) % n;
}

int64_t Operation::BlockBegin(int member) const {
  if (call_.kind == Kind::kReduceScatter && !call_.begins.empty()) return call_.begins[member];
  // Blocks of a plain reduce-scatter are equal; those of an all-reduce as equal as may be.
  const int64_t n = group_->size();
  return total_ / n * member + std::min<int64_t>(member, total_ % n);
}

Operation::Range Operation::RangeOf(int member, int64_t segment) const {
  const int64_t end = BlockBegin(member + 1);
  const int64_t first = std::min(BlockBegin(member) + segment * segment_, end);
  return {first, std::min(segment_, end - first)};
}

Operation::Range Operation::BlockBytes(int member) const {
  if (call_.begins.empty()) {
    const int64_t bytes = Bytes(call_.dtype, call_.count);
    return {member * bytes, bytes};
  }
  const int64_t first = Bytes(call_.dtype, call_.begins[member]);
  return {first, Bytes(call_.dtype, call_.begins[member + 1]) - first};
}

int64_t Operation::MessageBytes(const MpiGroup& group) const {
  if (IsSymmetric()) return 0;  // to begin it is to raise a flag
  if (call_.kind != Kind::kSendRecv) {
    if (!call_.begins.empty()) return 2 * Bytes(call_.dtype, call_.count);
    return 2 * Bytes(call_.dtype, call_.count) * (group.size() - 1);
  }
  int64_t count = 0;
  for (const PeerMessage& message : call_.sends) count += message.count;
  for (const PeerMessage& message : call_.recvs) count += message.count;
  return Bytes(call_.dtype, count);
}

void Operation::Start(MpiGroup* group, ScratchPool* pool) {
  group_ = group;
  pool_ = pool;
  status_ = absl::OkStatus();
  moves_ = 0;
  at_once_ = false;
  copied_own_ = false;
  num_segments_ = posted_ = reduced_ = ended_ = 0;
  round_ = 0;
  requests_.set_comm(group->comm());
  element_ = Bytes(call_.dtype, 1);
  status_ = Begin();
}

// Sends come before receives: where a peer's message is there, MPI may copy all of it in the call
// that posts its receive, and the peers would wait as long for ours.
absl::Status Operation::Begin() {
  const int n = group_->size();
  const int me = group_->member();
  const int tag = group_->tag();
  const int64_t bytes = Bytes(call_.dtype, call_.count);
  if (IsSymmetric()) {
    SymmetricFlags& own = call_.window->flags(me);
    own.call = call_.mark;
    own.arrived.store(call_.number, std::memory_order_release);
    return absl::OkStatus();
  }
  switch (call_.kind) {
    case Kind::kAllReduce:
      return BeginReduction(call_.count);
    case Kind::kReduceScatter:
      return BeginReduction(call_.begins.empty() ? call_.count * n : call_.count);
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return CopiesOwnFirst() ? absl::OkStatus() : PostBlocks();
    case Kind::kSendRecv:
      for (const PeerMessage& message : call_.sends) {
        MESHIFT_RETURN_IF_ERROR(requests_.Send(message.data, Bytes(call_.dtype, message.count),
                                               group_->rank_of(message.peer), tag));
      }
      for (const PeerMessage& message : call_.recvs) {
        MESHIFT_RETURN_IF_ERROR(requests_.Receive(message.data, Bytes(call_.dtype, message.count),
                                                  group_->rank_of(message.peer), tag));
      }
      return absl::OkStatus();
    case Kind::kBroadcast: {
      const int from_root = (me - call_.root + n) % n;
      if (from_root == 0) return absl::OkStatus();
      const int parent = (from_root & (from_root - 1)) + call_.root;  // without its lowest bit
      return requests_.Receive(call_.recv, bytes, group_->rank_of(parent % n), tag);
    }
    case Kind::kBarrier:
      return absl::OkStatus();
  }
  return Internal("call kind {} is unknown", static_cast<int>(call_.kind));
}

// A large own block is copied past the caches first, and peers read the copy: what this member has
// just read lies in its caches, and where the peers' cores share none with it, they get it from
// there more slowly than from memory.
bool Operation::CopiesOwnFirst() const {
  return call_.kind == Kind::kAllGather && BlockBytes(group_->member()).count >= kStreamBytes;
}

// Sends come first here too.
absl::Status Operation::PostBlocks() {
  const int n = group_->size();
  const int me = group_->member();
  const bool same = call_.kind == Kind::kAllGather;
  const char* const own = CopiesOwnFirst() ? call_.recv + BlockBytes(me).first : call_.send;
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/true);
    const Range block = BlockBytes(same ? me : peer);
    MESHIFT_RETURN_IF_ERROR(requests_.Send(own + (same ? 0 : block.first), block.count,
                                           group_->rank_of(peer), group_->tag()));
  }
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/false);
    const Range block = BlockBytes(peer);
    MESHIFT_RETURN_IF_ERROR(requests_.Receive(call_.recv + block.first, block.count,
                                              group_->rank_of(peer), group_->tag()));
  }
  return absl::OkStatus();
}

absl::Status Operation::BeginReduction(int64_t total) {
  const int n = group_->size();
  total_ = total;
  spec_.dtype = call_.dtype;
  spec_.reduction = call_.reduction;
  inputs_.resize(n);
  if (total == 0) return absl::OkStatus();
  const int64_t bytes = Bytes(call_.dtype, total);
  at_once_ = call_.kind == Kind::kAllReduce && (n == 1 || bytes <= kAtOnceBytes / (n - 1));
  int64_t slot_bytes = 0;
  if (at_once_) {
    scratch_ = pool_->Take(bytes * n);
  } else {
    const int64_t limit = std::clamp(kMaxScratch / n / kSlots, kMinSegmentBytes, kSegmentBytes);
    int64_t block = CeilDiv(total, n);
    for (int i = 0; i < n; ++i) block = std::max(block, BlockBegin(i + 1) - BlockBegin(i));
    segment_ = std::min(limit / element_, block);
    num_segments_ = CeilDiv(block, segment_);
    slot_bytes = Bytes(call_.dtype, segment_) * n;
    scratch_ = pool_->Take(slot_bytes * std::min<int64_t>(kSlots, num_segments_));
  }
  if (scratch_.data() == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory for the contributions to {}", call_.ToString()));
  }
  if (!at_once_) {
    for (int s = 0; s < kSlots; ++s) {
      slots_[s].scratch = scratch_.data() + s * slot_bytes;
      slots_[s].in.set_comm(group_->comm());
      slots_[s].out.set_comm(group_->comm());
    }
    return absl::OkStatus();
  }
  for (int d = 1; d < n; ++d) {
    MESHIFT_RETURN_IF_ERROR(
        requests_.Send(call_.send, bytes, group_->rank_of(Peer(d, /*sends=*/true)), group_->tag()));
  }
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/false);
    MESHIFT_RETURN_IF_ERROR(requests_.Receive(scratch_.data() + peer * bytes, bytes,
                                              group_->rank_of(peer), group_->tag()));
  }
  return absl::OkStatus();
}

Operation::State Operation::Step(int64_t max_work) {
  bool done = false;
  if (status_.ok()) status_ = Go(max_work, &done);
  if (!status_.ok()) {
    Cancel();
    return State::kFailed;
  }
  if (!done) return State::kPending;
  Finish();
  return State::kDone;
}

absl::Status Operation::Go(int64_t max_work, bool* done) {
  if (IsSymmetric()) return GoSymmetric(max_work, done);
  switch (call_.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      return at_once_ ? GoAllAtOnce(done) : GoSegments(max_work, done);
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return GoBlocks(max_work, done);
    case Kind::kBroadcast:
      return GoBroadcast(done);
    case Kind::kBarrier:
      return GoBarrier(done);
    default:
      return requests_.Test(done);
  }
}

void Operation::TakeArrived(int64_t copied_bytes) {
  bool done = false;
  if (copied_bytes < kStreamBytes && status_.ok()) status_ = requests_.Test(&done);
}

absl::Status Operation::GoBlocks(int64_t max_work, bool* done) {
  const Range own = BlockBytes(group_->member());
  if (!copied_own_ && own.count <= max_work) {
    // While the messages are on their way, but those that are there.
    TakeArrived(own.count);
    MESHIFT_RETURN_IF_ERROR(status_);
    CopyBytes(call_.send + (call_.kind == Kind::kAllGather ? 0 : own.first), call_.recv + own.first,
              own.count);
    copied_own_ = true;
    if (CopiesOwnFirst()) MESHIFT_RETURN_IF_ERROR(PostBlocks());
  }
  MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
  *done = *done && copied_own_;
  return absl::OkStatus();
}

absl::Status Operation::GoAllAtOnce(bool* done) {
  MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
  if (!*done) return absl::OkStatus();
  const int64_t bytes = Bytes(call_.dtype, total_);
  for (int i = 0; i < group_->size(); ++i) inputs_[i] = scratch_.data() + i * bytes;
  inputs_[group_->member()] = call_.send;
  Reduce(spec_, inputs_, 0, total_, call_.recv);
  return absl::OkStatus();
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
    MESHIFT_RETURN_IF_ERROR(slot.in.Receive(slot.scratch + peer * segment_ * element_, own_bytes,
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
  char* const out = call_.recv + (own.first - (spreads ? 0 : BlockBegin(me))) * element_;
  if (own.count > 0) {
    for (int i = 0; i < n; ++i) inputs_[i] = slot.scratch + i * segment_ * element_;
    inputs_[me] = call_.send + own.first * element_;
    Reduce(spec_, inputs_, 0, own.count, out);
  }
  if (!spreads) return absl::OkStatus();
  // A second tag: a peer may be a segment ahead.
  const int tag = group_->tag() + 1;
  for (int d = 1; d < n; ++d) {
    MESHIFT_RETURN_IF_ERROR(
        slot.out.Send(out, own.count * element_, group_->rank_of(Peer(d, /*sends=*/true)), tag));
  }
  for (int d = 1; d < n; ++d) {
    const int peer = Peer(d, /*sends=*/false);
    const Range theirs = RangeOf(peer, segment);
    MESHIFT_RETURN_IF_ERROR(slot.out.Receive(call_.recv + theirs.first * element_,
                                             theirs.count * element_, group_->rank_of(peer), tag));
  }
  return absl::OkStatus();
}

absl::Status Operation::GoSegments(int64_t max_work, bool* done) {
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
    if (moved) ++moves_;
  }
  *done = ended_ == num_segments_;
  return absl::OkStatus();
}

absl::Status Operation::GoBroadcast(bool* done) {
  MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
  if (!*done || round_ == 1) return absl::OkStatus();
  round_ = 1;
  ++moves_;
  const int n = group_->size();
  const int from_root = (group_->member() - call_.root + n) % n;
  const int64_t bytes = Bytes(call_.dtype, call_.count);
  // A member's children have one more bit, below its lowest.
  int top = 1;
  while (top < n) top *= 2;
  const int lowest = from_root == 0 ? top : from_root & -from_root;
  for (int bit = lowest / 2; bit > 0; bit /= 2) {
    if (from_root + bit >= n) continue;
    const int child = (from_root + bit + call_.root) % n;
    MESHIFT_RETURN_IF_ERROR(
        requests_.Send(call_.recv, bytes, group_->rank_of(child), group_->tag()));
  }
  return requests_.Test(done);
}

// In round k every member tells the one 2^k above it, and hears from the one 2^k below.
absl::Status Operation::GoBarrier(bool* done) {
  const int n = group_->size();
  for (;;) {
    MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
    if (!*done) return absl::OkStatus();
    const int distance = 1 << round_;
    if (distance >= n) return absl::OkStatus();
    ++round_;
    ++moves_;
    *done = false;
    MESHIFT_RETURN_IF_ERROR(
        requests_.ReceiveSignal(group_->rank_of(Peer(distance, /*sends=*/false)), group_->tag()));
    MESHIFT_RETURN_IF_ERROR(
        requests_.SendSignal(group_->rank_of(Peer(distance, /*sends=*/true)), group_->tag()));
  }
}

absl::Status Operation::CheckMarks() const {
  for (int member = 0; member < group_->size(); ++member) {
    const std::array<int64_t, 10>& theirs = call_.window->flags(member).call;
    if (theirs == call_.mark) continue;
    const auto text = [](const std::array<int64_t, 10>& m) {
      return fmt::format("symmetric {} of {} {}, buffer {}+{} -> {}+{}",
                         Name(static_cast<Kind>(m[0])), m[4], Name(static_cast<DType>(m[1])), m[6],
                         m[7], m[8], m[9]);
    };
    return FailedPrecondition("rank {} makes {}, and rank {} makes {}",
                              group_->rank_of(group_->member()), text(call_.mark),
                              group_->rank_of(member), text(theirs));
  }
  return absl::OkStatus();
}

void Operation::TakeBlocks() {
  const int n = group_->size();
  const int me = group_->member();
  inputs_.resize(n);
  for (int member = 0; member < n; ++member) {
    const char* const theirs = call_.window->At(call_.buffer, member) + call_.offset;
    inputs_[member] = theirs;
    if (call_.kind != Kind::kAllGather) continue;
    const Range block = BlockBytes(member);
    CopyBytes(theirs, call_.recv + block.first, block.count);
  }
  if (call_.kind == Kind::kAllGather) return;
  spec_.dtype = call_.dtype;
  spec_.reduction = call_.reduction;
  const int64_t count = call_.begins[me + 1] - call_.begins[me];
  if (count > 0) Reduce(spec_, inputs_, call_.begins[me], count, call_.recv);
}

absl::Status Operation::GoSymmetric(int64_t max_work, bool* done) {
  const int n = group_->size();
  for (; round_ < n; ++round_, ++moves_) {
    const SymmetricFlags& theirs = call_.window->flags(round_);
    if (theirs.arrived.load(std::memory_order_acquire) < call_.number) return absl::OkStatus();
  }
  if (round_ == n) {
    if (Bytes(call_.dtype, call_.count) > max_work) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(CheckMarks());
    TakeBlocks();
    call_.window->flags(group_->member()).done.store(call_.number, std::memory_order_release);
    ++round_;
    ++moves_;
  }
  for (; round_ <= 2 * n; ++round_, ++moves_) {
    const SymmetricFlags& theirs = call_.window->flags(round_ - n - 1);
    if (theirs.done.load(std::memory_order_acquire) < call_.number) return absl::OkStatus();
  }
  *done = true;
  return absl::OkStatus();
}

void Operation::Finish() {
  call_.window = nullptr;
  pool_->GiveBack(std::exchange(scratch_, Scratch()));
  group_ = nullptr;
}

void Operation::Cancel() {
  call_.window = nullptr;
  bool clean = requests_.empty();
  requests_.Cancel();
  for (Slot& slot : slots_) {
    clean = clean && slot.in.empty() && slot.out.empty();
    slot.in.Cancel();
    slot.out.Cancel();
  }
  if (!clean) scratch_.Leak();
  if (pool_ != nullptr) pool_->GiveBack(std::exchange(scratch_, Scratch()));
  group_ = nullptr;
}

std::string Operation::MissingText() {
  std::vector<int> missing = requests_.Missing();
  for (int member = 0; IsSymmetric() && member < group_->size(); ++member) {
    const SymmetricFlags& theirs = call_.window->flags(member);
    const auto& reached = round_ < group_->size() ? theirs.arrived : theirs.done;
    if (reached.load(std::memory_order_acquire) < call_.number) {
      missing.push_back(group_->rank_of(member));
    }
  }
  for (Slot& slot : slots_) {
    for (Requests* requests : {&slot.in, &slot.out}) {
      for (const int peer : requests->Missing()) missing.push_back(peer);
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (missing.empty()) return "";
  return fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

}  // namespace meshift
