// The checks and descriptions of SymmetricRequest and SymmetricCall of meshift/engine.h, for all
// engines. The engines check reductions and whose buffers they are; the caller avoids overlaps.
// SymmetricCall::ToString() must have both buffers, and CheckSymmetricCall() a member below `size`:
// neither is checked.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {

std::string SymmetricRequest::ToString() const {
  return fmt::format("{} buffers of {} bytes numbered from {}", count, bytes, first);
}

absl::Status CheckRequest(const SymmetricRequest& request) {
  constexpr int64_t kMaxBytes = int64_t{1} << 38;  // 256 GiB, as in host_memory.cc
  int64_t total = 0;
  if (request.first < 0 || request.count < 1 || request.bytes < 1 ||
      !CheckedMul(request.count, request.bytes, &total) || total > kMaxBytes) {
    return InvalidArgument(
        "{}: expected at least one buffer, at least one byte each, and at most {} in all",
        request.ToString(), kMaxBytes);
  }
  return absl::OkStatus();
}

int64_t SymmetricCall::Total() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}, SaturatingAdd);
}

bool SymmetricCall::IsEven() const {
  return std::all_of(counts.begin(), counts.end(), [&](int64_t c) { return c == counts[0]; });
}

std::string SymmetricCall::ToString() const {
  const bool reduces = kind == Kind::kReduceScatter;
  std::string what = reduces ? fmt::format("{}, ", meshift::Name(reduction.op)) : "";
  if (reduces && reduction.op == ReduceOp::kAvg) what += fmt::format("by {}, ", reduction.divisor);
  return fmt::format("symmetric {}({}{} x {}, buffer {}+{} -> {}+{})",
                     reduces ? "reduce_scatter" : "all_gather", what, Total(), Name(dtype),
                     send.buffer->number(), send.offset, recv.buffer->number(), recv.offset);
}

absl::Status CheckSymmetricCall(const SymmetricCall& call, int member, int size) {
  if (call.send.buffer == nullptr || call.recv.buffer == nullptr) {
    return InvalidArgument("a symmetric call has no send or receive buffer");
  }
  if (static_cast<int>(call.counts.size()) != size) {
    return InvalidArgument("{}: the number of blocks is {}; expected {}, one for each member",
                           call.ToString(), call.counts.size(), size);
  }
  if (BitWidth(call.dtype) < 8) {
    return InvalidArgument("{}: elements of {} are smaller than a byte", call.ToString(),
                           Name(call.dtype));
  }
  for (const int64_t count : call.counts) {
    if (count < 0)
      return InvalidArgument("{}: a block has {} elements; it must have 0 or more", call.ToString(),
                             count);
  }
  const int64_t width = BitWidth(call.dtype) / 8;
  const int64_t all = SaturatingMul(call.Total(), width);
  const int64_t own = SaturatingMul(call.counts[member], width);
  const bool gathers = call.kind == SymmetricCall::Kind::kAllGather;
  for (const auto& [place, bytes] :
       {std::pair(&call.send, gathers ? own : all), std::pair(&call.recv, gathers ? all : own)}) {
    if (place->offset < 0 || place->offset % width != 0 ||
        bytes > place->buffer->size_bytes() - place->offset) {
      return InvalidArgument(
          "{}: {} bytes at offset {} are misaligned or outside the buffer of {} bytes",
          call.ToString(), bytes, place->offset, place->buffer->size_bytes());
    }
  }
  return absl::OkStatus();
}

}  // namespace meshift
