#include "comm/program/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>

namespace meshift {
namespace {

std::string MessagesText(const Program& program, const ListRange& range) {
  std::string text;
  for (int i = range.first; i < range.first + range.size; ++i) {
    const ProgramMessage& message = program.messages[i];
    fmt::format_to(std::back_inserter(text), "{}{}: {} {}", text.empty() ? "" : ", ", message.peer,
                   message.at.ToString(), message.count);
  }
  return "[" + text + "]";
}

std::string InstructionText(const Program& program, const Instruction& i) {
  using Kind = Instruction::Kind;
  std::string text = fmt::format("{} {}", i.step, Name(i.kind));
  if (i.group >= 0) text += fmt::format(" group {}", i.group);
  text += i.group >= 0 ? ": " : " ";
  switch (i.kind) {
    case Kind::kCopy:
      text += fmt::format("{} ", Name(i.dtype));
      for (int c = i.copies.first; c < i.copies.first + i.copies.size; ++c) {
        if (c > i.copies.first) text += "; ";
        text += program.copies[c].ToString();
      }
      return text;
    case Kind::kFillIdentity:
      return text + fmt::format("{}, {} {} {}", i.dst.ToString(), i.count, Name(i.dtype),
                                Name(i.reduction.op));
    case Kind::kFillZero:
      return text + fmt::format("{}, {} bytes", i.dst.ToString(), i.count);
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kAllGather:
      text += fmt::format("{} -> {}, {} {}", i.src.ToString(), i.dst.ToString(), i.count,
                          Name(i.dtype));
      if (i.counts.size > 0) text += fmt::format(" of {}", fmt::join(program.CountsOf(i), ","));
      if (i.kind != Kind::kAllGather) text += fmt::format(" {}", Name(i.reduction.op));
      if (i.reduction.op == ReduceOp::kAvg) text += fmt::format(" / {}", i.reduction.divisor);
      return text;
    case Kind::kSendRecv:
      return text + fmt::format("send {} recv {} {}", MessagesText(program, i.sends),
                                MessagesText(program, i.recvs), Name(i.dtype));
    case Kind::kCast:
      return text + fmt::format("{} -> {}, {} {} to {}", i.src.ToString(), i.dst.ToString(),
                                i.count, Name(i.dtype), Name(i.to_dtype));
    case Kind::kReduceInOrder:
      text += fmt::format("{} blocks at {} by {} -> {}, {} {} {}", i.blocks, i.src.ToString(),
                          i.block_bytes, i.dst.ToString(), i.count, Name(i.dtype),
                          Name(i.reduction.op));
      if (i.reduction.op == ReduceOp::kAvg) text += fmt::format(" / {}", i.reduction.divisor);
      if (i.reduction.block > 0) text += fmt::format(", {} first", i.reduction.block);
      return text;
  }
  return text;
}

}  // namespace

std::string_view Name(Instruction::Kind kind) {
  constexpr std::array<std::string_view, 9> kNames = {
      "copy",       "fill_identity", "fill_zero", "all_reduce",     "reduce_scatter",
      "all_gather", "send_recv",     "cast",      "reduce_in_order"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Location::ToString() const {
  constexpr std::array<std::string_view, 3> kNames = {"source", "target", "workspace"};
  return fmt::format("{}{}+{}", kNames[static_cast<size_t>(space)],
                     tensor == 0 ? "" : fmt::format(" {}", tensor), offset);
}

std::string ProgramCopy::ToString() const {
  return fmt::format("{} ({}):({}) -> {} :({})", src.ToString(), fmt::join(shape, ","),
                     fmt::join(src_strides, ","), dst.ToString(), fmt::join(dst_strides, ","));
}

std::string ProgramTensor::ToString() const {
  std::string text = fmt::format("{}[{}]", Name(dtype), fmt::join(shape, ","));
  if (!strides.empty()) text += fmt::format(":({})", fmt::join(strides, ","));
  return text;
}

int64_t Program::BlocksCount(const Instruction& instruction) const {
  if (instruction.counts.size == 0) {
    return instruction.count * static_cast<int64_t>(groups[instruction.group].ranks.size());
  }
  const absl::Span<const int64_t> of = CountsOf(instruction);
  return std::accumulate(of.begin(), of.end(), int64_t{0});
}

std::string Program::ToString() const {
  std::string text =
      fmt::format("rank {}: source {}, target {}, workspace {}{}{}\n", rank, source.ToString(),
                  target.ToString(), workspace_bytes, one_buffer ? ", one buffer" : "",
                  consumes_source ? ", source consumed" : "");
  for (size_t g = 0; g < groups.size(); ++g) {
    const ProgramGroup& group = groups[g];
    text += fmt::format("group {} over {}", g, fmt::join(group.mesh_dims, ","));
    if (group.mesh > 0) text += fmt::format(" of mesh {}", group.mesh);
    text += group.ranks.empty()
                ? ": without this rank"
                : fmt::format(": number {} of {{{}}}", group.number, fmt::join(group.ranks, ","));
    text += group.one_channel ? ", one channel\n" : "\n";
  }
  for (const Instruction& instruction : instructions) {
    text += InstructionText(*this, instruction) + "\n";
  }
  return text;
}

}  // namespace meshift
