#include "comm/mpi/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/kernels/copy_rows.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = MpiCall::Kind;

}  // namespace

void MpiCall::SetBlocks(absl::Span<const int64_t> counts) {
  begins.assign(1, 0);
  for (const int64_t block : counts) begins.push_back(SaturatingAdd(begins.back(), block));
  count = begins.back();
}

int64_t MpiCall::MessageBytes(int members) const {
  if (window != nullptr) return 0;  // beginning it only sets a flag
  if (kind != Kind::kSendRecv) {
    if (!begins.empty()) return 2 * Bytes(dtype, count);
    return 2 * Bytes(dtype, count) * (members - 1);
  }
  int64_t all = 0;
  for (const PeerMessage& message : sends) all += message.count;
  for (const PeerMessage& message : recvs) all += message.count;
  return Bytes(dtype, all);
}

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

Operation::Range Operation::BlockBytes(int member) const {
  if (call_.begins.empty()) {
    const int64_t bytes = Bytes(call_.dtype, call_.count);
    return {member * bytes, bytes};
  }
  const int64_t first = Bytes(call_.dtype, call_.begins[member]);
  return {first, Bytes(call_.dtype, call_.begins[member + 1]) - first};
}

void Operation::Start(MpiGroup* group, ScratchPool* pool, int64_t cache_bytes) {
  group_ = group;
  pool_ = pool;
  cache_bytes_ = cache_bytes;
  status_ = absl::OkStatus();
  progress_count_ = 0;
  at_once_ = false;
  copied_own_ = false;
  num_segments_ = posted_ = reduced_ = ended_ = 0;
  round_ = 0;
  requests_.set_comm(group->comm(), group->watch());
  element_ = Bytes(call_.dtype, 1);
  status_ = Begin();
}

// Sends are posted before receives. If a peer's message has arrived, MPI may copy all of it in the
// call that posts the receive; our sends must not wait for that copy.
absl::Status Operation::Begin() {
  const int n = group_->size();
  const int me = group_->member();
  const int tag = group_->tag();
  const int64_t bytes = Bytes(call_.dtype, call_.count);
  if (IsSymmetric()) {
    SymmetricFlags& own = call_.window->flags(me);
    own.call = call_.compared_arguments;
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
      const int parent = (from_root & (from_root - 1)) + call_.root;  // lowest bit cleared
      return requests_.Receive(call_.recv, bytes, group_->rank_of(parent % n), tag);
    }
    case Kind::kBarrier:
      return absl::OkStatus();
  }
  return Internal("call kind {} is unknown", static_cast<int>(call_.kind));
}

void Operation::CopyBytes(const char* from, char* to, int64_t bytes) const {
  if (from != to) CopyRun(from, to, bytes, bytes >= StreamBytes(cache_bytes_));
}

// An all-gather that does not fit in the shared cache copies a large own block first, and peers
// read the copy. The part of the source that this member read last is in its private caches, from
// which other cores read more slowly than from memory.
bool Operation::CopiesOwnFirst() const {
  if (call_.kind != Kind::kAllGather) return false;
  if (BlockBytes(group_->member()).count < StreamBytes(cache_bytes_)) return false;
  const int64_t n = group_->size();
  const int64_t bytes = Bytes(call_.dtype, call_.count);
  const int64_t gathered = call_.begins.empty() ? SaturatingMul(n, bytes) : bytes;
  return SaturatingMul(n + 1, gathered) > cache_bytes_;  // n sources and n targets
}

// Sends first, as in Begin().
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

Operation::State Operation::Step(int64_t max_work) {
  bool done = false;
  if (status_.ok()) status_ = Advance(max_work, &done);
  if (!status_.ok()) {
    Cancel();
    return State::kFailed;
  }
  if (!done) return State::kPending;
  Finish();
  return State::kDone;
}

