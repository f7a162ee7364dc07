#include "comm/local/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "comm/kernels/reduce.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = CollectiveCall::Kind;

constexpr int64_t kPartBytes = int64_t{1} << 20;  // read or written by the members
constexpr int kMaxParts = 64;
constexpr int64_t kBlockBytes = 16 << 10;  // all_reduce: reduced, then copied to all members

const char* At(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

// A member's own block may already be in its place.
void Copy(void* dst, const void* src, int64_t bytes) {
  if (dst != src && bytes > 0) std::memcpy(dst, src, bytes);
}

// Calls visit(block, offset, n) for the parts of [begin, end) that lie in one block of `size`.
template <typename Visit>
void ForEachBlock(int64_t begin, int64_t end, int64_t size, Visit visit) {
  while (begin < end) {
    const int64_t block = begin / size;
    const int64_t offset = begin % size;
    const int64_t n = std::min(end - begin, size - offset);
    visit(block, offset, n);
    begin += n;
  }
}

auto PairOf(const Transfer& t) { return std::tie(t.from, t.to); }

std::string Elements(const Transfer* t) {
  return t == nullptr ? "nothing" : fmt::format("{} elements", t->count);
}

}  // namespace

absl::Status CollectiveCall::Check(int size) const {
  int64_t total = 0;
  if (!begins.empty()) {
    if (static_cast<int>(begins.size()) != size + 1) {
      return InvalidArgument("{}: the number of counts is {}; expected {}, one for each member",
                             Name(kind), begins.size() - 1, size);
    }
    for (int i = 0; i < size; ++i) {
      CollectiveCall block = *this;
      block.count = begins[i + 1] - begins[i];
      block.begins.clear();
      MESHIFT_RETURN_IF_ERROR(block.Check(size));
    }
  }
  if (count < 0) return InvalidArgument("{}: a count of {} is negative", Name(kind), count);
  // An all-to-all has size * size blocks; no other call has more.
  if (!CheckedMul(count, int64_t{size} * size, &total) || !CheckedMul(total, 16, &total)) {
    return InvalidArgument("{}: a count of {} is too large; the limit is {}", Name(kind), count,
                           INT64_MAX / 16 / (int64_t{size} * size));
  }
  if (BitWidth(dtype) < 8 && count % 2 != 0) {
    return InvalidArgument("{}: {} elements of {} end inside a byte", Name(kind), count,
                           Name(dtype));
  }
  if (root < 0 || root >= size) {
    return InvalidArgument("{}: root {} is out of range for {} members", Name(kind), root, size);
  }
  return Reduces() ? CheckReduction(dtype, reduction) : absl::OkStatus();
}

std::string CollectiveCall::ToString() const {
  if (kind == Kind::kBarrier) return std::string(Name(kind));
  if (kind == Kind::kSendRecv) return fmt::format("{}({})", Name(kind), Name(dtype));
  std::string op;
  if (Reduces()) op = fmt::format("{}, ", Name(reduction.op));
  if (Reduces() && reduction.op == ReduceOp::kAvg) op += fmt::format("by {}, ", reduction.divisor);
  if (kind == Kind::kBroadcast) op = fmt::format("root {}, ", root);
  if (!begins.empty()) {
    std::vector<int64_t> counts;
    for (size_t i = 1; i < begins.size(); ++i) counts.push_back(begins[i] - begins[i - 1]);
    std::string where;
    if (symmetric_places[0] >= 0) {
      where = fmt::format(", symmetric {}+{} -> {}+{}", symmetric_places[0], symmetric_places[1],
                          symmetric_places[2], symmetric_places[3]);
    }
    return fmt::format("{}({}{} x {}{})", Name(kind), op, fmt::join(counts, ","), Name(dtype),
                       where);
  }
  return fmt::format("{}({}{} x {})", Name(kind), op, count, Name(dtype));
}

absl::Status PairTransfers(absl::Span<const int64_t> ranks, std::vector<Transfer>* sends,
                           std::vector<Transfer>* recvs, std::vector<Transfer>* pairs) {
  const auto before = [](const Transfer& a, const Transfer& b) { return PairOf(a) < PairOf(b); };
  for (std::vector<Transfer>* list : {sends, recvs}) {
    list->erase(
        std::remove_if(list->begin(), list->end(), [](const Transfer& t) { return t.count == 0; }),
        list->end());
    std::sort(list->begin(), list->end(), before);
    const auto twice = std::adjacent_find(
        list->begin(), list->end(),
        [](const Transfer& a, const Transfer& b) { return PairOf(a) == PairOf(b); });
    if (twice != list->end()) {
      return FailedPrecondition("rank {} {} more than one message {} rank {}",
                                ranks[list == sends ? twice->from : twice->to],
                                list == sends ? "sends" : "expects", list == sends ? "to" : "from",
                                ranks[list == sends ? twice->to : twice->from]);
    }
  }
  pairs->reserve(sends->size());
  for (size_t i = 0; i < std::max(sends->size(), recvs->size()); ++i) {
    const Transfer* send = i < sends->size() ? &(*sends)[i] : nullptr;
    const Transfer* recv = i < recvs->size() ? &(*recvs)[i] : nullptr;
    if (send != nullptr && recv != nullptr) {
      if (before(*send, *recv)) recv = nullptr;
      if (recv != nullptr && before(*recv, *send)) send = nullptr;
    }
    if (send == nullptr || recv == nullptr || send->count != recv->count) {
      const Transfer& one = send != nullptr ? *send : *recv;
      return FailedPrecondition("rank {} sends {} to rank {}, which expects {} from it",
                                ranks[one.from], Elements(send), ranks[one.to], Elements(recv));
    }
    pairs->push_back(*send);
    pairs->back().dst = recv->dst;
  }
  return absl::OkStatus();
}