absl::Status Operation::Advance(int64_t max_work, bool* done) {
  if (IsSymmetric()) return AdvanceSymmetric(max_work, done);
  switch (call_.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      return at_once_ ? AdvanceAtOnce(done) : AdvanceSegments(max_work, done);
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return AdvanceBlocks(max_work, done);
    case Kind::kBroadcast:
      return AdvanceBroadcast(done);
    case Kind::kBarrier:
      return AdvanceBarrier(done);
    default:
      return requests_.Test(done);
  }
}

void Operation::TakeArrived(int64_t copied_bytes) {
  bool done = false;
  if (copied_bytes < kStreamBytes && status_.ok()) status_ = requests_.Test(&done);
}

absl::Status Operation::AdvanceBlocks(int64_t max_work, bool* done) {
  const Range own = BlockBytes(group_->member());
  if (!copied_own_ && own.count <= max_work) {
    // Receive the arrived messages first; the others travel during the copy.
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

absl::Status Operation::AdvanceBroadcast(bool* done) {
  MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
  if (!*done || round_ == 1) return absl::OkStatus();
  round_ = 1;
  ++progress_count_;
  const int n = group_->size();
  const int from_root = (group_->member() - call_.root + n) % n;
  const int64_t bytes = Bytes(call_.dtype, call_.count);
  // Binomial tree: a member's children have one more bit set, below its lowest.
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

// Dissemination barrier: in round k every member signals the one 2^k above it and waits for the
// one 2^k below.
absl::Status Operation::AdvanceBarrier(bool* done) {
  const int n = group_->size();
  for (;;) {
    MESHIFT_RETURN_IF_ERROR(requests_.Test(done));
    if (!*done) return absl::OkStatus();
    const int distance = 1 << round_;
    if (distance >= n) return absl::OkStatus();
    ++round_;
    ++progress_count_;
    *done = false;
    MESHIFT_RETURN_IF_ERROR(
        requests_.ReceiveSignal(group_->rank_of(Peer(distance, /*sends=*/false)), group_->tag()));
    MESHIFT_RETURN_IF_ERROR(
        requests_.SendSignal(group_->rank_of(Peer(distance, /*sends=*/true)), group_->tag()));
  }
}

absl::Status Operation::CompareArguments() const {
  for (int member = 0; member < group_->size(); ++member) {
    const std::array<int64_t, 10>& theirs = call_.window->flags(member).call;
    if (theirs == call_.compared_arguments) continue;
    const auto text = [](const std::array<int64_t, 10>& m) {
      return fmt::format("symmetric {} of {} {}, buffer {}+{} -> {}+{}",
                         Name(static_cast<Kind>(m[0])), m[4], Name(static_cast<DType>(m[1])), m[6],
                         m[7], m[8], m[9]);
    };
    return FailedPrecondition("rank {} makes {}, and rank {} makes {}",
                              group_->rank_of(group_->member()), text(call_.compared_arguments),
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

absl::Status Operation::AdvanceSymmetric(int64_t max_work, bool* done) {
  const int n = group_->size();
  for (; round_ < n; ++round_, ++progress_count_) {
    const SymmetricFlags& theirs = call_.window->flags(round_);
    if (theirs.arrived.load(std::memory_order_acquire) < call_.number) return absl::OkStatus();
  }
  if (round_ == n) {
    if (Bytes(call_.dtype, call_.count) > max_work) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(CompareArguments());
    TakeBlocks();
    call_.window->flags(group_->member()).done.store(call_.number, std::memory_order_release);
    ++round_;
    ++progress_count_;
  }
  for (; round_ <= 2 * n; ++round_, ++progress_count_) {
    const SymmetricFlags& theirs = call_.window->flags(round_ - n - 1);
    if (theirs.done.load(std::memory_order_acquire) < call_.number) return absl::OkStatus();
  }
  *done = true;
  return absl::OkStatus();
}

void Operation::Finish() {
  call_.window = nullptr;
  if (scratch_.size() > 0) pool_->GiveBack(std::exchange(scratch_, Scratch()));
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
  if (!clean) {
    scratch_.Leak();
    small_.Leak();
  }
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