int64_t CollectiveWork::Units() const {
  const auto n = static_cast<int64_t>(members.size());
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kBroadcast:
      return call.count;
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      return call.BlockBegin(n);
    case Kind::kAllToAll:
      return n * n * call.count;
    case Kind::kSendRecv: {
      int64_t sum = 0;
      for (const Transfer& t : transfers) sum += t.count;
      return sum;
    }
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

int CollectiveWork::NumParts() const {
  const bool once = call.kind == Kind::kAllToAll || call.kind == Kind::kSendRecv;
  const int64_t copies = once ? 1 : static_cast<int64_t>(members.size());
  const int64_t bytes = Bytes(call.dtype, Units()) * copies;
  return static_cast<int>(std::clamp<int64_t>(bytes / kPartBytes, 1, kMaxParts));
}

void CollectiveWork::RunPart(int part, int num_parts) const {
  const int64_t units = Units();
  // Multiples of 64 elements, so that parts share few cache lines and none begins inside a byte.
  const int64_t step = RoundUp(CeilDiv(units, num_parts), 64);
  const int64_t begin = std::min(units, part * step);
  const int64_t end = std::min(units, begin + step);
  if (begin >= end) return;
  switch (call.kind) {
    case Kind::kAllReduce:
      return AllReduce(begin, end);
    case Kind::kReduceScatter:
      return ReduceScatter(begin, end);
    case Kind::kAllGather:
      return AllGather(begin, end);
    case Kind::kAllToAll:
      return AllToAll(begin, end);
    case Kind::kSendRecv:
      return SendRecv(begin, end);
    case Kind::kBroadcast:
      return Broadcast(begin, end);
    case Kind::kBarrier:
      return;
  }
}

void CollectiveWork::AllReduce(int64_t begin, int64_t end) const {
  absl::InlinedVector<const void*, 64> inputs;
  for (const CollectiveBuffers& member : members) inputs.push_back(member.send);
  alignas(64) char block[kBlockBytes];
  const int64_t step = kBlockBytes * 8 / BitWidth(call.dtype);
  for (int64_t first = begin; first < end; first += step) {
    const int64_t n = std::min(step, end - first);
    Reduce(spec, inputs, first, n, block);
    const int64_t offset = Bytes(call.dtype, first);
    for (const CollectiveBuffers& member : members) {
      std::memcpy(At(member.recv, offset), block, Bytes(call.dtype, n));
    }
  }
}

template <typename Visit>
void CollectiveWork::ForEachMemberBlock(int64_t begin, int64_t end, Visit visit) const {
  if (call.begins.empty()) return ForEachBlock(begin, end, call.count, visit);
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t first = std::max(begin, call.begins[i]);
    const int64_t last = std::min(end, call.begins[i + 1]);
    if (first < last) visit(static_cast<int64_t>(i), first - call.begins[i], last - first);
  }
}

void CollectiveWork::ReduceScatter(int64_t begin, int64_t end) const {
  absl::InlinedVector<const void*, 64> inputs;
  for (const CollectiveBuffers& member : members) inputs.push_back(member.send);
  ForEachMemberBlock(begin, end, [&](int64_t to, int64_t offset, int64_t n) {
    Reduce(spec, inputs, call.BlockBegin(to) + offset, n,
           At(members[to].recv, Bytes(call.dtype, offset)));
  });
}

void CollectiveWork::AllGather(int64_t begin, int64_t end) const {
  ForEachMemberBlock(begin, end, [&](int64_t from, int64_t offset, int64_t n) {
    const char* src = At(members[from].send, Bytes(call.dtype, offset));
    const int64_t target = Bytes(call.dtype, call.BlockBegin(from) + offset);
    for (const CollectiveBuffers& member : members) {
      Copy(At(member.recv, target), src, Bytes(call.dtype, n));
    }
  });
}

void CollectiveWork::AllToAll(int64_t begin, int64_t end) const {
  const auto size = static_cast<int64_t>(members.size());
  ForEachBlock(begin, end, call.count, [&](int64_t block, int64_t offset, int64_t n) {
    const int64_t to = block / size;
    const int64_t from = block % size;
    Copy(At(members[to].recv, Bytes(call.dtype, from * call.count + offset)),
         At(members[from].send, Bytes(call.dtype, to * call.count + offset)), Bytes(call.dtype, n));
  });
}

void CollectiveWork::SendRecv(int64_t begin, int64_t end) const {
  int64_t first = 0;  // begin of the message in the concatenation of all messages
  for (const Transfer& t : transfers) {
    const int64_t low = std::max(begin, first) - first;
    const int64_t high = std::min(end, first + t.count) - first;
    if (low < high) {
      const int64_t offset = Bytes(call.dtype, low);
      Copy(At(t.dst, offset), At(t.src, offset), Bytes(call.dtype, high - low));
    }
    first += t.count;
  }
}

void CollectiveWork::Broadcast(int64_t begin, int64_t end) const {
  const int64_t offset = Bytes(call.dtype, begin);
  const char* src = At(members[call.root].recv, offset);
  for (const CollectiveBuffers& member : members) {
    Copy(At(member.recv, offset), src, Bytes(call.dtype, end - begin));
  }
}

}  // namespace meshift
